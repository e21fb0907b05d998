"""Multi-crop (Caron et al. 2020): a few global views that make targets, and any number of small ones that predict."""

from collections.abc import Sequence

from torch import Tensor

from contune.errors import UserError


def global_views(views: Sequence[Tensor], num: int) -> Sequence[Tensor]:
    """The first `num` of all views, which may be of another size than the rest."""
    if len(views) < num:
        raise UserError(
            f"this method compares views of an image with each other, the first {num} being global ones, and got "
            f"{len(views)}; set augment.views={num} or more"
        )
    return views[:num]
