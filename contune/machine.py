"""What of this machine is ours to use."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch  # takes seconds to import, and the command line asks for cores without it

HAS_TRITON = find_spec("triton") is not None


def available_cores() -> int:
    """Cores that this process may run on, which in a container or a batch job may be fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def core_share() -> int:
    """Of these, what is left for each process where `torchrun` started several on this machine."""
    return max(1, available_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def free_bytes(device: "torch.device") -> int:
    """Memory that could be taken now."""
    if device.type == "cuda":
        import torch

        return torch.cuda.mem_get_info(device)[0]
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():  # counts what the file cache would give back, which sysconf does not
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def interprets_triton() -> bool:
    """Whether Triton's kernels were asked to run on the CPU, slowly, as tests do."""
    return os.environ.get("TRITON_INTERPRET") == "1"
