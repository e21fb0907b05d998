"""The paper's figure 2: SupCon and TCL over batch sizes, encoders, embedding sizes and augmentations, on CIFAR-100.

Learning rates, k1 and k2 are those of appendix B.2, which gives rates for TCL; SupCon has the same ones here. Batches
are counted after augmentation. The appendix does not say of which size they are in the figures of embedding sizes and
augmentations; that of the encoders, 128, goes with the rate it gives.
"""

from typing import NamedTuple

from contune.experiments.experiment import Experiment
from contune.experiments.lines import sweep_figure
from contune.experiments.plan import Row, point
from contune.experiments.style import SUPCON, TCL
from contune.experiments.sweep import sweep_table
from contune.recipes.reported import TABLE_1
from contune.recipes.ssl import BARELY_MOVED_DIGITS

BATCHES = {32: (8e-3, 5000), 64: (9e-3, 7500), 128: (0.1, 5000), 256: (0.2, 4000), 512: (0.5, 4000), 1024: (1.0, 4000)}
"""By size, the learning rate and k1."""
ENCODERS = {"ResNet-18": 0.1, "ResNet-34": 0.1, "ResNet-50": 0.1, "ResNet-101": 0.09}
EMBEDDINGS = (64, 128, 256, 512, 1024, 2048)
SHORT = ("optim.epochs=10",)
OF_128 = ("optim.batch_images=64", "optim.lr=0.1")
K1_5000 = ("method.k1=5000",)
UNPRINTED = "The paper draws these numbers and does not print them; in its figure TCL is above SupCon throughout."


class Step(NamedTuple):
    """A value of a setting: what both methods have there, and what TCL has besides."""

    at: str
    both: tuple[str, ...]
    tcl: tuple[str, ...] = ()
    adapted: tuple[str, ...] = ()
    """What only goes well with it: a person's settings take its place."""
    paper: tuple[float, float] | None = None
    """SupCon, TCL"""
    longer: bool = False
    """Whether by the recipes of 250 epochs."""


def batch() -> Experiment:
    """Figure 2a: SupCon and TCL at batch sizes from 32 to 1024, CIFAR-100, ResNet-50; add data.path=FOLDER."""
    table_1 = TABLE_1["cifar100"]
    steps = [
        Step(
            str(size), (f"optim.batch_images={size // 2}", f"optim.lr={lr}"), (f"method.k1={k1}",),
            paper=(table_1["supcon"], table_1["tcl"]) if size == 256 else None,
        )
        for size, (lr, k1) in BATCHES.items()
    ]  # fmt: skip
    return _experiment(
        "batch size", "batch sizes, CIFAR-100", _rows("cifar100", steps),
        notes=(
            "Batches are counted after augmentation; the probe's always have 256 images. "
            "The paper prints the numbers of 256 only (table 1); in its figure TCL is above SupCon throughout.",
        ),
    )  # fmt: skip


def encoder() -> Experiment:
    """Figure 2b: SupCon and TCL with ResNet-18, 34, 50 and 101, CIFAR-100; add data.path=FOLDER."""
    steps = [
        Step(
            name, (f"model.encoder={name.lower().replace('-', '')}", "optim.batch_images=64", f"optim.lr={lr}"), K1_5000
        )
        for name, lr in ENCODERS.items()
    ]
    return _experiment("encoder", "encoders, CIFAR-100", _rows("cifar100", steps), notes=(UNPRINTED,))


def projector() -> Experiment:
    """Figure 2c: SupCon and TCL with embeddings of 64 to 2048 numbers, CIFAR-100, ResNet-50; add data.path=FOLDER."""
    steps = [Step(str(size), (*OF_128, f"method.projector_dim={size}"), K1_5000) for size in EMBEDDINGS]
    note = f"{UNPRINTED} It says that 64 is the worst and 2048 the best, where TCL has 1.2 points more than SupCon."
    return _experiment("size of the embedding", "embedding sizes, CIFAR-100", _rows("cifar100", steps), notes=(note,))


def augment() -> Experiment:
    """Figure 2d: SupCon and TCL under AutoAugment and SimAugment, CIFAR-100, ResNet-50; add data.path=FOLDER."""
    weak = (*OF_128, "augment.policy=simaugment-supervised")
    steps = [
        Step("AutoAugment", OF_128, K1_5000),
        Step("SimAugment", weak, (*K1_5000, "method.k2=1.2"), longer=True),
    ]
    note = f"{UNPRINTED} As there, SimAugment has no blur and 250 epochs in all, AutoAugment 150."
    return _experiment(
        "augmentation", "augmentations, CIFAR-100", _rows("cifar100", steps), notes=(note,), joined=False
    )


def batch_digits() -> Experiment:
    """Figure 2a, small: SupCon and TCL at batch sizes from 32 to 256, handwritten digits; a CPU, three minutes."""
    steps = [Step(str(n), (f"optim.batch_images={n // 2}", f"optim.lr={0.1 * n / 128}")) for n in (32, 64, 128, 256)]
    return _experiment("batch size", "batch sizes, handwritten digits", _rows("digits", steps), overrides=SHORT)


def encoder_digits() -> Experiment:
    """Figure 2b, small: SupCon and TCL with two encoders, handwritten digits; a CPU, four minutes."""
    steps = [Step("mini", ()), Step("ResNet-18", ("model.encoder=resnet18",), adapted=("optim.epochs=5",))]
    return _experiment("encoder", "encoders, handwritten digits", _rows("digits", steps), overrides=SHORT, joined=False)


def projector_digits() -> Experiment:
    """Figure 2c, small: SupCon and TCL with embeddings of 8 to 512 numbers, digits; a CPU, three minutes."""
    steps = [Step(str(size), (f"method.projector_dim={size}",)) for size in (8, 32, 128, 512)]
    rows = _rows("digits", steps)
    return _experiment("size of the embedding", "embedding sizes, handwritten digits", rows, overrides=SHORT)


def augment_digits() -> Experiment:
    """Figure 2d, small: SupCon and TCL on digits that move much or little; a CPU, a minute."""
    weak = (f"augment.policy={BARELY_MOVED_DIGITS}",)
    steps = [Step("strong", ()), Step("weak", weak, ("method.k2=1.2",))]
    rows = _rows("digits", steps)
    return _experiment("augmentation", "augmentations, handwritten digits", rows, overrides=SHORT, joined=False)


def _rows(data: str, steps: list[Step]) -> tuple[Row, ...]:
    recipes = {SUPCON: f"{data}-supcon", TCL: "digits" if data == "digits" else f"{data}-tcl"}
    rows = []
    for step in steps:
        for number, (method, recipe) in enumerate(recipes.items()):
            settings = (*step.both, *(step.tcl if method == TCL else ()))
            paper = None if step.paper is None else step.paper[number]
            recipe += "-250" if step.longer else ""
            rows.append(point(method, step.at, recipe, *settings, adapted=step.adapted, paper=paper))
    return tuple(rows)


def _experiment(
    setting: str,
    title: str,
    rows: tuple[Row, ...],
    *,
    notes: tuple[str, ...] = (),
    overrides: tuple[str, ...] = (),
    joined: bool = True,
) -> Experiment:
    return Experiment(
        title=f"{SUPCON} and {TCL}: {title}",
        rows=rows,
        overrides=overrides,
        notes=notes,
        make_table=sweep_table(setting),
        make_figure=sweep_figure(setting, joined=joined),
    )
