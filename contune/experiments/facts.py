"""Sentences under a table: how its numbers were measured, how sure they are, and what went wrong."""

from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from statistics import mean

from contune.experiments.outcome import KNN, LINEAR, TOP1, Outcome, Result

NOTHING = "–"
_TITLES = {LINEAR: "linear", KNN: "kNN"}


def notes(outcomes: Sequence[Outcome], measures: Sequence[str]) -> list[str]:
    results = [result for each in outcomes for result in each.results]
    ending = [*_left_out(outcomes), *(sentence for each in outcomes for sentence in each.sentences())]
    if not results:
        return ending
    several = any(len(each.results) > 1 and each.has_seeds for each in outcomes)
    found = [
        f"Top-1 on the {same(results, 'split')} split after the last epoch; in bold the highest. "
        + ("± is the 95 % confidence interval over seeds (Student's t)." if several else _one_seed(outcomes))
    ]
    found += [sentence for measure in measures for sentence in _protocols(outcomes, measure)]
    if any(each.logged("online_top1") for each in outcomes) and LINEAR in measures:
        found.append(
            "online probe: on the last training views it learnt from, so it is not to be compared with the others."
        )
    found.append(f"{'training: one run' if LINEAR in measures else 'Trained'} on {same(results, 'hardware')}.")
    if any(str(result["hardware"]).startswith("cpu") for result in results):
        found.append(
            "On a CPU the number of threads (--parallel shares them out) decides the order of sums; with another one "
            "accuracies differ as between seeds."
        )
    return [*found, *_remarks(outcomes), *ending]


def values_of(results: Iterable[Result], key: str) -> list[str]:
    """The different values that results have, in order."""
    return list(dict.fromkeys(str(result[key]) for result in results if key in result))


def same(results: Iterable[Result], key: str) -> str:
    return ", ".join(values_of(results, key)) or NOTHING


def _protocols(outcomes: Iterable[Outcome], measure: str) -> list[str]:
    """Of a measure that goes by another name for each method, whose each protocol is."""
    whose: dict[str, list[str]] = {}
    for outcome in outcomes:
        for protocol in outcome.protocols(measure) if outcome.has_seeds else ():
            names = whose.setdefault(protocol, [])
            if outcome.row.series not in names:
                names.append(outcome.row.series)
    if measure == TOP1:
        return [f"{', '.join(names)}: {protocol}." for protocol, names in whose.items()]
    return [f"{_TITLES[measure]}: {', '.join(whose)}."] if whose else []


def _remarks(outcomes: Sequence[Outcome]) -> list[str]:
    """What results have as a note, and of which of them it is where not of all."""
    whose: dict[str, dict[str, list[str]]] = {}
    for outcome in outcomes:
        for result in outcome.results:
            titles = whose.setdefault(result.get("note", ""), {})
            titles.setdefault(outcome.row.title, []).append(str(result["seed"]))
    if len(whose) == 1:
        return [f"{note[0].upper()}{note[1:]}." for note in whose if note]
    several = any(len(outcome.results) > 1 for outcome in outcomes)
    return [f"{_runs(titles, with_seeds=several)}: {note}." for note, titles in whose.items() if note]


def _runs(seeds: Mapping[str, Sequence[str]], *, with_seeds: bool) -> str:
    named = (f"{title} ({'seed' if len(own) == 1 else 'seeds'} {', '.join(own)})" for title, own in seeds.items())
    return ", ".join(named if with_seeds else seeds)


def _left_out(outcomes: Iterable[Outcome]) -> list[str]:
    """For each data set that is not there, what was to be shown of it, and why it is not."""
    places: Mapping[str, dict[str, None]] = {each.absent: {} for each in outcomes if each.absent}
    for outcome in outcomes:
        if outcome.absent:
            places[outcome.absent][outcome.row.at or outcome.row.title] = None
    return [f"Left out: {', '.join(names)}; {why}." for why, names in places.items()]


def _one_seed(outcomes: Iterable[Outcome]) -> str:
    """How far chance alone goes, where repetitions do not show it."""
    top1 = mean(spread.mean for each in outcomes if (spread := each.accuracy(TOP1) or each.accuracy(KNN)))
    num = next(m["num_images"] for each in outcomes for result in each.results for m in result["measures"])
    error = sqrt(top1 * (100 - top1) / num)
    return f"One seed each: an accuracy of {top1:.0f} % on {num:,} images has a standard error of {error:.1f} points."
