"""`contune experiment verdicts`: the claims of the paper, and what the result files say about each.

A claim is a row of data: a sentence, where the paper says it, the rows of an experiment whose runs decide it, and a
test. Verdict, number, interval and files follow from the runs. Every finished run at a setting counts. A difference
is decided if its 95 % interval excludes 0, or excludes the paper's gain. Of fewer than three runs, the interval is at
least that of two samples of the test images.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from math import nan, sqrt
from pathlib import Path
from statistics import mean, median

from contune.config import Config
from contune.eval.measures import FAST, KNN, LINEAR, TOP1
from contune.experiments import plan
from contune.experiments.catalogue import EXPERIMENTS
from contune.experiments.plan import Experiment, Outcome, Runs
from contune.recipes import ssl
from contune.report.statistics import Spread

REPRODUCED, PARTLY, NOT, OPEN = "reproduced", "partly", "not reproduced", "open"
NOT_RUN = "not run"
FEW = 3
"""Fewer runs of a row say too little about how runs differ."""
MEASURES = {"linear": "the full probe", "linear-fast": "the fast probe", "classifier": "the classifier", "knn": "kNN"}
NUM_IMAGES = {"cifar10": 50_000, "cifar100": 50_000, "fmnist": 60_000, "imagenet100": 126_689, "digits": 898}
VIEWS_PER_SECOND = {"resnet18": 70e3, "resnet34": 42e3, "resnet50": 28e3, "resnet101": 16e3, "resnet-mini": 5e3}
"""On one H200 at 32 pixels, about; ImageNet's 224 pixels take 3.3 times as long."""

Rows = Sequence[Outcome]
Decided = tuple[str, str]
"""A verdict and the number behind it."""


@dataclass(frozen=True)
class Claim:
    text: str
    source: str
    """Where the paper says it; ours: where it does not."""
    test: Callable[["Claim", Rows], Decided]
    experiment: str
    """With KEY=VALUE after its name, if our runs have other settings."""
    rows: tuple[str, ...]
    """Titles of its rows; `TITLE @ EXPERIMENT` is a row of another one. Differences: first − second, third − fourth."""
    paper: float | None = None
    """The paper's number, or the paper's difference."""
    differs: str = ""
    """How our runs differ from the paper's."""
    columns: tuple[str, ...] = (TOP1,)
    seeds: int = 3
    """How many seeds of each row are to be run."""
    headline: str = ""
    """For the README."""


@dataclass(frozen=True)
class Finding:
    claim: Claim
    verdict: str
    number: str
    """With its interval, measure and seeds."""
    files: dict[str, tuple[Path, ...]]
    """Of each row that has runs."""
    minutes: float
    """Of one H200, for the runs that are missing."""

    @property
    def sentence(self) -> str:
        differs = f" Ours: {self.claim.differs}." if self.claim.differs else ""
        verdict = "partly reproduced" if self.verdict == PARTLY else self.verdict
        return f"**{verdict.capitalize()}:** {self.claim.text} {self.number[0].upper()}{self.number[1:]}.{differs}"


# Tests


def gaps_of(rows: Rows, column: str = TOP1) -> tuple[Spread | None, list[float]]:
    """The difference of the pairs with its interval, and the difference of each pair.

    Of several pairs: the interval over the pairs. If they share their second row, all runs of the first rows together
    are compared with it. Of fewer than three runs: at least the interval over the test images.
    """
    uppers, lowers = list(rows[::2]), list(rows[1::2])
    means = [_mean(upper, column) - _mean(lower, column) for upper, lower in zip(uppers, lowers, strict=True)]
    if len(uppers) > 1 and len({each.row.title for each in lowers}) == 1:
        uppers = [replace(uppers[0], results=tuple(result for each in uppers for result in each.results))]
    found = [upper.difference(lower, column) for upper, lower in zip(uppers, lowers, strict=False)]
    spreads = [Spread(each.mean, each.half) for each in found if each is not None]
    total = Spread.of([each.mean for each in spreads]) if len(spreads) > 1 else spreads[0] if spreads else None
    if total is not None and len(spreads) == 1 and min(len(uppers[0].results), len(lowers[0].results)) < FEW:
        total = Spread(total.mean, max(total.half or 0.0, _of_images([uppers[0], lowers[0]], column)))
    return total, means


def _mean(outcome: Outcome, column: str) -> float:
    found = outcome.accuracy(column)
    return nan if found is None else found.mean


def _of_images(rows: Rows, column: str) -> float:
    """Half of the 95 % interval of one run of each row, as samples of the test images."""
    scores = [each.scores(column)[0][1] for each in rows]
    return 1.96 * sqrt(sum(score["top1"] * (100 - score["top1"]) / score["num_images"] for score in scores))


def judge(difference: Spread, paper: float | None = None) -> str:
    """Above 0, below 0 or below the paper's difference, or neither."""
    half = difference.half or 0.0
    if difference.mean - half > 0:
        return REPRODUCED
    return NOT if difference.mean + half < max(0.0, paper or 0.0) else OPEN


def above(claim: Claim, rows: Rows) -> Decided:
    """The first row of each pair is the higher one, by each measure; partly if by some, or in some pairs."""
    verdicts, texts = [], []
    for column in claim.columns:
        total, means = gaps_of(rows, column)
        if total is None:
            return OPEN, "no seeds in common"
        verdict = judge(total, None if claim.differs else claim.paper)
        verdicts.append(PARTLY if verdict == REPRODUCED and min(means) <= 0 else verdict)
        texts.append(f"{signed(total)}{'' if texts else ' points'} by {_measure(rows, column)}")
    return verdicts[0] if len({*verdicts}) == 1 else PARTLY if REPRODUCED in verdicts else OPEN, "; ".join(texts)


def similar(claim: Claim, rows: Rows, margin: float = 0.5) -> Decided:
    """The difference is at most the margin; not if it is more than the margin and its interval excludes 0."""
    total, _ = gaps_of(rows)
    if total is None:
        return OPEN, "no seeds in common"
    size, half = abs(total.mean), total.half or 0.0
    verdict = REPRODUCED if size + half <= margin else NOT if size > max(half, margin) else OPEN
    return verdict, f"{signed(total)} points by {_measure(rows)}"


def same_engine(claim: Claim, rows: Rows) -> Decided:
    """Runs with torch's batch norm (engines graph and eager) and with contune's differ by at most 0.3 points."""
    is_torchs = [result["config"]["run"]["engine"] in ("graph", "eager") for result in rows[0].results]
    torchs, ours = (
        replace(
            rows[0], results=tuple(r for r, it_is in zip(rows[0].results, is_torchs, strict=True) if it_is == wanted)
        )
        for wanted in (True, False)
    )
    return similar(claim, [ours, torchs], margin=0.3) if torchs.results and ours.results else (OPEN, "one engine")


def reaches(claim: Claim, rows: Rows) -> Decided:
    """At least the paper's accuracy, less half a point; partly if less one and a half."""
    column = claim.columns[0]
    found = rows[0].accuracy(column)
    assert found is not None
    half = _of_images(rows, column) if found.half is None else found.half
    lacking = (claim.paper or 0.0) - found.mean
    verdict = REPRODUCED if lacking <= 0.5 else PARTLY if lacking <= 1.5 else NOT
    return verdict, f"{Spread(found.mean, half)} % by {_measure(rows, column)}"


def larger_gain(claim: Claim, rows: Rows) -> Decided:
    """The first pair differs by more than the second."""
    (first, _), (second, _) = gaps_of(rows[:2]), gaps_of(rows[2:])
    if first is None or second is None:
        return OPEN, "no seeds in common"
    total = Spread(first.mean - second.mean, sqrt((first.half or 0.0) ** 2 + (second.half or 0.0) ** 2))
    return judge(total), f"{signed(total)} points by {_measure(rows)}"


def at_the_ends(claim: Claim, rows: Rows) -> Decided:
    """The first row is the lowest, the last one the highest."""
    values = [found.mean for each in rows if (found := each.accuracy()) is not None]
    hits = (values[0] == min(values)) + (values[-1] == max(values))
    return (NOT, PARTLY, REPRODUCED)[hits], f"{values[0]:.2f} % and {values[-1]:.2f} % by {_measure(rows)}"


def upper_half(claim: Claim, rows: Rows) -> Decided:
    """The first row is at least the median of the others."""
    own, *others = [found.mean for each in rows if (found := each.accuracy(LINEAR)) is not None]
    place = 1 + sum(value > own for value in others)
    verdict = REPRODUCED if own >= median(others) else NOT
    return verdict, f"place {place} of {len(rows)} with {own:.2f} % by {_measure(rows[:1], LINEAR)}"


def response(claim: Claim, rows: Rows, *, key: str, low: float = 0.0, high: float = 1e9) -> Decided:
    """A mean gradient in percent of SupCon's on the same batches rises from row to row and ends between the bounds."""
    values = []
    for each in rows:
        own, supcon = each.curve(key), each.curve(f"supcon_{key}")
        if own is None or supcon is None:
            return OPEN, "the runs did not log gradients"
        values.append(100 * mean(v for v in own[1] if v == v) / mean(v for v in supcon[1] if v == v))
    rises = all(a < b for a, b in pairwise(values))
    ends = low <= values[-1] <= high
    verdict = REPRODUCED if rises and ends else PARTLY if (rises and len(values) > 1) or values[-1] > values[0] else NOT
    return verdict, " to ".join(f"{value:.0f} %" for value in values[:1] + values[1:][-1:]) + " of SupCon's"


def holds(claim: Claim, rows: Rows) -> Decided:
    """Theorem 1 holds for all positives; partly for most."""
    shares = [mean(v for v in found[1] if v == v) for each in rows if (found := each.curve("theorem1_share"))]
    if not shares:
        return OPEN, "the runs did not log gradients"
    share = 100 * mean(shares)
    return REPRODUCED if share > 99.9 else PARTLY if share > 50 else NOT, f"for {share:.0f} % of all positives"


def _measure(rows: Rows, column: str = TOP1) -> str:
    names = dict.fromkeys(MEASURES[score["name"]] for each in rows for _, score in each.scores(column))
    return "each method's own measure" if len(names) > 1 else next(iter(names))


def signed(spread: Spread) -> str:
    half = "" if spread.half is None else f" ± {spread.half:.2f}"
    return f"{spread.mean:+.2f}{half}".replace("-", "−")


# Claims

R18 = "model.encoder=resnet18"
FIGURE_3 = f"{R18} optim.batch_images=128 optim.lr=0.2"
R18_256 = "ResNet-18, batch 256"
SMALL = "ResNet-18"
SHORT = "100 epochs"
PULL, PUSH = "positive_gradient", "negative_gradient"


def _both(*places: str) -> tuple[str, ...]:
    """TCL and SupCon at each place."""
    return tuple(f"{method}, {place}" for place in places for method in ("TCL", "SupCon"))


def _k1(*values: int) -> tuple[str, ...]:
    return tuple(f"TCL, k1 = {value}" for value in values)


def _table_1() -> list[Claim]:
    """Tables 1 and 3: TCL against SupCon and cross-entropy on four data sets."""
    gains = {"CIFAR-10": (0.1, 0.1), "CIFAR-100": (0.7, 0.6), "Fashion-MNIST": (0.2, 0.2), "ImageNet-100": (0.8, 0.6)}
    entropy = {"CIFAR-10": 1.4, "CIFAR-100": 4.5, "Fashion-MNIST": 1.2, "ImageNet-100": 2.5}
    claims = []
    for data, (gain, long_gain) in gains.items():
        large = data in ("CIFAR-100", "ImageNet-100")
        setting, differs = ("table1", "") if large else (f"table1 {R18}", SMALL)
        seeds = 5 if data == "CIFAR-100" else 3
        headline = "Against SupCon, ResNet-50" if data == "CIFAR-100" else ""
        claims += [
            Claim(f"TCL beats SupCon on {data}.", "table 1", above, setting, _both(data), gain, differs, seeds=seeds,
                  headline=headline),
            Claim(f"TCL beats SupCon on {data} in 250 epochs.", "table 3", above, "table1-250", _both(data), long_gain),
        ]  # fmt: skip
        if data != "CIFAR-100":
            pair = (f"TCL, {data}", f"Cross-entropy, {data}")
            claims.append(
                Claim(f"TCL beats cross-entropy on {data}.", "table 1", above, setting, pair, entropy[data], differs)
            )
    return claims


CLAIMS = [
    *_table_1(),
    Claim("TCL beats SupCon with a ResNet-18.", "figure 2b", above, "ci", ("TCL", "SupCon"), None, "batch 256",
          seeds=10, headline="Against SupCon, ResNet-18"),
    Claim("TCL beats cross-entropy on CIFAR-100.", "table 1", above, "ci", ("TCL", "Cross-entropy"), None, SMALL,
          (TOP1, KNN, FAST), 5, headline="Against cross-entropy, ResNet-18"),
    Claim("SupCon beats cross-entropy.", "section 2", above, "ci", ("SupCon", "Cross-entropy"), None, SMALL,
          (TOP1, KNN, FAST), 5),
    Claim("SupCon, tuned, reaches 79.1 % on CIFAR-100, 2.6 points above its own paper.", "section 4.1", reaches,
          "table1", ("SupCon, CIFAR-100",), 79.1, seeds=1),
    Claim("SupCon, tuned, reaches 96.3 % on CIFAR-10, 0.3 points above its own paper.", "section 4.1", reaches,
          "table1", ("SupCon, CIFAR-10",), 96.3, seeds=1),
    Claim("TCL reaches 79.8 % on CIFAR-100.", "table 1", reaches, "table1", ("TCL, CIFAR-100",), 79.8, seeds=1),
    Claim("TCL with labels reaches 77.5 % on CIFAR-100 with a ResNet-18.", "table 2", reaches, "ci", ("TCL",), 77.5),
    Claim("TCL with labels reaches 95.8 % on CIFAR-10 with a ResNet-18.", "table 2", reaches, f"table1 {R18}",
          ("TCL, CIFAR-10",), 95.8, seeds=1),
    Claim("TCL beats SupCon over 30 runs, by 0.93 points.", "appendix B.1", above, "fig-encoder", _both("ResNet-50"),
          0.93, seeds=10),
    Claim("250 epochs do not help on Fashion-MNIST.", "appendix B.1", similar, f"table1-250 {R18}",
          ("TCL, Fashion-MNIST", f"TCL, Fashion-MNIST @ table1 {R18}"), differs=SMALL),
    Claim("TCL beats SupCon at every batch size from 32 to 1024.", "figure 2a", above, f"fig-batch {R18}",
          _both("32", "64", "128", "256", "512", "1024"), differs=SMALL, seeds=1),
    Claim("TCL beats SupCon with every encoder from ResNet-18 to ResNet-101.", "figure 2b", above, "fig-encoder",
          _both("ResNet-18", "ResNet-34", "ResNet-50", "ResNet-101"), seeds=1),
    Claim("TCL beats SupCon on ImageNet-100 with a ResNet-34.", "section 4.2.1", above, "fig-encoder",
          _both("ResNet-34 on ImageNet-100"), 0.7),
    Claim("TCL beats SupCon at every size of the embedding.", "figure 2c", above, f"fig-projector {R18}",
          _both("64", "128", "256", "512", "1024", "2048"), differs=SMALL, seeds=1),
    Claim("TCL gains 1.2 points over SupCon with embeddings of 2048.", "section 4.2.3", above, f"fig-projector {R18}",
          _both("2048"), 1.2, SMALL),
    Claim("Embeddings of 64 are worst and of 2048 best.", "section 4.2.3", at_the_ends, f"fig-projector {R18}",
          tuple(f"TCL, {size}" for size in (64, 128, 256, 512, 1024, 2048)), differs=SMALL, seeds=1),
    Claim("TCL beats SupCon under AutoAugment and SimAugment.", "figure 2d", above, f"fig-augment {R18}",
          _both("AutoAugment", "SimAugment"), differs=SMALL, seeds=1),
    Claim("The gain is larger under AutoAugment, the stronger augmentation.", "section 4.2.4", larger_gain,
          f"fig-augment {R18}", _both("AutoAugment", "SimAugment"), differs=SMALL, seeds=1),
    Claim("The gradient from a hard positive is larger than SupCon's.", "theorem 1", holds, f"fig-k1 {FIGURE_3}",
          _k1(4000), differs=R18_256, seeds=1),
    Claim("Raising k1 raises the gradient from positives.", "figure 3a", partial(response, key=PULL),
          f"fig-k1 {FIGURE_3}", _k1(10, 100, 1000, 2000, 4000, 8000, 20000, 50000), differs=R18_256, seeds=1),
    Claim("Small values of k1 leave the accuracy of SupCon.", "figure 3b", similar, f"fig-k1 {FIGURE_3}",
          tuple(title for row in _k1(10, 100, 1000) for title in (row, "SupCon")), differs=R18_256),
    Claim("Every k1 below 5000 beats SupCon.", "section 4.4", above, f"fig-k1 {FIGURE_3}",
          tuple(title for row in _k1(10, 100, 1000, 2000, 4000) for title in (row, "SupCon")), differs=R18_256),
    Claim("Accuracy peaks at a k1 of thousands and drops at 50,000.", "figure 3b", above, f"fig-k1 {FIGURE_3}",
          _k1(4000, 50000), 4.4, R18_256),
    Claim("k1 = 50,000 scores below SupCon.", "section 4.4", above, f"fig-k1 {FIGURE_3}",
          ("SupCon", "TCL, k1 = 50000"), differs=R18_256),
    Claim("k1 = 4000 or 5000 works on all data sets.", "section 4.4", above, "fig-k1-digits",
          ("TCL, k1 = 5000", "SupCon"), differs="handwritten digits, 20 epochs"),
    Claim("At k1 = 50,000 the gradient from negatives lags behind SupCon's.", "figure 3c",
          partial(response, key=PUSH, high=95), f"fig-k2 {FIGURE_3}", ("TCL, k1 = 50000, k2 = 1",), differs=R18_256,
          seeds=1),
    Claim("Raising k2 raises the gradient from negatives.", "theorem 2", partial(response, key=PUSH),
          f"fig-k2 {FIGURE_3}", ("TCL, k1 = 50000, k2 = 1", "TCL, k1 = 50000, k2 = 3"), differs=R18_256, seeds=1),
    Claim("With k2 = 3 the gap to SupCon's gradient from negatives vanishes.", "figure 3d",
          partial(response, key=PUSH, low=95), f"fig-k2 {FIGURE_3}",
          ("TCL, k1 = 50000, k2 = 1", "TCL, k1 = 50000, k2 = 3"), differs=R18_256, seeds=1),
    Claim("At k1 = 50,000, k2 = 3 restores the accuracy.", "section 4.4", above, f"fig-k2 {FIGURE_3}",
          ("TCL, k1 = 50000, k2 = 3", "TCL, k1 = 50000, k2 = 1"), 4.4, R18_256),
    Claim("Without labels TCL reaches 66.7 % on CIFAR-100.", "table 2", reaches, "ssl-cifar100 optim.epochs=1000",
          ("TCL on positive triplets",), 66.7, columns=(LINEAR,), seeds=1),
    Claim("Without labels TCL reaches 91.6 % on CIFAR-10.", "table 2", reaches, "ssl-cifar10 optim.epochs=1000",
          ("TCL on positive triplets",), 91.6, columns=(LINEAR,), seeds=1),
    *(Claim(f"Without labels TCL beats SimCLR on {data}.", "table 2", above, experiment,
            ("TCL on positive triplets", "SimCLR"), gain, differs)
      for data, experiment, gain, differs in (
          ("CIFAR-100", "ssl-cifar100", 1.2, SHORT), ("CIFAR-10", "ssl-cifar10", 0.9, SHORT),
          ("ImageNet-100", "ssl-imagenet100", 0.4, ""))),
    Claim("The loss, not only the third view, beats SimCLR.", "ours", above, "ssl-views",
          ("TCL, 3 views", "SimCLR, 3 views")),
    Claim("Positive triplets beat positive pairs.", "section 3.2", above, "ssl-views",
          ("TCL, 3 views", "TCL, 2 views")),
    Claim("Without labels k2 = 1.5 beats k2 = 1.", "section 4.4", above, "ssl-views",
          ("TCL, 3 views", "TCL, 3 views, k2 = 1")),
    Claim("Without labels a large k1 does not help much.", "section 4.4", similar, "ssl-views",
          ("TCL, 3 views, k1 = 5000", "TCL, 3 views")),
    Claim("Without labels TCL is on par with the other methods.", "table 2", upper_half, "ssl-cifar100",
          ("TCL on positive triplets", *(row.title for name, row in ssl.ROWS.items() if name != "tcl-ssl")), None,
          SHORT, seeds=1),
    Claim("ARB and Barlow Twins need large heads.", "table 2", above, "ssl-projector",
          ("ARB, 2048", "ARB, 256", "Barlow Twins, 2048", "Barlow Twins, 256"), 6.35, columns=(LINEAR,), seeds=1),
    Claim("Automatic k1 and k2 match values chosen by hand on CIFAR-100.", "ours", partial(similar, margin=0.3),
          "losses", ("TCL auto", "TCL, k1 = 4000"), seeds=5),
    Claim("Automatic k1 and k2 match values chosen by hand on digits.", "ours", partial(similar, margin=0.3),
          "losses-digits", ("TCL auto", "TCL, k1 = 500"), seeds=5),
    Claim("The training engine does not change TCL's accuracy (contune's batch norm against torch's).", "ours",
          same_engine, "ci", ("TCL",), seeds=5),
    Claim("TCL auto beats SupCon on CIFAR-100.", "ours", above, "losses", ("TCL auto", "SupCon"), seeds=10,
          headline="TCL auto against SupCon, ResNet-18"),
    Claim("TCL auto beats SINCERE on CIFAR-100.", "ours", above, "losses", ("TCL auto", "SINCERE"), seeds=10),
]  # fmt: skip


# Findings


def find_all(results: Mapping[str, Runs]) -> list[Finding]:
    """A finding for each claim, from results as `plan.read_results` reads them."""

    @cache
    def outcomes_of(experiment: str) -> tuple[Experiment, dict[str, Outcome]]:
        name, *changes = experiment.split()
        planned = EXPERIMENTS[name].changed(changes)
        found = plan.collect(planned, Path(), known=plan.match(planned, results))
        return planned, {each.row.title: each for each in found}

    findings = []
    for claim in CLAIMS:
        rows = []
        for text in claim.rows:
            title, _, other = text.partition(" @ ")
            planned, by_title = outcomes_of(other or claim.experiment)
            rows.append(by_title[title])
        unique = dict(zip(claim.rows, rows, strict=True)).values()
        missing = [each for each in unique for _ in range(claim.seeds - len(each.by_seed(claim.columns[0])))]
        verdict, number = OPEN, NOT_RUN
        if all(each.results for each in rows):
            verdict, number = claim.test(claim, rows)
            number = f"{number} ({_seeds(list(unique))})"
        files = {
            f"{claim.experiment.split()[0]}, {each.row.title}": tuple(Path(result["file"]) for result in each.results)
            for each in unique
            if each.results
        }
        minutes = sum(gpu_minutes(each.row.config(planned.overrides, 0)) for each in missing)
        findings.append(Finding(claim, verdict, number, files, minutes))
    return findings


def gpu_minutes(config: Config) -> float:
    """Roughly, of one run on one H200 with its probe."""
    views = config.optim.epochs * NUM_IMAGES[config.data.name] * config.augment.views
    slower = 3.3 if config.data.name == "imagenet100" else 1.0
    return 1.1 * views * slower / VIEWS_PER_SECOND[config.model.encoder] / 60


def _seeds(rows: Rows) -> str:
    """`5 seeds`, or `15 and 7 runs` if rows have different seeds or several runs of one."""
    counts = [len(each.results) for each in rows]
    if len({*counts}) == 1 and all(len(each.by_seed()) == counts[0] for each in rows):
        return f"{counts[0]} seed{'s' * (counts[0] > 1)}"
    return f"{min(counts)} to {max(counts)} runs each" if len(rows) > 2 else f"{' and '.join(map(str, counts))} runs"


COLUMNS = ("claim", "paper", "verdict", "our runs")


def table(findings: Sequence[Finding]) -> list[tuple[str, ...]]:
    """The claims in their order. What is open says which GPU time its missing runs need."""
    rows: list[tuple[str, ...]] = []
    for finding in findings:
        claim, text = finding.claim, finding.number
        if claim.differs and finding.files:
            text += f"; {claim.differs}"
        if finding.verdict == OPEN and finding.minutes >= 1:
            text += f"; {finding.minutes:.0f} GPU minutes are missing"
        rows.append((claim.text, claim.source, finding.verdict, text))
    return rows


def summary(findings: Sequence[Finding]) -> str:
    verdicts = [finding.verdict for finding in findings]
    counts = ", ".join(f"{verdicts.count(name)} {name}" for name in (REPRODUCED, PARTLY, NOT, OPEN))
    return f"Of {len(findings)} claims: {counts}."
