"""`contune experiment verdicts`: the claims of the paper, and what the result files say about each.

A claim in results/claims.toml is data: a sentence, where the paper says it, the rows of an experiment whose runs decide
it, and a test. Verdict, number, interval and files follow from the runs. Every finished run at a setting counts. A
difference is decided if its 95 % interval excludes 0, or excludes the paper's gain. Of fewer than three seeds, the
interval is at least that of two samples of the test images, and no text shows it.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from math import sqrt
from pathlib import Path
from statistics import median
from typing import Any

from contune.config import Config
from contune.errors import UserError
from contune.eval.measures import LINEAR, MEASURES, RETRIEVAL, TOP1
from contune.experiments import plan
from contune.experiments.catalogue import find_experiment
from contune.experiments.plan import Experiment, Outcome, Results
from contune.report.statistics import FEW, Spread

REPRODUCED, PARTLY, NOT, OPEN = "reproduced", "partly reproduced", "not reproduced", "open"
OURS = "our hypothesis"
OF_OURS = {REPRODUCED: "holds", PARTLY: "holds in part", NOT: "does not hold", OPEN: "open"}
NOT_RUN, INCOMPARABLE = "a setting never ran", "not compared, as runs had different protocols"
LOWER = ("Cross-entropy", "cross-entropy")  # within a sentence
NUM_IMAGES, OF_CIFAR = {"fmnist": 60_000, "imagenet100": 126_689, "digits": 898, "images": 8_144}, 50_000
VIEWS_PER_SECOND, OF_OTHERS = {"resnet18": 70e3, "resnet34": 42e3, "resnet50": 28e3, "resnet101": 16e3}, 10e3
"""On one H200 at 32 pixels, about; ImageNet's 224 pixels take 3.3 times as long."""

Rows = Sequence[Outcome]
Decided = tuple[str, str, Rows]
"""A verdict, the number behind it, and the rows that this number is from."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """An entry of results/claims.toml."""

    text: str
    source: str
    """Where the paper says it; `OURS` if it does not."""
    test: str
    """A key of `TESTS`,"""
    options: Mapping[str, Any] = field(default_factory=dict)
    """and its keyword arguments."""
    experiment: str
    """With KEY=VALUE after its name, if our runs have other settings."""
    rows: Sequence[str]
    """Titles of its rows. Differences: first − second, third − fourth.

    `TITLE @ EXPERIMENT` is a row of another one.
    """
    difference: str = ""
    """What is subtracted from what, if it is not the first two rows."""
    paper: float | None = None
    """The paper's number, or the paper's difference."""
    differs: str = ""
    """How our runs differ from the paper's."""
    columns: Sequence[str] = (TOP1,)
    seeds: int
    """How many seeds of each row are to be run."""
    runs: str = ""
    """What the seeds of a row stand for, if not for the same data each."""
    headline: str = ""
    """For the README."""


@dataclass(frozen=True)
class Finding:
    claim: Claim
    verdict: str
    number: str
    """With its interval, measure and seeds."""
    rows: Mapping[str, Outcome]
    minutes: float
    """Of one H200, for the runs that are missing."""

    @property
    def files(self) -> dict[str, tuple[Path, ...]]:
        """Of each row that has runs."""
        found = {text: tuple(Path(result["file"]) for result in row.results) for text, row in self.rows.items()}
        return {f"{self.claim.experiment.split()[0]}, {text}": paths for text, paths in found.items() if paths}

    @property
    def num_seeds(self) -> int:
        """Of the row that has the fewest."""
        return min(row.num_seeds for row in self.rows.values())


# Tests


def gaps_of(rows: Rows, column: str = TOP1) -> list[Spread]:
    """First − second row, third − fourth, and so on.

    Of fewer than three seeds, the interval is at least the one over the test images. Empty if a protocol changed.
    """
    gaps = []
    for upper, lower in _pairs(rows):
        gap = upper.difference(lower, column)
        if gap is None:
            return []
        if min(upper.num_seeds, lower.num_seeds) < FEW:
            scores = [each.scores(column)[0] for each in (upper, lower)]
            of_images = 1.96 * sqrt(
                sum(score["top1"] * (100 - score["top1"]) / score["num_images"] for score in scores)
            )
            gap = Spread(gap.mean, max(gap.half or 0.0, of_images))
        gaps.append(gap)
    return gaps


def _pairs(rows: Rows) -> list[tuple[Outcome, Outcome]]:
    return list(zip(rows[::2], rows[1::2], strict=True))


def judge(difference: Spread, paper: float | None = None) -> str:
    """Above 0, below 0 or below the paper's difference, or neither."""
    half = difference.half or 0.0
    if difference.mean - half > 0:
        return REPRODUCED
    return NOT if difference.mean + half < max(0.0, paper or 0.0) else OPEN


def above(claim: Claim, rows: Rows, sized: bool = False) -> Decided:
    """The first row of each pair is the higher one, by each comparable measure; partly if by some, or in some pairs.

    Of three and more independent pairs, the interval over the pairs counts, otherwise the weakest pair. `sized`: also
    partly if the interval lies below the paper's difference.
    """
    verdicts, texts = list[str](), list[str]()
    shown, which = rows, ""
    one_row = any(len({pair[side].row.title for pair in _pairs(rows)}) == 1 for side in (0, 1))
    for column in claim.columns:
        gaps = gaps_of(rows, column)
        if not gaps:
            texts.append(f"{measure(rows, column)} {INCOMPARABLE}")
            continue
        if len(gaps) > 1 and (len(gaps) < FEW or one_row):  # pairs that share a row are not independent
            pairs = zip(gaps, _pairs(rows), strict=True)
            total, weakest = min(pairs, key=lambda pair: pair[0].mean - (pair[0].half or 0))
            shown = weakest if shown in (rows, weakest) else rows  # another pair by another measure
            which = f", the smallest{_places(rows)}"
        else:
            total = Spread.of([gap.mean for gap in gaps]) if len(gaps) > 1 else gaps[0]
        verdict = judge(total, None if claim.differs else claim.paper)
        too_small = sized and total.mean + (total.half or 0) < (claim.paper or 0)
        partly = verdict == REPRODUCED and (too_small or min(gap.mean for gap in gaps) <= 0)
        verdicts.append(PARTLY if partly else verdict)
        texts.append(f"{measure(rows, column)} {total.signed}{'' if texts else ' points'}")
    verdict = verdicts[0] if len({*verdicts}) == 1 else PARTLY if REPRODUCED in verdicts else OPEN
    return verdict, f"{_difference(claim, shown)}: {', '.join(texts)}{which}", shown


def similar(claim: Claim, rows: Rows, margin: float = 0.5, one_sided: bool = False) -> Decided:
    """The difference of each pair is at most the margin; not if it is more and its interval excludes 0.

    one_sided: the first row of a pair may be far below the second.
    """
    gaps = gaps_of(rows)
    if not gaps:
        return OPEN, f"{measure(rows)} {INCOMPARABLE}", rows
    sizes = [gap.mean if one_sided else abs(gap.mean) for gap in gaps]
    pairs = zip(sizes, gaps, _pairs(rows), strict=True)
    size, total, shown = max(pairs, key=lambda pair: pair[0] + (pair[1].half or 0))
    half = total.half or 0.0
    verdict = REPRODUCED if size + half <= margin else NOT if size > max(half, margin) else OPEN
    which = f", the largest{_places(rows)}" if len(gaps) > 1 else ""
    return verdict, f"{_difference(claim, shown)}: {measure(shown)} {total.signed} points{which}", shown


def reaches(claim: Claim, rows: Rows) -> Decided:
    """At least the paper's accuracy, less half a point; partly if less one and a half."""
    column = claim.columns[0]
    found = rows[0].accuracy(column)
    assert found is not None
    lacking = (claim.paper or 0.0) - found.mean
    verdict = REPRODUCED if lacking <= 0.5 else PARTLY if lacking <= 1.5 else NOT
    return verdict, f"{measure(rows, column)} {found} %", rows


def larger_gain(claim: Claim, rows: Rows) -> Decided:
    """The first pair differs by more than the second."""
    if not (gaps := gaps_of(rows)):
        return OPEN, f"{measure(rows)} {INCOMPARABLE}", rows
    first, second = gaps
    half, num = sqrt((first.half or 0.0) ** 2 + (second.half or 0.0) ** 2), min(first.num, second.num)
    total = Spread(first.mean - second.mean, half, num=num)
    return judge(total), f"{_difference(claim, rows)}: {measure(rows)} {total.signed} points", rows


def upper_half(claim: Claim, rows: Rows) -> Decided:
    """The first row is at least the median of the others."""
    own, *others = [found.mean for each in rows if (found := each.accuracy(LINEAR)) is not None]
    place = 1 + sum(value > own for value in others)
    verdict = REPRODUCED if own >= median(others) else NOT
    number = f"{measure(rows[:1], LINEAR)} {own:.2f} %, rank {place} of {len(rows)}"
    return verdict, f"{number}; the median of the others is {median(others):.2f} %", rows


def response(claim: Claim, rows: Rows, *, key: str, low: float = 0.0, high: float = 1e9) -> Decided:
    """A mean gradient in percent of SupCon's on the same batches rises from row to row and ends between the bounds."""
    values = []
    for each in rows:
        own, supcon = each.mean_logged(key), each.mean_logged(f"supcon_{key}")
        if own is None or supcon is None:
            return OPEN, "the runs did not log gradients", rows
        values.append(100 * own / supcon)
    rises = all(a < b for a, b in pairwise(values))
    ends = low <= values[-1] <= high
    verdict = REPRODUCED if rises and ends else PARTLY if (rises and len(values) > 1) or values[-1] > values[0] else NOT
    last = f" and {values[-1]:.0f} % at {rows[-1].row.at}" if len(rows) > 1 else ""
    return verdict, f"{values[0]:.0f} % of SupCon's at {rows[0].row.at}{last}", rows


def holds(claim: Claim, rows: Rows) -> Decided:
    """Theorem 1 for hard positives, the quarter of the lowest similarity; partly if for most of them."""
    hard, share = rows[0].mean_logged("hard_theorem1_share"), rows[0].mean_logged("theorem1_share")
    if hard is None or share is None:
        return OPEN, "the runs did not log gradients of hard positives", rows
    text = f"larger for {100 * hard:.0f} % of the hard positives and {100 * share:.0f} % of all at {rows[0].row.at}"
    return REPRODUCED if hard > 0.999 else PARTLY if hard > 0.5 else NOT, text, rows


def _places(rows: Rows) -> str:
    """` among k1 = 10, 100 and 1000`, or ` among 12`"""
    uppers = [upper.row for upper, _ in _pairs(rows)]
    if len({row.at for row in uppers}) == 1:
        return f" among {len(uppers)}"
    values = [uppers[0].at, *(row.at.removeprefix(uppers[0].at.rpartition(" ")[0] + " ") for row in uppers[1:])]
    return f" among {', '.join(values[:-1])} and {values[-1]}"


def measure(rows: Rows, column: str = TOP1) -> str:
    """`full probe`, or `full probe against cross-entropy's classifier`."""
    names: dict[str, str] = {}
    for each in rows:
        for score in each.scores(column):
            measure = score["name"]
            name = RETRIEVAL[measure].title if measure in RETRIEVAL else MEASURES[measure].short_title
            names.setdefault(name, each.row.method.replace(*LOWER))
    first, *others = names
    return first + "".join(f" against {names[other]}'s {other}" for other in others)


def _difference(claim: Claim, rows: Rows) -> str:
    """`TCL − SupCon`, with their settings if these differ."""
    upper, lower = [each.row for each in rows[:2]]
    settings = [f" ({row.at})" if row.at and upper.at != lower.at else "" for row in (upper, lower)]
    names = [(row.method or row.title) + at for row, at in zip((upper, lower), settings, strict=True)]
    return claim.difference or " − ".join(names).replace(*LOWER)


TESTS: dict[str, Callable[..., Decided]] = {
    test.__name__: test for test in (above, similar, reaches, larger_gain, upper_half, response, holds)
}


# Findings


def read_claims(folder: Path) -> list[Claim]:
    """The claims in claims.toml, which lies with the results."""
    if not (path := folder / "claims.toml").is_file():
        raise UserError(f"{folder} has no claims.toml; name the folder of the results with --from")
    return [Claim(**row) for row in tomllib.loads(path.read_text(encoding="utf-8"))["claim"]]


def find_all(claims: Iterable[Claim], results: Results) -> list[Finding]:
    """A finding for each claim, from results as `plan.read_results` reads them."""

    @cache
    def outcomes_of(experiment: str) -> tuple[Experiment, dict[str, Outcome]]:
        name, *changes = experiment.split()
        planned = find_experiment(name, changes)
        return planned, {each.row.title: each for each in plan.collect(planned, results)}

    findings = []
    for claim in claims:
        rows, minutes = {}, 0.0
        for text in claim.rows:
            title, _, other = text.partition(" @ ")
            planned, by_title = outcomes_of(other or claim.experiment)
            row = by_title[title]
            if text not in rows:
                minutes += max(0, claim.seeds - row.num_seeds) * gpu_minutes(row.row.config(planned.overrides, 0))
            rows[text] = row
        verdict, number = OPEN, NOT_RUN
        if all(each.scores(column) for each in rows.values() for column in claim.columns):
            verdict, number, shown = TESTS[claim.test](claim, [rows[text] for text in claim.rows], **claim.options)
            number = f"{number} ({claim.runs or _seeds(shown)})"
        findings.append(Finding(claim, verdict, number, rows, minutes))
    return findings


def gpu_minutes(config: Config) -> float:
    """Roughly, of one run on one H200 with its probe."""
    views = config.optim.epochs * NUM_IMAGES.get(config.data.name, OF_CIFAR) * config.augment.views
    minutes = 1.1 * views / VIEWS_PER_SECOND.get(config.model.encoder, OF_OTHERS) / 60
    return 3.3 * minutes if config.data.name == "imagenet100" else minutes


def _seeds(rows: Rows) -> str:
    """`5 seeds each`, `5 TCL and 3 SINCERE seeds`, or `at least 1 seed each` of many."""
    counts = [each.num_seeds for each in rows]
    if len({*counts}) == 1:
        return f"{counts[0]} seed{'s' * (counts[0] > 1)}{' each' * (len(counts) > 1)}"
    if len(counts) > 2:
        return f"at least {min(counts)} seed{'s' * (min(counts) > 1)} each"
    names = [(each.row.method or each.row.title).replace(*LOWER) for each in rows]
    words = [f"{count} {name}" if len({*names}) == 2 else f"{count}" for count, name in zip(counts, names, strict=True)]
    return f"{words[0]} and {words[1]} seeds"


COLUMNS = ("claim", "source", "verdict", "our result", "how our setting differs", "missing, GPU min")


def table(findings: Sequence[Finding]) -> list[tuple[str, ...]]:
    """The claims in their order. What is open says which GPU time its missing runs need."""
    rows: list[tuple[str, ...]] = []
    for finding in findings:
        claim = finding.claim
        setting = claim.differs if finding.files else ""
        missing = f"{finding.minutes:.0f}" if finding.verdict == OPEN and finding.minutes >= 1 else ""
        rows.append((claim.text, claim.source, words_of(finding), finding.number, setting, missing))
    return rows


def words_of(finding: Finding) -> str:
    """The verdict, and whether it rests on one seed. A claim of our own is not reproduced: it holds."""
    word = OF_OURS[finding.verdict] if finding.claim.source == OURS else finding.verdict
    return f"{word} (1 seed)" if finding.verdict != OPEN and finding.num_seeds == 1 else word


def summary(findings: Sequence[Finding]) -> tuple[str, str]:
    """How many claims of the paper have which verdict, and how many of our own."""
    ours = [each for each in findings if each.claim.source == OURS]
    papers = [each for each in findings if each.claim.source != OURS]
    reproduced = [each for each in papers if each.verdict == REPRODUCED]
    single = sum(each.num_seeds == 1 for each in reproduced)
    elsewhere = sum(bool(each.claim.differs) for each in reproduced)
    counts = [[sum(each.verdict == name for each in some) for name in OF_OURS] for some in (papers, ours)]
    (num, partly, not_, open_), (hold, in_part, fail, undecided) = counts
    missing = [sum(each.number == NOT_RUN for each in some) for some in (papers, ours)]
    return (
        f"Of {len(papers)} claims of the paper, {num} are reproduced, {partly} partly, {not_} not; {open_} are open, "
        f"of which {missing[0]} are untested. Of the {num}, {single} rest on one seed, and {elsewhere} ran with "
        "other settings than the paper's.",
        f"Of {len(ours)} hypotheses of our own, {hold} hold, {in_part} hold in part and {fail} do not. The other "
        f"{undecided} are open, {missing[1]} of them untested.",
    )
