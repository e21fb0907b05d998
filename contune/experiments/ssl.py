"""Self-supervised methods side by side, as in the paper's table 2: the same encoder, data and measures for all."""

from collections.abc import Mapping

from contune.experiments.experiment import Experiment
from contune.experiments.plan import PIXELS, Row
from contune.recipes.reported import PAPER, SOLO_LEARN, reported
from contune.recipes.ssl import EPOCHS, ROWS, TITLES

IN_A_TENTH_OF_THE_EPOCHS = {
    "dino": ("method.teacher_warmup_epochs=30", "method.momentum=0.996"),
    "swav": ("method.epsilon=0.03", "method.queue_epoch=15"),
}
"""What recipes for 1000 epochs need to get under way in 100: DINO its authors' warm-up of the teacher's temperature and
their teacher, which follows sooner; SwAV sharper assignments, and the queue from the epoch from which its authors take
it. Without these both predict the same for all images for 25 epochs and more (`results/tried`)."""
WHOSE = (
    "What others report: of the paper's column only TCL was measured there, the rest it quotes; solo-learn's is by a "
    "probe that learns beside the encoder, ARB's that of its authors."
)


def digits() -> Experiment:
    """All self-supervised methods on handwritten digits: a CPU, about ten minutes."""
    pixels = Row(
        title="Raw pixels", recipe="digits-simclr", overrides=("optim.epochs=0",), name="random",
        measured=PIXELS, is_baseline=True,
    )  # fmt: skip
    return Experiment(
        title="Self-supervised methods on handwritten digits", rows=(*_methods("digits"), _untrained("digits"), pixels)
    )


def cifar10() -> Experiment:
    """All self-supervised methods on CIFAR-10, ResNet-18, 100 epochs (the paper: 1000); add data.path=FOLDER."""
    return _in_a_tenth("cifar10")


def cifar100() -> Experiment:
    """All self-supervised methods on CIFAR-100, ResNet-18, 100 epochs (the paper: 1000); add data.path=FOLDER."""
    return _in_a_tenth("cifar100")


def imagenet100() -> Experiment:
    """All self-supervised methods on ImageNet-100, ResNet-18, 400 epochs as in the paper; add data.path=FOLDER."""
    return Experiment(
        title="Self-supervised methods on ImageNet-100",
        rows=(*_methods("imagenet100"), _untrained("imagenet100")),
        notes=(WHOSE,),
    )


def _in_a_tenth(data: str) -> Experiment:
    return Experiment(
        title=f"Self-supervised methods on {TITLES[data]}",
        rows=(*_methods(data, IN_A_TENTH_OF_THE_EPOCHS), _untrained(data)),
        overrides=("optim.epochs=100",),
        notes=(
            WHOSE,
            "DINO's teacher begins at a temperature of 0.04, which rises to 0.07 over 30 epochs, and at a momentum of "
            "0.996 instead of 0.9995, as in its paper; SwAV assigns with ε = 0.03 instead of 0.05 and takes its queue "
            "from epoch 15 instead of 50; the other recipes are those for 1000 epochs.",
        ),
    )


def _methods(data: str, overrides: Mapping[str, tuple[str, ...]] | None = None) -> tuple[Row, ...]:
    own = overrides or {}
    return tuple(
        Row(
            title=row.title, recipe=f"{data}-{name}", overrides=own.get(name, ()), name=name,
            beside=_beside(data, name),
        )
        for name, row in ROWS.items()
    )  # fmt: skip


def _untrained(data: str) -> Row:
    return Row(
        title="Random encoder", recipe=f"{data}-simclr", overrides=("optim.epochs=0",), name="random", is_baseline=True
    )


def _beside(data: str, name: str) -> dict[str, float]:
    numbers = {whose: reported(table, name, data) for whose, table in (("paper", PAPER), ("solo-learn", SOLO_LEARN))}
    return {f"{whose}, {EPOCHS[data]} epochs": number for whose, number in numbers.items() if number is not None}
