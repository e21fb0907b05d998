"""How sure the order of the three losses is: many seeds of each, as in appendix B.1."""

from contune.experiments.experiment import Experiment
from contune.experiments.plan import PAPER, Row
from contune.experiments.repeated import repeated
from contune.experiments.strips import strips
from contune.experiments.style import CROSS_ENTROPY, SUPCON, TCL
from contune.recipes.reported import INTERVALS

NUM_SEEDS = 5


def ci() -> Experiment:
    """Five seeds of cross-entropy, SupCon and TCL, CIFAR-100, ResNet-18: intervals and paired tests (paper: 30)."""
    return Experiment(
        title="Cross-entropy, SupCon and TCL over seeds, CIFAR-100",
        rows=(
            _row(CROSS_ENTROPY, "cifar100-ce"),
            _row(SUPCON, "cifar100-supcon", paper="supcon"),
            _row(TCL, "cifar100-tcl", paper="tcl"),
        ),
        overrides=("model.encoder=resnet18",),
        num_seeds=NUM_SEEDS,
        make_table=repeated,
        make_figure=strips,
        notes=(
            "The paper's are 30 runs each in batches of 128 views, ours have 256. The encoder that appendix B.1 names "
            "for all is ResNet-50.",
        ),
    )


def digits() -> Experiment:
    """The same over five seeds on handwritten digits: intervals and paired tests; a CPU, four minutes."""
    return Experiment(
        title="Cross-entropy, SupCon and TCL over seeds, handwritten digits",
        rows=(_row(CROSS_ENTROPY, "digits-ce"), _row(SUPCON, "digits-supcon"), _row(TCL, "digits")),
        overrides=("optim.epochs=10",),
        num_seeds=NUM_SEEDS,
        make_table=repeated,
        make_figure=strips,
    )


def _row(method: str, recipe: str, paper: str = "") -> Row:
    mean, half = ({PAPER: INTERVALS[paper][0]}, {PAPER: INTERVALS[paper][1]}) if paper else ({}, {})
    return Row(
        title=method, recipe=recipe, name=method.lower(), series=method, beside=mean, beside_half=half,
    )  # fmt: skip
