"""What of this machine is ours to use."""

import os
from importlib.util import find_spec

HAS_TRITON = find_spec("triton") is not None


def available_cores() -> int:
    """Cores that this process may run on, which in a container or a batch job may be fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def core_share() -> int:
    """Of these, what is left for each process where `torchrun` started several on this machine."""
    return max(1, available_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def interprets_triton() -> bool:
    """Whether Triton's kernels were asked to run on the CPU, slowly, as tests do."""
    return os.environ.get("TRITON_INTERPRET") == "1"
