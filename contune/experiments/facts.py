"""Sentences under a table: how its numbers were measured, how sure they are, and what went wrong."""

from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from statistics import mean
from typing import Any

from contune.experiments.outcome import FAST, KNN, LINEAR, TOP1, Outcome, Result

NOTHING = "–"
_TITLES = {LINEAR: "linear", FAST: "fast probe", KNN: "kNN"}
_REVISION_LENGTH = 7


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
    if LINEAR not in measures:  # a table by that one has columns for it
        found.append(f"{_whose('Encoder', 'encoder', outcomes)} {_whose('Epochs of training', 'epochs', outcomes)}")
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
    return [*found, *_revisions(outcomes), *_remarks(outcomes), *ending]


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


def _whose(title: str, key: str, outcomes: Sequence[Outcome]) -> str:
    """The value that most runs have, and whose is another."""
    of = {str(value): runs for value, runs in _runs_by(key, outcomes).items()}
    usual = max(of, key=lambda value: sum(map(len, of[value].values())))
    others = [f"{value} ({'; '.join(runs)})" for value, runs in of.items() if value != usual]
    return f"{title}: {'; '.join([usual, *others])}."


def _revisions(outcomes: Sequence[Outcome]) -> list[str]:
    """Where not all runs are of one."""
    of = {str(value)[:_REVISION_LENGTH]: runs for value, runs in _runs_by("git_revision", outcomes).items() if value}
    named = [f"{value}: {_runs(runs, outcomes)}" for value, runs in of.items()]
    return [f"Runs of several revisions of contune. {'. '.join(named)}."] if len(of) > 1 else []


def _remarks(outcomes: Sequence[Outcome]) -> list[str]:
    """What results have as a note, and of which of them it is where not of all."""
    of = _runs_by("note", outcomes)
    if len(of) == 1:
        return [f"{note[0].upper()}{note[1:]}." for note in of if note]
    return [f"{_runs(runs, outcomes)}: {note}." for note, runs in of.items() if note]


Runs = dict[str, list[str]]
"""By the title of a row, seeds."""


def _runs_by(key: str, outcomes: Iterable[Outcome]) -> dict[Any, Runs]:
    """For each value that results have, whose it is."""
    found: dict[Any, Runs] = {}
    for outcome in outcomes:
        for result in outcome.results if outcome.has_seeds else ():
            runs = found.setdefault(result.get(key, ""), {})
            runs.setdefault(outcome.row.title, []).append(str(result["seed"]))
    return found


def _runs(runs: Runs, outcomes: Iterable[Outcome]) -> str:
    """With seeds where there are several, and not all of a row's are meant."""
    seeds_of = {outcome.row.title: len(outcome.results) for outcome in outcomes}
    named = []
    for title, seeds in runs.items():
        some = f" ({'seed' if len(seeds) == 1 else 'seeds'} {', '.join(seeds)})" if len(seeds) < seeds_of[title] else ""
        named.append(title + some)
    return ("; " if any("," in title for title in runs) else ", ").join(named)


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
