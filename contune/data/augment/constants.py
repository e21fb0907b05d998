"""Small constant tensors, made once per device: copying them there at every step would cost a launch each.

They are never forgotten, since a captured CUDA graph may go on reading them, and never inference tensors,
since what is first needed in an evaluation may later take part in a backward pass.
"""

from functools import cache

import torch
from torch import Tensor


def constant(values: tuple[float, ...], device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    if torch.compiler.is_compiling():  # part of the compiled code, which sees no cache
        return torch.tensor(values, dtype=dtype, device=device)
    return _kept(values, device, dtype)


@cache
@torch.inference_mode(False)
def _kept(values: tuple[float, ...], device: torch.device, dtype: torch.dtype) -> Tensor:
    return torch.tensor(values, dtype=dtype, device=device)


@cache
@torch.inference_mode(False)
def count_to(num: int, device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    """0, 1, …, num - 1."""
    return torch.arange(num, dtype=dtype, device=device)
