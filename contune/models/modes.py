"""Training and evaluation mode of somebody else's module."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """In evaluation mode throughout; afterwards each part has the mode it had, which need not be the whole's."""
    in_training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in in_training:
            part.training = True
