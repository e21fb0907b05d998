"""Batched augmentation: random parameters per sample, applied to the whole batch by torch or by Triton kernels."""

from contune.data.augment.ops import Params, Policy, resize
from contune.data.augment.policies import (
    POLICIES,
    Augmenter,
    Mix,
    OwnTransform,
    Transform,
    build_policy,
    eval_transform,
    normalize,
    transform_name,
)

__all__ = [
    "POLICIES",
    "Augmenter",
    "Mix",
    "OwnTransform",
    "Params",
    "Policy",
    "Transform",
    "build_policy",
    "eval_transform",
    "normalize",
    "resize",
    "transform_name",
]
