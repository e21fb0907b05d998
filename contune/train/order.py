"""Which images make up each batch of an epoch."""

from torch import Tensor

from contune.config import Config
from contune.data.sampler import Shares, balanced_batches, shares, shuffled_order
from contune.errors import UserError


def epoch_indices(config: Config, num_images: int, labels_N: Tensor | None, epoch: int) -> Tensor:
    """(steps, batch_images) indices; what does not fill a batch is left for another epoch."""
    batch, seed = config.optim.batch_images, config.run.seed
    if config.data.sampler == "shuffle":
        order_N = shuffled_order(num_images, seed, epoch)
        num_steps = num_images // batch
        return order_N[: num_steps * batch].view(num_steps, batch)
    if labels_N is None:
        raise UserError("data.sampler=balanced needs labels, and this data has none; leave it at shuffle")
    classes, images, extra = balanced_shares(config, labels_N)
    return balanced_batches(labels_N.cpu(), classes, images, seed, epoch, extra=extra)


def balanced_shares(config: Config, labels_N: Tensor) -> Shares:
    """What a batch of `data.sampler=balanced` is made of."""
    batch, images, num_classes = config.optim.batch_images, config.data.images_per_class, len(labels_N.unique())
    if batch % images and batch // images < num_classes:
        raise UserError(
            f"data.sampler=balanced needs optim.batch_images a multiple of data.images_per_class, got {batch} and "
            f"{images}; {_way_to_divide(batch, images)}"
        )
    return shares(batch, images, num_classes)


def _way_to_divide(batch: int, images: int) -> str:
    """The nearest numbers that would do."""
    fitting = next((fewer for fewer in range(min(batch, images), 1, -1) if batch % fewer == 0), None)
    fewer = "" if fitting is None else f"data.images_per_class={fitting}, or "
    return f"take {fewer}optim.batch_images={max(1, batch // images) * images}"
