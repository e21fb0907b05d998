"""The paper's table 1 and its form of 250 epochs: methods with labels on four data sets."""

from collections.abc import Mapping, Sequence

from contune.experiments.experiment import Experiment
from contune.experiments.grid import grid
from contune.experiments.panels import panels
from contune.experiments.plan import Row, point
from contune.experiments.style import CROSS_ENTROPY, SUPCON, TCL
from contune.recipes.reported import TABLE_1, TABLE_3

DATA = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "fmnist": "Fashion-MNIST", "imagenet100": "ImageNet-100"}
METHODS = {"cross-entropy": CROSS_ENTROPY, "supcon": SUPCON, "tcl": TCL}
SHORT = {"cross-entropy": "ce"}
"""Where the name of a recipe has another word for it."""


def table1() -> Experiment:
    """Table 1: cross-entropy, SupCon and TCL on four data sets, 150 epochs; data.path=FOLDER with what you have."""
    return Experiment(
        title="Cross-entropy, SupCon and TCL, 150 epochs",
        rows=_rows(TABLE_1, ""),
        make_table=grid,
        make_figure=panels,
    )


def table1_250() -> Experiment:
    """Table 3, the appendix's: SupCon and TCL on four data sets, 250 epochs; data.path=FOLDER with what you have."""
    return Experiment(
        title="SupCon and TCL, 250 epochs",
        rows=_rows(TABLE_3, "-250"),
        make_table=grid,
        make_figure=panels,
    )


def digits() -> Experiment:
    """Table 1, small: the three losses on handwritten digits and on a fifth of them; a CPU, two minutes."""
    return Experiment(
        title="Cross-entropy, SupCon and TCL on handwritten digits",
        rows=_digits_rows((CROSS_ENTROPY, SUPCON, TCL), epochs=20),
        make_table=grid,
        make_figure=panels,
    )


def digits_250() -> Experiment:
    """Table 3, small: SupCon and TCL on the same digits for twice as many epochs; a CPU, two minutes."""
    return Experiment(
        title="SupCon and TCL on handwritten digits, twice the epochs",
        rows=_digits_rows((SUPCON, TCL), epochs=40),
        make_table=grid,
        make_figure=panels,
    )


def _digits_rows(methods: Sequence[str], epochs: int) -> tuple[Row, ...]:
    recipes = {CROSS_ENTROPY: "digits-ce", SUPCON: "digits-supcon", TCL: "digits"}
    few, longer = ("data.val_fraction=0.8",), (f"optim.epochs={2 * epochs}",)
    return tuple(
        point(method, place, recipes[method], *settings, adapted=adapted)
        for place, settings, adapted in (
            ("898 digits", (), (f"optim.epochs={epochs}",)),
            ("a fifth of them", few, longer),
        )
        for method in methods
    )


def _rows(table: Mapping[str, Mapping[str, float]], suffix: str) -> tuple[Row, ...]:
    return tuple(
        point(METHODS[name], DATA[data], f"{data}-{SHORT.get(name, name)}{suffix}", paper=top1)
        for data, numbers in table.items()
        for name, top1 in numbers.items()
    )
