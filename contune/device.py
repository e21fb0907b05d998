"""The machine: where a run computes, in which precision, how many cores and how much memory it may use.

Also the one place that imports torchvision and timm, as `from contune.device import timm, torchvision`.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from contune.errors import UserError

if TYPE_CHECKING:
    import timm as timm
    import torchvision as torchvision

Autocast = Callable[[], AbstractContextManager[object]]
HAS_TRITON = find_spec("triton") is not None


def choose_device(name: str) -> torch.device:
    """`cuda` is the GPU of this process. `auto` is that GPU if there is one, else the CPU.

    If a machine has more processes than GPUs, several processes share a GPU.
    """
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    gpu_of_this_process = f"cuda:{local_rank % max(1, torch.cuda.device_count())}"
    if name == "auto":
        name = gpu_of_this_process if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(gpu_of_this_process if name == "cuda" else name)
        torch.empty(1, device=device).cpu()  # `meta` has no values to copy
        if device.type == "cuda" and device.index is not None:
            torch.cuda.set_device(device)  # for libraries that use the current device
    except (RuntimeError, AssertionError, ImportError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"device {name} is not available ({reason}); use run.device=auto or --device auto") from None
    return device


def autocast_dtype(precision: str, device: torch.device) -> torch.dtype | None:
    """bfloat16 for `bf16`, and for `auto` on GPUs with hardware support; None means float32 throughout."""
    has_bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.bfloat16 if precision == "bf16" or (precision == "auto" and has_bf16) else None


def choose_autocast(precision: str, device: torch.device) -> Autocast:
    """A context for the forward pass."""
    dtype = autocast_dtype(precision, device)
    return nullcontext if dtype is None else lambda: torch.autocast(device.type, dtype=dtype)


def hardware_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    num = torch.get_num_threads()
    return f"{device.type}, {num} thread{'s' if num > 1 else ''}"


def available_cores() -> int:
    """Cores this process may run on; a container or batch job may have fewer than the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def core_share() -> int:
    """Cores for each of the processes that `torchrun` started on this machine."""
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    return max(1, available_cores() // processes)


def free_bytes(device: torch.device) -> int:
    """Memory available now."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():  # includes the file cache, which sysconf does not count as free
        return int(meminfo.read_text().partition("MemAvailable:")[2].split()[0]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def interprets_triton() -> bool:
    """Whether Triton kernels run in its slow CPU interpreter, as in tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def __getattr__(name: str) -> Any:
    """torchvision and timm, imported on first use because they take a second.

    PyPI's torchvision wheels are built for CUDA. Next to a CPU-only torch, their compiled operators do not load, and
    `import torchvision` then fails while it registers shapes for two of them, which nothing here calls. Defining
    those two operators first makes the rest of torchvision, and so timm, work with both builds.
    """
    if name not in ("timm", "torchvision"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import_module("torchvision")
    except RuntimeError:
        for operator in ("nms", "qnms"):
            torch.library.define(
                f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            )
    return import_module(name)
