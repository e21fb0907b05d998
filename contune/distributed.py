"""Several processes as one: the only file that knows torch.distributed. In a single process all of it is a no-op.

The rule that makes gradients right: every rank computes the loss of the whole, gathered batch, and
DistributedDataParallel averages the parameter gradients over ranks. `gather` therefore hands back, for the
rows a rank owns, the gradient times the number of ranks; the average is then the gradient of one big process.
"""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

Picklable = TypeVar("Picklable")


@contextmanager
def process_group(device: torch.device) -> Iterator[None]:
    """Joins the other processes when started by `torchrun`, and leaves them at the end."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    store, own_rank, size = next(rendezvous("env://"))
    # A launcher that restarts its processes may keep the store, and with it the addresses of those that died.
    own_store = PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=own_store, rank=own_rank, world_size=size)
    try:
        yield
    finally:
        gc.collect()  # a model that still holds the group, in a cycle, would abort the process at its exit
        dist.destroy_process_group()


def rank() -> int:
    return dist.get_rank() if _active() else 0


def world_size() -> int:
    return dist.get_world_size() if _active() else 1


def is_main() -> bool:
    return rank() == 0


def local_rank() -> int:
    return int(os.environ.get("LOCAL_RANK", "0"))


def barrier() -> None:
    if _active():
        dist.barrier()


def gather(local: Tensor) -> Tensor:
    """The rows of all ranks, in rank order, with gradient to this rank's own. Each rank brings as many rows."""
    return _Gather.apply(local) if _active() else local  # type: ignore[no-untyped-call]  # torch leaves it untyped


def gather_objects(local: Picklable) -> list[Picklable]:
    """What each rank brings, in rank order; for a few small Python values, not for tensors."""
    if not _active():
        return [local]
    everyones: list[Any] = [None] * world_size()
    dist.all_gather_object(everyones, local)
    return everyones


def gather_and_sum(local: Tensor) -> Tensor:
    """The rows of all ranks, for a loss that every rank takes of its own rows alone: gradients are added up.

    Where every rank takes the loss of the whole batch `gather` gives the same without asking the others.
    """
    return _GatherAndSum.apply(local) if _active() else local  # type: ignore[no-untyped-call]  # torch leaves it untyped


@dataclass(frozen=True)
class Partition:
    """How the rows of a batch are spread over ranks, which need not have equally many."""

    counts: tuple[int, ...]

    @property
    def start(self) -> int:
        """Where this rank's rows begin among all."""
        return sum(self.counts[: rank()]) if len(self.counts) > 1 else 0

    def gather(self, local: Tensor) -> Tensor:
        """The rows of all ranks, in rank order, without gradient."""
        if len(self.counts) == 1:
            return local
        longest = max(self.counts)
        padded = local.new_zeros(longest, *local.shape[1:])
        padded[: len(local)] = local
        parts = [torch.empty_like(padded) for _ in self.counts]
        dist.all_gather(parts, padded)
        return torch.cat([part[:count] for part, count in zip(parts, self.counts, strict=True)])


def partition(local: Tensor) -> Partition:
    """Asks every rank how many rows it brings."""
    if not _active():
        return Partition((len(local),))
    counts = [torch.zeros(1, dtype=torch.long, device=local.device) for _ in range(world_size())]
    dist.all_gather(counts, torch.full_like(counts[0], len(local)))
    return Partition(tuple(torch.cat(counts).tolist()))


def total(local: Tensor) -> Tensor:
    """The sum over ranks."""
    if not _active():
        return local
    result = local.clone()
    dist.all_reduce(result)
    return result


def mean(local: Tensor) -> Tensor:
    """The mean over ranks of a tensor that each of them has."""
    return total(local) / world_size()


def wrap(module: nn.Module, device: torch.device) -> nn.Module:
    """`module` with its gradients averaged over ranks, and batch statistics shared where torch can (on GPUs)."""
    if not _active():
        return module
    if device.type == "cuda":
        module = nn.SyncBatchNorm.convert_sync_batchnorm(module)
    return nn.parallel.DistributedDataParallel(module, device_ids=[device.index] if device.type == "cuda" else None)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, local: Tensor) -> Tensor:
        parts = [torch.empty_like(local) for _ in range(world_size())]
        dist.all_gather(parts, local.contiguous())
        ctx.num_local = local.shape[0]
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        start = rank() * ctx.num_local
        return grads[0][start : start + ctx.num_local] * world_size()


class _GatherAndSum(_Gather):
    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        start = rank() * ctx.num_local
        return total(grads[0])[start : start + ctx.num_local]


def _active() -> bool:
    return dist.is_available() and dist.is_initialized()
