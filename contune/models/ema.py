"""A second network that follows the trained one slowly: BYOL's target, MoCo's key encoder, DINO's teacher."""

import copy

import torch
from torch import Tensor, nn

from contune.models.one_pass import move_towards_


def follower(module: nn.Module) -> nn.Module:
    """A copy that no gradient reaches."""
    return copy.deepcopy(module).requires_grad_(False)


def cosine_momentum(share: Tensor, first: float, last: float) -> Tensor:
    """How much a follower keeps of itself when `share` of the training is done: from `first` to `last`."""
    return last - (last - first) * (1 + torch.cos(torch.pi * share)) / 2


@torch.no_grad()
def follow(followers: nn.Module, leaders: nn.Module, momentum: Tensor) -> None:
    """follower ← momentum · follower + (1 - momentum) · leader, for all parameters.

    Running statistics of batch-norm stay the follower's own: it has seen its own batches.
    """
    theirs, ours = ([parameter.detach() for parameter in module.parameters()] for module in (leaders, followers))
    move_towards_(ours, theirs, (1 - momentum).float())
