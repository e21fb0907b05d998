"""Batched augmentation: drawn per sample from a generator, applied to the whole batch by torch or by kernels."""

from contune.data.augment.policies import POLICIES, build_policy, policy_options
from contune.data.augment.policy import Params, Policy, slice_params
from contune.data.augment.views import Augmenter, eval_transform, normalise

__all__ = [
    "POLICIES",
    "Augmenter",
    "Params",
    "Policy",
    "build_policy",
    "eval_transform",
    "normalise",
    "policy_options",
    "slice_params",
]
