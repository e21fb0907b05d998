"""All experiments: the paper's tables and figures, each also in a small form on digits for a CPU.

Learning rates, k1 and k2 of the sweeps are those of appendix B.2, which gives rates for TCL; SupCon has the same ones
here. Batch sizes there count views. For embedding sizes and augmentations the appendix does not give the batch size; we
use that of the encoders, 128, which goes with the learning rate that it gives.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from contune.errors import check_known
from contune.eval.measures import FAST, KNN, RECALL
from contune.experiments.plan import CROSS_ENTROPY, PAPER, SUPCON, TCL, Experiment, PlanRow
from contune.recipes import ssl
from contune.recipes.paper import QUOTED, TABLE_1, TABLE_3, TITLES, reported

RECIPES = {CROSS_ENTROPY: "ce", TCL: "tcl", "TCL auto": "tcl"}
"""The recipes that methods start from; all others start from SupCon's."""
WHERE = "add data.path=FOLDER"
SIMAUGMENT = ("optim.batch_images=64", "optim.lr=0.1", "augment.policy=simaugment-supervised")
K1_5000 = ("method.k1=5000",)
AUTO = ("method.k1=auto", "method.k2=auto")
RESNET34 = ("model.encoder=resnet34", "optim.batch_images=64", "optim.lr=0.1")
UNPRINTED = "The paper draws these numbers and does not print them. In its figure TCL is above SupCon throughout."
FIGURE_3_BATCH = (
    "The paper does not state the batch size of figure 3, whose best accuracy is 76.2 %. It reports 75.7 % for batches "
    "of 128 views (appendix B.1) and 79.8 % for 256, so figure 3 probably has 128."
)
OTHERS = (
    "What others report: the paper measured TCL and quotes published numbers for the other methods. The library "
    "solo-learn reports an online probe. Its number for ARB is from ARB's authors."
)
BALANCES = (
    "Sampler: a batch has the same number of images of each of its classes, and all classes are drawn equally often. "
    "Weights: anchors from rare classes have a larger weight in the loss. The probes learn from the same images, "
    "without weights."
)
OF_PHOTOS = (
    "TCL auto plus cross-entropy: the recipe `{}` with the settings below. Its term of cross-entropy has weight 3, and "
    "its batches are balanced: equally many images of each of their classes, at least four. The baseline has "
    "cross-entropy alone and random batches. So the difference includes the effect of the batches."
)
IN_100_EPOCHS = {
    "dino": ("method.teacher_warmup_epochs=30", "method.momentum=0.996"),
    "swav": ("method.epsilon=0.03", "method.queue_epoch=15"),
}
"""Recipes for 1000 epochs that learn nothing for 25 epochs and more without these (results/tried)."""
IN_100_EPOCHS_NOTE = (
    "DINO and SwAV learned nothing for 25 epochs with their settings for 1000 epochs, so these were changed. DINO: as "
    "in its paper, the teacher's temperature rises from 0.04 to 0.07 over 30 epochs. Its momentum starts at 0.996 "
    "instead of 0.9995. SwAV: ε = 0.03 instead of 0.05, and the queue starts at epoch 15 instead of 50. All other "
    "methods run 100 epochs with the settings published for 1000."
)


def _row(
    data: str, method: str, at: str = "", *overrides: str, paper: float | None = None, suffix: str = ""
) -> PlanRow:
    """A method on a data set; `at` is its place in tables and figures with two directions.

    suffix: of the recipe's name, `-250` for 250 epochs. paper: the paper's top-1 %.
    """
    return PlanRow(
        title=f"{method}, {at}" if at else method,
        recipe=f"{data}-{RECIPES.get(method.partition(',')[0], 'supcon')}{suffix}",
        overrides=overrides,
        method=method,
        at=at,
        reported={} if paper is None else {PAPER: paper},
    )


def _table1(table: Mapping[str, Mapping[str, float]], suffix: str = "") -> tuple[PlanRow, ...]:
    methods = {"cross-entropy": CROSS_ENTROPY, "supcon": SUPCON, "tcl": TCL}
    return tuple(
        _row(data, methods[name], TITLES[data], paper=None if (data, name) in QUOTED else top1, suffix=suffix)
        for data, numbers in table.items()
        for name, top1 in numbers.items()
    )


def _pair(data: str, at: str, *overrides: str, tcl: Sequence[str] = ()) -> list[PlanRow]:
    """SupCon and TCL at one value of a setting; TCL may have more overrides."""
    return [_row(data, SUPCON, at, *overrides), _row(data, TCL, at, *overrides, *tcl)]


def _batch(size: int, lr: float) -> tuple[str, str]:
    """Of `size` views, which are two of every image."""
    return f"optim.batch_images={size // 2}", f"optim.lr={lr}"


def _k1(data: str, *values: int) -> list[PlanRow]:
    return [_row(data, TCL, f"k1 = {k1}", f"method.k1={k1}") for k1 in values]


def _k2(data: str, k1: int, papers: Mapping[int, float] | None = None) -> tuple[PlanRow, ...]:
    """SupCon, and TCL with k2 = 1 and 3."""
    rows = [
        _row(data, TCL, f"k1 = {k1}, k2 = {k2}", f"method.k1={k1}", f"method.k2={k2}", paper=(papers or {}).get(k2))
        for k2 in (1, 3)
    ]
    return _row(data, SUPCON), *rows


def _sweep(setting: str, summary: str, rows: Sequence[PlanRow], *notes: str) -> Experiment:
    """SupCon and TCL at several values of a setting."""
    title = f"SupCon and TCL by {setting}, CIFAR-100"
    return Experiment(
        title=title, summary=summary, rows=tuple(rows), layout="sweep", setting=setting, notes=(UNPRINTED, *notes)
    )


def _ssl(data: str, overrides: Mapping[str, tuple[str, ...]] | None = None) -> tuple[PlanRow, ...]:
    """A row per self-supervised method, and the untrained encoder."""
    rows = []
    for name, row in ssl.ROWS.items():
        known = {f"{source}, {ssl.EPOCHS[data]} epochs": top1 for source, top1 in reported(name, data).items()}
        own = (overrides or {}).get(name, ())
        rows.append(PlanRow(title=row.title, recipe=f"{data}-{name}", overrides=own, reported=known))
    untrained = ("optim.epochs=0",)
    return *rows, PlanRow(title="Untrained encoder", recipe=f"{data}-simclr", overrides=untrained, is_baseline=True)


def _losses(data: str, constant: str) -> tuple[PlanRow, ...]:
    """TCL with its automatic and with constant k1 and k2, and the losses that a reviewer asks for."""
    rivals = {"SINCERE": "sincere", "ε-SupInfoNCE": "eps-supinfonce", "DCL": "dcl"}
    return (
        _row(data, SUPCON),
        _row(data, TCL, constant),
        _row(data, "TCL auto", "", *AUTO),
        *(_row(data, method, "", f"method.name={name}") for method, name in rivals.items()),
    )


def _robustness() -> tuple[PlanRow, ...]:
    """TCL with automatic and constant k1 on digits, where batch size or epochs are not those that k1 was chosen for."""
    losses = {"TCL, k1 = 5000": K1_5000, "TCL, k1 = 500": ("method.k1=500",), "TCL auto": AUTO}
    places = {f"views per batch: {n}": _batch(n, lr=0.1 * n / 128) for n in (32, 64, 128, 256, 512)}
    epochs = {f"epochs: {n}": (f"optim.epochs={n}",) for n in (5, 10, 20, 40)}
    return tuple(
        _row("digits", method, place, *settings, *loss)
        for place, settings in (*places.items(), *epochs.items())
        for method, loss in losses.items()
    )


def _long_tail() -> tuple[PlanRow, ...]:
    """SupCon and TCL auto with each optim.balance."""
    rows = []
    for method, own in ((SUPCON, ("method.name=supcon",)), ("TCL auto", AUTO)):
        for balance, suffix in (("none", ""), ("sampler", ", sampler"), ("weights", ", weights")):
            title, overrides = f"{method}{suffix}", (*own, f"optim.balance={balance}")
            rows.append(PlanRow(title=title, recipe="cifar100-lt", overrides=overrides, method=title))
    return tuple(rows)


def _photos(recipe: str, start: str, untrained: str) -> Experiment:
    """TCL as the recipe has it, and what a user would try instead."""
    rows = {
        CROSS_ENTROPY: ("method.name=cross-entropy", "optim.balance=none"),
        "SupCon plus cross-entropy": ("method.name=supcon",),
        "TCL auto": ("method.cross_entropy=0",),
        "TCL auto plus cross-entropy": (),
        untrained: ("optim.epochs=0", "method.cross_entropy=0"),
    }
    return Experiment(
        title=f"TCL auto plus cross-entropy, photos, {start}",
        summary=f"The recipe `{recipe}` against cross-entropy and SupCon on your photos; {WHERE}.",
        rows=tuple(
            PlanRow(title=title, recipe=recipe, overrides=own, method=title, is_baseline=title == untrained)
            for title, own in rows.items()
        ),
        num_seeds=3,
        layout="seeds",
        measures=(FAST, KNN, RECALL),
        notes=(OF_PHOTOS.format(recipe),),
    )


EXPERIMENTS: dict[str, Experiment] = {
    "table1": Experiment(
        title="Cross-entropy, SupCon and TCL, 150 epochs",
        summary=f"Table 1, and TCL auto: cross-entropy, SupCon and TCL on four datasets, 150 epochs; {WHERE}.",
        rows=(*(_row(data, "TCL auto", TITLES[data], *AUTO) for data in TABLE_1), *_table1(TABLE_1)),
        layout="grid",
    ),
    "table1-digits": Experiment(
        title="Cross-entropy, SupCon and TCL on handwritten digits",
        summary="Table 1, small: the three losses on handwritten digits, on all and on a fifth; a CPU, two minutes.",
        rows=tuple(
            _row("digits", method, place, *settings)
            for place, settings in (("898 digits", ()), ("180 digits", ("data.val_fraction=0.8", "optim.epochs=40")))
            for method in (CROSS_ENTROPY, SUPCON, TCL)
        ),
        layout="grid",
        setting="training images",
    ),
    "table1-250": Experiment(
        title="SupCon and TCL, 250 epochs",
        summary=f"Table 3 of the appendix: SupCon and TCL on four datasets, 250 epochs; {WHERE}.",
        rows=_table1(TABLE_3, "-250"),
        layout="grid",
    ),
    "fig-batch": _sweep(
        "batch size",
        f"Figure 2a: SupCon and TCL at batch sizes from 32 to 1024, CIFAR-100, ResNet-50; {WHERE}.",
        [
            *_pair("cifar100", "32", *_batch(32, lr=8e-3), tcl=("method.k1=5000",)),
            *_pair("cifar100", "64", *_batch(64, lr=9e-3), tcl=("method.k1=7500",)),
            *_pair("cifar100", "128", *_batch(128, lr=0.1), tcl=("method.k1=5000",)),
            _row("cifar100", SUPCON, "256", *_batch(256, lr=0.2), paper=TABLE_1["cifar100"]["supcon"]),
            _row("cifar100", TCL, "256", *_batch(256, lr=0.2), "method.k1=4000", paper=TABLE_1["cifar100"]["tcl"]),
            *_pair("cifar100", "512", *_batch(512, lr=0.5), tcl=("method.k1=4000",)),
            *_pair("cifar100", "1024", *_batch(1024, lr=1.0), tcl=("method.k1=4000",)),
        ],
        "Batch sizes count views. The probe's batches always have 256 images. The paper prints the numbers of 256.",
    ),
    "fig-encoder": _sweep(
        "encoder",
        f"Figure 2b: SupCon and TCL with ResNet-18, 34, 50 and 101, CIFAR-100; {WHERE}.",
        [
            *_pair("cifar100", "ResNet-18", "model.encoder=resnet18", *_batch(128, lr=0.1), tcl=K1_5000),
            *_pair("cifar100", "ResNet-34", "model.encoder=resnet34", *_batch(128, lr=0.1), tcl=K1_5000),
            *_pair("cifar100", "ResNet-50", "model.encoder=resnet50", *_batch(128, lr=0.1), tcl=K1_5000),
            *_pair("cifar100", "ResNet-101", "model.encoder=resnet101", *_batch(128, lr=0.09), tcl=K1_5000),
            _row("imagenet100", SUPCON, "ResNet-34 on ImageNet-100", *RESNET34, paper=86.5),
            _row("imagenet100", TCL, "ResNet-34 on ImageNet-100", *RESNET34, *K1_5000, paper=87.2),
        ],
        "It prints those of ImageNet-100 (section 4.2.1), without the learning rate, which is ours.",
    ),
    "fig-projector": _sweep(
        "size of the embedding",
        f"Figure 2c: SupCon and TCL with embeddings of 64 to 2048 numbers, CIFAR-100, ResNet-50; {WHERE}.",
        [
            row
            for size in (64, 128, 256, 512, 1024, 2048)
            for row in _pair("cifar100", f"{size}", *_batch(128, lr=0.1), f"method.projector_dim={size}", tcl=K1_5000)
        ],
        "It says that 64 is worst and 2048 is best, where TCL leads SupCon by 1.2 points.",
    ),
    "fig-augment": _sweep(
        "augmentation",
        f"Figure 2d: SupCon and TCL under AutoAugment and SimAugment, CIFAR-100, ResNet-50; {WHERE}.",
        [
            *_pair("cifar100", "AutoAugment", *_batch(128, lr=0.1), tcl=K1_5000),
            _row("cifar100", SUPCON, "SimAugment", *SIMAUGMENT, suffix="-250"),
            _row("cifar100", TCL, "SimAugment", *SIMAUGMENT, *K1_5000, "method.k2=1.2", suffix="-250"),
        ],
        "As there, SimAugment has no blur and 250 epochs in all, AutoAugment 150.",
    ),
    "fig-k1": Experiment(
        title="Effect of k1, CIFAR-100",
        summary=f"Figure 3a, b: gradients from positives, and accuracy, by k1; CIFAR-100, ResNet-50; {WHERE}.",
        # The paper does not name its values. These range from no effect to too much, around those it recommends.
        rows=(
            _row("cifar100", SUPCON),
            *_k1("cifar100", 10, 100, 1000, 2000, 4000, 8000, 20000),
            _row("cifar100", TCL, "k1 = 50000", "method.k1=50000", paper=71.8),
        ),
        overrides=_batch(128, lr=0.1),
        layout="k1",
        notes=("The paper draws this curve and prints one of its numbers (section 4.4).", FIGURE_3_BATCH),
    ),
    "fig-k1-digits": Experiment(
        title="Effect of k1, handwritten digits",
        summary="Figure 3a, b, small: gradients from positives, and accuracy, by k1, digits; a CPU, three minutes.",
        rows=(_row("digits", SUPCON), *_k1("digits", 10, 100, 500, 2000, 5000)),
        layout="k1",
    ),
    "fig-k2": Experiment(
        title="Effect of k2 when k1 is too large, CIFAR-100",
        summary=f"Figure 3c, d: gradients from negatives at k1 = 50000, k2 = 1 and 3; CIFAR-100, ResNet-50; {WHERE}.",
        rows=_k2("cifar100", 50000, {1: 71.8, 3: 76.2}),
        overrides=_batch(128, lr=0.1),
        layout="k2",
        notes=(FIGURE_3_BATCH,),
    ),
    "fig-k2-digits": Experiment(
        title="Effect of k2 when k1 is too large, handwritten digits",
        summary="Figure 3c, d, small: gradients from negatives at k1 = 5000 with k2 = 1 and 3; a CPU, two minutes.",
        rows=_k2("digits", 5000),
        layout="k2",
    ),
    "ci": Experiment(
        title="Cross-entropy, SupCon and TCL over seeds, CIFAR-100",
        summary=f"Five seeds of cross-entropy, SupCon and TCL, CIFAR-100, ResNet-18; {WHERE}.",
        rows=(_row("cifar100", CROSS_ENTROPY), _row("cifar100", SUPCON), _row("cifar100", TCL, paper=77.5)),
        overrides=("model.encoder=resnet18",),
        num_seeds=5,
        layout="seeds",
        notes=("Cross-entropy trains for 150 epochs, the other encoders for 100 and then their probes for 50.",),
    ),
    "ci-digits": Experiment(
        title="Cross-entropy, SupCon and TCL over seeds, handwritten digits, 10 epochs",
        summary="The same over five seeds on handwritten digits: with intervals; a CPU, four minutes.",
        rows=tuple(_row("digits", method) for method in (CROSS_ENTROPY, SUPCON, TCL)),
        overrides=("optim.epochs=10",),
        num_seeds=5,
        layout="seeds",
        measures=(FAST, KNN),
    ),
    "losses": Experiment(
        title="TCL and other supervised contrastive losses, CIFAR-100",
        summary=f"SupCon, TCL, TCL auto, SINCERE, ε-SupInfoNCE and DCL, three seeds, CIFAR-100, ResNet-18; {WHERE}.",
        rows=_losses("cifar100", "k1 = 4000"),
        overrides=("model.encoder=resnet18",),
        num_seeds=3,
        layout="seeds",
    ),
    "losses-digits": Experiment(
        title="TCL and other supervised contrastive losses, handwritten digits",
        summary="The same losses over five seeds on handwritten digits; a CPU, six minutes.",
        rows=_losses("digits", "k1 = 500"),
        num_seeds=5,
        layout="seeds",
    ),
    "losses-fmnist": Experiment(
        title="Automatic and constant k1, Fashion-MNIST, 10 epochs",
        summary=f"SupCon, TCL with three values of k1 and TCL auto, three seeds, ResNet-18, 10 epochs; {WHERE}.",
        rows=(
            _row("fmnist", SUPCON),
            *(_row("fmnist", f"TCL, k1 = {k1}", "", f"method.k1={k1}") for k1 in (50, 500, 5000)),
            _row("fmnist", "TCL auto", "", *AUTO),
        ),
        overrides=("model.encoder=resnet18", "optim.epochs=10", "eval.linear=fast"),
        num_seeds=3,
        layout="seeds",
    ),
    "robustness-digits": Experiment(
        title="Automatic and constant k1 by batch size and epochs, handwritten digits",
        summary="TCL auto, k1 = 500 and k1 = 5000 at batch sizes 32 to 512 and in 5 to 40 epochs; a CPU, ten minutes.",
        rows=_robustness(),
        layout="sweep",
        setting="setting",
    ),
    "long-tail": Experiment(
        title="SupCon and TCL on long-tailed CIFAR-100",
        summary=f"SupCon and TCL auto by optim.balance, CIFAR-100 with imbalance 100, ResNet-18, three seeds; {WHERE}.",
        rows=_long_tail(),
        num_seeds=3,
        layout="seeds",
        notes=("Classes have 500 to 5 training images (Cui et al. 2019). " + BALANCES,),
    ),
    "photos": _photos("images", "from scratch", "Untrained encoder"),
    "photos-finetune": _photos("images-finetune", "from pretrained weights", "Not fine-tuned"),
    "ssl-views": Experiment(
        title="Two or three views, SimCLR or TCL, CIFAR-100",
        summary=f"TCL without labels and SimCLR, each with two and three views, and k2 = 1; 200 epochs; {WHERE}.",
        rows=tuple(
            PlanRow(title=title, recipe=f"cifar100-{recipe}", overrides=(f"augment.views={views}", *more))
            for title, recipe, views, more in (
                ("TCL, 3 views", "tcl-ssl", 3, ()),
                ("TCL, 2 views", "tcl-ssl", 2, ()),
                ("TCL, 3 views, k2 = 1", "tcl-ssl", 3, ("method.k2=1",)),
                ("TCL, 3 views, k1 = 5000", "tcl-ssl", 3, K1_5000),
                ("SimCLR, 3 views", "simclr", 3, ()),
                ("SimCLR, 2 views", "simclr", 2, ()),
            )
        ),
        overrides=("optim.epochs=200",),
        num_seeds=3,
    ),
    "ssl-projector": Experiment(
        title="Large and small heads without labels, CIFAR-100",
        summary=f"ARB and Barlow Twins with embeddings of 2048 and 256 numbers, CIFAR-100, 1000 epochs; {WHERE}.",
        rows=tuple(
            PlanRow(
                title=f"{ssl.ROWS[name].title}, {dim}",
                recipe=f"cifar100-{name}",
                overrides=(f"method.projector_dim={dim}",),
                reported={PAPER: top1},
            )
            for name, papers in (("arb", {2048: 69.6, 256: 68.2}), ("barlow-twins", {2048: 69.2, 256: 57.9}))
            for dim, top1 in papers.items()
        ),
    ),
    **{
        f"ssl-{data}": Experiment(
            title=f"Self-supervised methods on {TITLES[data]}",
            summary=f"All self-supervised methods on {TITLES[data]}, ResNet-18, 100 epochs (the paper: 1000); {WHERE}.",
            rows=_ssl(data, IN_100_EPOCHS),
            overrides=("optim.epochs=100",),
            notes=(OTHERS, IN_100_EPOCHS_NOTE),
        )
        for data in ("cifar10", "cifar100")
    },
    "ssl-imagenet100": Experiment(
        title="Self-supervised methods on ImageNet-100",
        summary=f"All self-supervised methods on ImageNet-100, ResNet-18, 400 epochs as in the paper; {WHERE}.",
        rows=_ssl("imagenet100"),
        notes=(OTHERS,),
    ),
    "ssl-digits": Experiment(
        title="Self-supervised methods on handwritten digits",
        summary="All self-supervised methods on handwritten digits: a CPU, about ten minutes.",
        rows=(*_ssl("digits"), replace(_ssl("digits")[-1], title="Raw pixels", pixels=True)),
    ),
}


def find_experiment(name: str, changes: Sequence[str] = ()) -> Experiment:
    """An experiment by its name, with KEY=VALUE changed for all runs."""
    check_known("experiment", name, EXPERIMENTS)
    return replace(EXPERIMENTS[name], name=name).changed(changes)
