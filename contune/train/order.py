"""Which images make up each batch of an epoch."""

from torch import Tensor

from contune.config import Config
from contune.data.sampler import balanced_batches, shuffled_order
from contune.errors import UserError


def epoch_indices(config: Config, num_images: int, labels_N: Tensor | None, epoch: int) -> Tensor:
    """(steps, batch_images) indices; what does not fill a batch is left for another epoch."""
    batch, seed, data = config.optim.batch_images, config.run.seed, config.data
    if data.sampler == "shuffle":
        order_N = shuffled_order(num_images, seed, epoch)
        num_steps = num_images // batch
        return order_N[: num_steps * batch].view(num_steps, batch)
    if labels_N is None or batch % data.images_per_class:
        raise UserError(
            "data.sampler=balanced needs labels, and optim.batch_images a multiple of data.images_per_class; "
            f"got {batch} and {data.images_per_class}"
        )
    num_classes = batch // data.images_per_class
    return balanced_batches(labels_N.cpu(), num_classes, data.images_per_class, seed, epoch)
