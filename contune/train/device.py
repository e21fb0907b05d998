"""Where a run computes, and in which precision."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch

from contune import distributed
from contune.errors import UserError

Autocast = Callable[[], AbstractContextManager[object]]


def choose_device(name: str) -> torch.device:
    """`cuda` is the GPU of this process, and so is `auto` where there is one, else the CPU."""
    of_this_process = f"cuda:{distributed.local_rank()}"
    if name == "auto":
        name = of_this_process if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(of_this_process if name == "cuda" else name)
        torch.empty(1, device=device)
        if device.type == "cuda" and device.index is not None:
            torch.cuda.set_device(device)  # for libraries that go by the current device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"run.device={name} is not to be had here ({reason}); use run.device=auto") from None
    return device


def autocast_dtype(precision: str, device: torch.device) -> torch.dtype | None:
    """bfloat16 where asked for or, with `auto`, where the GPU is made for it; None: float32 throughout."""
    has_bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if precision == "bf16" or (precision == "auto" and has_bf16) else None


def choose_autocast(precision: str, device: torch.device) -> Autocast:
    """A context for the forward pass."""
    dtype = autocast_dtype(precision, device)
    return nullcontext if dtype is None else lambda: torch.autocast(device.type, dtype=dtype)


def choose_convolutions(*, autotune: bool) -> None:
    """Of cuDNN's algorithms those that give the same bits every time; `autotune` tries them and takes the fastest."""
    torch.backends.cudnn.benchmark = autotune
    torch.backends.cudnn.deterministic = True


def hardware_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    num = torch.get_num_threads()
    return f"{device.type}, {num} thread{'s' if num > 1 else ''}"
