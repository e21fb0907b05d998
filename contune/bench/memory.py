"""How much memory a forward and backward pass needs beyond its input, and what cannot fit in the first place."""

import json
import resource
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import torch

from contune.bench.batch import Batch, make_batch
from contune.bench.contestants import Contestant
from contune.bench.failure import Failure
from contune.bench.step import forward_backward
from contune.device import free_bytes

_HOST_SHARE = 0.6
_WARMUP_SIZE = 64


def does_not_fit(contestant: Contestant, num: int, device: torch.device) -> str | None:
    """The reason, going by what it is known to hold.

    A GPU says no by itself and nothing is lost, so all of its free memory is tried. A host that runs out of memory
    ends processes, so only part of it is.
    """
    needed = contestant.footprint(num)
    available = free_bytes(device) if device.type == "cuda" else _HOST_SHARE * free_bytes(device)
    if needed > available:
        return f"would not fit: about {needed / 2**30:,.0f} GiB"
    return None


def gpu_peak_bytes(contestant: Contestant, batch: Batch) -> int:
    device = batch.z_ND.device
    batch.z_ND.grad = None
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    forward_backward(contestant, batch)
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) - before


def cpu_peak_bytes(contestant: Contestant, num: int, dim: int, *, num_classes: int, dtype: str) -> int | Failure:
    """In a process of its own, since the peak of a process never goes down again."""
    request = {
        "name": contestant.name,
        "loss": contestant.loss,
        "num": num,
        "dim": dim,
        "num_classes": num_classes,
        "dtype": dtype,
        "threads": torch.get_num_threads(),
    }
    command = [sys.executable, "-m", "contune.bench.memory", json.dumps(request)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return Failure(f"failed: {(done.stderr.strip().splitlines() or ['killed'])[-1]}")
    return int(done.stdout.split()[-1])


def _measure(request: dict[str, str | int]) -> int:
    from contune.bench.field import everyone

    device = torch.device("cpu")
    torch.set_num_threads(int(request["threads"]))
    contestants, _ = everyone(device, compiled="compile" in str(request["name"]))
    (contestant,) = (c for c in contestants if c.name == request["name"] and c.loss == request["loss"])

    def batch_of(num: int) -> Batch:
        return make_batch(
            contestant.loss,
            num,
            int(request["dim"]),
            num_classes=int(request["num_classes"]),
            device=device,
            dtype=str(request["dtype"]),
        )

    forward_backward(contestant, batch_of(_WARMUP_SIZE))
    batch = batch_of(int(request["num"]))
    _forget_peak()
    before = _peak_resident_bytes()
    forward_backward(contestant, batch)
    return _peak_resident_bytes() - before


def _forget_peak() -> None:
    """Importing has a peak of its own that would hide a smaller one. Only Linux can start over."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak_resident_bytes() -> int:
    """Linux hands the ru_maxrss of the parent down to its children, so its own record is read where there is one."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    print(_measure(json.loads(sys.argv[1])))
