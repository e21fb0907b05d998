"""Numbers on their way from the device to the host, which goes on with its work until they are there."""

from typing import Any

import torch
from torch import Tensor


class Sent:
    """A copy of a tensor as it is when the work queued so far is done."""

    def __init__(self, values: Tensor) -> None:
        self._host, self._copied = values, None
        if values.is_cuda:
            self._host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
            self._host.copy_(values, non_blocking=True)
            self._copied = torch.cuda.Event()
            self._copied.record()

    def is_there(self) -> bool:
        return self._copied is None or self._copied.query()

    def wait(self) -> Any:
        """As Python's numbers, in lists."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._host.tolist()
