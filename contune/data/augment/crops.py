"""Crops that are made where images are decoded: chosen with the other parameters, before any image's size is known.

B: samples, V: views of one policy.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from contune.data.augment.policy import CropsFirst, Params, Policy
from contune.data.augment.resample import resize
from contune.data.cut import Piece, whole


@dataclass(frozen=True)
class Crops:
    """What each view of each image in a batch is cut out by; plain arrays, so that it travels to another process."""

    num_views: int
    groups: tuple[tuple[CropsFirst, tuple[int, ...], dict[str, np.ndarray]], ...]
    """A policy, its views, and what was drawn for them, (B, V, …)."""

    def pieces(self, sample: int, height: int, width: int) -> list[Piece]:
        """A piece for each view of one sample; a policy that does not begin with a crop sees all of the image."""
        pieces = [*whole(height, width)] * self.num_views
        for policy, views, drawn in self.groups:
            own = {name: torch.from_numpy(value[sample]) for name, value in drawn.items()}
            boxes_V4 = torch.cat(policy.boxes(own, height, width), dim=1).int().tolist()
            for view, (top, left, rows, columns) in zip(views, boxes_V4, strict=True):
                pieces[view] = Piece(top, left, rows, columns, policy.interpolation)
        return pieces


def begin_with_crops(policies: Sequence[Policy]) -> bool:
    """Whether there is anything to cut out: else every view sees the same squashed image."""
    return any(isinstance(policy, CropsFirst) for policy in policies)


def crops_of(policies: Sequence[Policy], params: Sequence[Params]) -> Crops:
    """The crops among the parameters of each view, which were drawn on the CPU."""
    groups = []
    for policy in dict.fromkeys(policies):
        if isinstance(policy, CropsFirst):
            views = tuple(view for view, other in enumerate(policies) if other is policy)
            names = [name for name in params[views[0]] if name.startswith("crop_")]
            drawn = {name: torch.stack([params[view][name] for view in views], dim=1).numpy() for name in names}
            groups.append((policy, views, drawn))
    return Crops(len(policies), tuple(groups))


def apply_after(policy: Policy, pieces_BCHW: Tensor, params: Params) -> Tensor:
    """The view of uint8 pieces that were cut out already, by the same parameters."""
    if isinstance(policy, CropsFirst):
        return policy.apply_cropped(resize(pieces_BCHW, policy.image_size), params)
    return policy.apply(pieces_BCHW, params)
