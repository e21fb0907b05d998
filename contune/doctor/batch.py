"""A batch: what it is made of, and whether the learning rate goes with its size."""

from collections.abc import Iterator

from contune.console import Finding, advice, fine, plural
from contune.train.order import balanced_shares, epoch_indices
from contune.train.setup import Setup, local_batch

PAPER_LR_PER_VIEW = 0.2 / 256
FAR_LR = 6.0
"""As a factor. The paper's own rates (appendix B.2) are up to 5.6 from that ratio, 0.009 at 64 embeddings."""


def about_batch(setup: Setup) -> Iterator[Finding]:
    config = setup.config
    local_batch(config, len(setup.dataset.train))
    images, views = config.optim.batch_images, config.augment.views
    num = images * views
    yield fine(
        f"batch: {plural(images, 'image')} × {plural(views, 'view')} = {plural(num, 'embedding')}, "
        "which is what the paper counts"
    )
    labels_N = setup.dataset.train.labels
    epoch_indices(config, len(setup.dataset.train), labels_N, epoch=0)
    if config.data.sampler == "balanced" and labels_N is not None:
        classes, each, extra = balanced_shares(config, labels_N)
        range_of_each = f"{each} or {each + 1}" if extra else f"{each}"
        yield fine(f"balanced: {plural(classes, 'class', 'es')} in a batch, {range_of_each} images of each")
    expected_lr = PAPER_LR_PER_VIEW * num
    if config.optim.name == "sgd" and not expected_lr / FAR_LR < config.optim.lr < expected_lr * FAR_LR:
        yield advice(
            f"optim.lr={config.optim.lr:g} is far from the paper's ratio of 0.2 at 256 embeddings, "
            f"which is {expected_lr:.2g} here"
        )


def num_steps(setup: Setup) -> int:
    """Of the whole run."""
    return len(setup.dataset.train) // setup.config.optim.batch_images * setup.config.optim.epochs
