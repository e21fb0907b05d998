"""From a batch of images to the views a method sees, and to the one view it is tested on.

B: samples, C: channels, H, W: height, width.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from contune.data.augment.constants import constant
from contune.data.augment.lookup import TOP_LEVEL
from contune.data.augment.policy import Params, Policy, slice_params
from contune.data.augment.resample import resize


def normalise(images_BCHW: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """(image - mean) / std by channel, of float images in [0, 1]."""
    mean_C11, std_C11 = (constant(tuple(c), images_BCHW.device)[:, None, None] for c in (mean, std))
    return (images_BCHW - mean_C11).div_(std_C11)


def eval_transform(images_BCHW: Tensor, image_size: int, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """The test-time view of uint8 images: squashed to `image_size` if they are not that size, normalised."""
    return normalise(resize(images_BCHW, image_size).float().div_(TOP_LEVEL), mean, std)


class Augmenter:
    """Several views of each image, one per policy; views of the same policy object are computed together."""

    def __init__(self, policies: Sequence[Policy], mean: Sequence[float], std: Sequence[float]) -> None:
        self.policies = list(policies)
        self.mean, self.std = tuple(mean), tuple(std)
        self._groups: list[tuple[Policy, list[int]]] = []
        for view, policy in enumerate(self.policies):
            together = [views for other, views in self._groups if other is policy]
            if together:
                together[0].append(view)
            else:
                self._groups.append((policy, [view]))

    def draw(self, num_samples: int, generator: torch.Generator) -> list[Params]:
        """Parameters of each view for `num_samples` images."""
        params: list[Params] = [{} for _ in self.policies]
        for policy, views in self._groups:
            drawn = policy.draw(num_samples * len(views), generator)
            for number, view in enumerate(views):
                params[view] = slice_params(drawn, number * num_samples, (number + 1) * num_samples)
        return params

    def apply(self, images_BCHW: Tensor, params: list[Params]) -> list[Tensor]:
        """The normalised float views of uint8 images, in the order of the policies."""
        results: dict[int, Tensor] = {}
        for policy, views in self._groups:
            stacked = {name: torch.cat([params[view][name] for view in views]) for name in params[views[0]]}
            augmented = policy.apply(images_BCHW.repeat(len(views), 1, 1, 1), stacked)
            parts = normalise(augmented, self.mean, self.std).chunk(len(views))
            results |= dict(zip(views, parts, strict=True))
        return [results[view] for view in range(len(self.policies))]
