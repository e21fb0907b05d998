"""The paper's figure 3: what k1 and k2 do to the gradients from positives and negatives, and to the accuracy."""

from collections.abc import Sequence

from contune.experiments.claims import claims_of_k1, claims_of_k2
from contune.experiments.experiment import Experiment
from contune.experiments.k1_figure import k1_figure
from contune.experiments.k2_figure import k2_figure
from contune.experiments.outcome import Outcome
from contune.experiments.plan import PAPER, Row
from contune.experiments.responses import responses
from contune.experiments.style import SUPCON, TCL
from contune.experiments.table import Table
from contune.recipes.reported import K1_50000

K1 = (10, 100, 1000, 2000, 4000, 8000, 20000, 50000)
"""The paper does not name its values; these go from none of an effect to too much, about those that it recommends."""
K1_DIGITS = (10, 100, 500, 2000, 5000)


def k1() -> Experiment:
    """Figure 3a, b: gradients from positives over training, and accuracy, by k1; CIFAR-100, ResNet-50."""
    paper = {50000: K1_50000[1]}
    return Experiment(
        title="What k1 does, CIFAR-100",
        rows=(_supcon("cifar100"), *(_k1("cifar100-tcl", value, paper.get(value)) for value in K1)),
        make_table=_k1_table,
        make_figure=k1_figure,
        notes=("The paper draws this curve and prints one of its numbers (section 4.4).",),
    )


def k1_digits() -> Experiment:
    """Figure 3a, b, small: gradients from positives and accuracy by k1, handwritten digits; a CPU, three minutes."""
    return Experiment(
        title="What k1 does, handwritten digits",
        rows=(_supcon("digits"), *(_k1("digits", value) for value in K1_DIGITS)),
        make_table=_k1_table,
        make_figure=k1_figure,
    )


def k2() -> Experiment:
    """Figure 3c, d: gradients from negatives at k1 = 50000 with k2 = 1 and 3; CIFAR-100, ResNet-50."""
    return Experiment(
        title="What k2 gives back when k1 is too large, CIFAR-100",
        rows=(_supcon("cifar100"), *(_k2("cifar100-tcl", 50000, value, K1_50000[value]) for value in (1, 3))),
        make_table=_k2_table,
        make_figure=k2_figure,
    )


def k2_digits() -> Experiment:
    """Figure 3c, d, small: gradients from negatives at k1 = 5000 with k2 = 1 and 3, digits; a CPU, two minutes."""
    return Experiment(
        title="What k2 gives back when k1 is too large, handwritten digits",
        rows=(_supcon("digits"), *(_k2("digits", 5000, value) for value in (1, 3))),
        make_table=_k2_table,
        make_figure=k2_figure,
    )


def _k1_table(title: str, outcomes: Sequence[Outcome]) -> Table:
    return responses(title, outcomes, claims_of_k1(outcomes))


def _k2_table(title: str, outcomes: Sequence[Outcome]) -> Table:
    return responses(title, outcomes, claims_of_k2(outcomes))


def _supcon(data: str) -> Row:
    return Row(title=SUPCON, recipe=f"{data}-supcon", name="supcon", series=SUPCON)


def _k1(recipe: str, value: int, paper: float | None = None) -> Row:
    beside = {} if paper is None else {PAPER: paper}
    return Row(
        title=f"{TCL}, k1 = {value:,}", recipe=recipe, overrides=(f"method.k1={value}",), name=f"tcl-k1-{value}",
        series=TCL, at=str(value), beside=beside,
    )  # fmt: skip


def _k2(recipe: str, k1: int, k2: int, paper: float | None = None) -> Row:
    beside = {} if paper is None else {PAPER: paper}
    return Row(
        title=f"{TCL}, k1 = {k1:,}, k2 = {k2}", recipe=recipe, overrides=(f"method.k1={k1}", f"method.k2={k2}"),
        name=f"tcl-k1-{k1}-k2-{k2}", series=TCL, at=str(k2), beside=beside,
    )  # fmt: skip
