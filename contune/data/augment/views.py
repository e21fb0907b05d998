"""From a batch of images to the views a method sees, and to the one view it is tested on.

B: samples, C: channels, H, W: height, width.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from contune.data.augment.constants import constant
from contune.data.augment.crops import apply_after
from contune.data.augment.fused import check_supported, fused_views, is_supported
from contune.data.augment.lookup import TOP_LEVEL
from contune.data.augment.policy import Params, Policy, slice_params
from contune.data.augment.resample import resize
from contune.errors import unknown

BACKENDS = ("auto", "torch", "fused")


def normalise(images_BCHW: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """(image - mean) / std by channel, of float images in [0, 1]."""
    mean_C11, std_C11 = (constant(tuple(c), images_BCHW.device)[:, None, None] for c in (mean, std))
    return (images_BCHW - mean_C11).div_(std_C11)


def eval_transform(images_BCHW: Tensor, image_size: int, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """The test-time view of uint8 images: squashed to `image_size` if they are not that size, normalised."""
    return normalise(resize(images_BCHW, image_size).float().div_(TOP_LEVEL), mean, std)


def _joined(parts: list[Tensor]) -> Tensor:
    """The rows of all parts, which have the same shape; without a copy where they lie one after another.

    So do the views of one policy as they were drawn, unless a rank takes its slice of each.
    """
    first = parts[0]
    starts = [first.data_ptr() + number * first.nbytes for number in range(len(parts))]
    one_storage = len({part.untyped_storage().data_ptr() for part in parts}) == 1
    if one_storage and first.is_contiguous() and [part.data_ptr() for part in parts] == starts:
        return first.as_strided((len(parts) * len(first), *first.shape[1:]), first.stride())
    return torch.cat(parts)


class Augmenter:
    """Several views of each image, one per policy; views of the same policy object are computed together.

    `backend`: `torch`, `fused` (a Triton kernel for each policy, see fused.py), or `auto`, which takes the kernels
    on CUDA where they fit.
    """

    def __init__(
        self, policies: Sequence[Policy], mean: Sequence[float], std: Sequence[float], backend: str = "auto"
    ) -> None:
        if backend not in BACKENDS:
            raise unknown("backend", backend, BACKENDS)
        self.policies, self.backend = list(policies), backend
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

    def apply(self, images_BCHW: Tensor, params: list[Params], dtype: torch.dtype = torch.float32) -> list[Tensor]:
        """The normalised views of uint8 images, in the order of the policies; channels_last on CUDA.

        Images of five dimensions, (V, B, C, H, W), are views that were cropped where they were decoded.
        """
        results: dict[int, Tensor] = {}
        for policy, views in self._groups:
            parts = self._together(policy, views, images_BCHW, params, dtype).chunk(len(views))
            results |= dict(zip(views, parts, strict=True))
        return [results[view] for view in range(len(self.policies))]

    def stacked(self, images_BCHW: Tensor, params: list[Params], dtype: torch.dtype = torch.float32) -> Tensor:
        """What `apply` gives as one tensor, view after view; copied only where policies differ."""
        if len(self._groups) == 1:
            return self._together(*self._groups[0], images_BCHW, params, dtype)
        return torch.cat(self.apply(images_BCHW, params, dtype))

    def _together(
        self, policy: Policy, views: list[int], images_BCHW: Tensor, params: list[Params], dtype: torch.dtype
    ) -> Tensor:
        """The views of one policy, one after another."""
        drawn = {name: _joined([params[view][name] for view in views]) for name in params[views[0]]}
        if images_BCHW.dim() == 5:
            augmented = apply_after(policy, torch.cat([images_BCHW[view] for view in views]), drawn)
        elif self._is_fused(policy, images_BCHW):
            return fused_views(policy, images_BCHW, drawn, self.mean, self.std, dtype, num_views=len(views))
        else:
            augmented = policy.apply(images_BCHW.repeat(len(views), 1, 1, 1), drawn)
        layout = torch.channels_last if images_BCHW.device.type == "cuda" else torch.contiguous_format
        return normalise(augmented, self.mean, self.std).to(dtype, memory_format=layout)

    def _is_fused(self, policy: Policy, images_BCHW: Tensor) -> bool:
        if self.backend == "fused":
            check_supported(policy, images_BCHW)
            return True
        # The interpreter is there to be asked for: it takes milliseconds an image.
        return self.backend == "auto" and images_BCHW.device.type == "cuda" and is_supported(policy, images_BCHW)
