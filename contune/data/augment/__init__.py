"""Batched augmentation: random parameters per sample, applied to the whole batch by torch or by Triton kernels."""

from contune.data.augment.ops import Params, Policy, resize
from contune.data.augment.policies import POLICIES, Augmenter, Mix, build_policy, eval_transform, normalize

__all__ = ["POLICIES", "Augmenter", "Mix", "Params", "Policy", "build_policy", "eval_transform", "normalize", "resize"]
