"""An encoder that is only asked for features: what training does again for every batch is done once."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy

import torch
from torch import nn


def cast_once(encoder: nn.Module, autocast: Callable[[], AbstractContextManager[object]]) -> nn.Module:
    """A copy with the weights that `autocast` would make for every batch, and so the same features to the bit.

    In a ResNet-50 these are 54 small kernels a batch.
    """
    device = next(encoder.parameters()).device.type
    with autocast():
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    if dtype is None:
        return encoder
    copy = deepcopy(encoder)
    for module in copy.modules():
        if type(module) in (nn.Conv2d, nn.Linear):  # not those that compute with their weights before they use them
            module.to(dtype)
    return copy


@contextmanager
def untuned_convolutions() -> Iterator[None]:
    """For a single pass over the images, which is over before cuDNN has tried its algorithms at this batch size."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
