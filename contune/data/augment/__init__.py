"""Batched augmentation: random parameters per sample, applied to the whole batch by torch or by Triton kernels."""

from contune.data.augment.ops import resize as resize
from contune.data.augment.policies import POLICIES as POLICIES
from contune.data.augment.policies import Augmenter as Augmenter
from contune.data.augment.policies import Mix as Mix
from contune.data.augment.policies import OwnTransform as OwnTransform
from contune.data.augment.policies import Transform as Transform
from contune.data.augment.policies import build_policy as build_policy
from contune.data.augment.policies import eval_transform as eval_transform
from contune.data.augment.policies import normalize as normalize
from contune.data.augment.policies import transform_name as transform_name
