"""Batched augmentation: random parameters per sample, applied to the whole batch by torch or by Triton kernels."""

from contune.data.augment.ops import Params, resize
from contune.data.augment.policies import (
    POLICIES,
    Augmenter,
    Crops,
    begin_with_crops,
    build_policy,
    crops_of,
    eval_transform,
    normalize,
    slice_params,
)

__all__ = [
    "POLICIES",
    "Augmenter",
    "Crops",
    "Params",
    "begin_with_crops",
    "build_policy",
    "crops_of",
    "eval_transform",
    "normalize",
    "resize",
    "slice_params",
]
