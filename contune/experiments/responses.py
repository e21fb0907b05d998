"""The table of settings of k1 and k2: accuracy, and the mean gradient from positives and negatives over training.

Runs with other settings are in other states of training. What k1 and k2 do by themselves is what is between the
gradient of a run and SupCon's on the same batches, which every run logs.
"""

from collections.abc import Sequence
from math import isnan

from contune.experiments.curve import curve
from contune.experiments.facts import NOTHING, notes
from contune.experiments.grid import accuracy_cell, difference_text, reported, reported_cell
from contune.experiments.outcome import TOP1, Outcome
from contune.experiments.plan import PAPER
from contune.experiments.style import SUPCON
from contune.experiments.table import Cell, Table

POSITIVE, NEGATIVE, SHARE = "positive_gradient", "negative_gradient", "theorem1_share"
GRADIENTS = {POSITIVE: "from positives", NEGATIVE: "from negatives"}
BESIDE = f"{SUPCON}'s there"


def responses(title: str, outcomes: Sequence[Outcome], findings: Sequence[str] = ()) -> Table:
    """A line for each setting, SupCon first."""
    supcon = next((each for each in outcomes if each.row.series == SUPCON), None)
    quoted = [PAPER] if any(reported(each) for each in outcomes) else []
    logged = [key for key in GRADIENTS if any(curve(each, key) for each in outcomes)]
    with_share = ["theorem 1 holds, %"] if any(curve(each, SHARE) for each in outcomes) else []
    gradients = [title for key in logged for title in (GRADIENTS[key], BESIDE)]
    columns = ("top-1 %", f"over {SUPCON}", *quoted, *gradients, *with_share)
    lines = []
    for each in outcomes:
        cells = [accuracy_cell(each, outcomes), Cell(NOTHING if each is supcon else difference_text(each, supcon))]
        cells += [reported_cell(each)] if quoted else []
        cells += [Cell(text) for key in logged for text in (_mean(each, key), _of_supcon(each, supcon, key))]
        cells += [Cell(_mean(each, SHARE, scale=100, digits=3))] if with_share else []
        lines.append((Cell(each.row.title), *cells))
    return Table(
        title=title,
        columns=("loss", *columns),
        groups=(tuple(lines),),
        numbers=columns,
        findings=tuple(findings),
        notes=(*notes(outcomes, (TOP1,)), *_explanations(logged, bool(with_share))),
    )


def _mean(outcome: Outcome, key: str, *, scale: float = 1.0, digits: int = 3) -> str:
    found = curve(outcome, key)
    return NOTHING if found is None or isnan(found.mean) else f"{scale * found.mean:.{digits}g}"


def _of_supcon(outcome: Outcome, supcon: Outcome | None, key: str) -> str:
    """On the same batches; its own run has nothing to compare."""
    return NOTHING if outcome is supcon else _mean(outcome, f"supcon_{key}")


def _explanations(logged: Sequence[str], with_share: bool) -> list[str]:
    found = []
    if logged:
        found.append(
            "from positives, from negatives: the mean gradient response of an anchor to its positives (equation 16) "
            "and its negatives (lemmas 1 and 2), averaged over the batch and over all of training."
        )
        found.append(
            f"{BESIDE}: what {SUPCON}'s formula gives on the batches of that run. What is between the two is k1's and "
            "k2's own doing; the rest of a difference between runs is how far each has learnt."
        )
    if with_share:
        found.append(
            "theorem 1 holds: the share of positive pairs on which TCL's is larger than SupCon's on the same batch."
        )
    return found
