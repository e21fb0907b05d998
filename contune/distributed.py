"""The only file that uses torch.distributed. In a single process everything here but `partition` is a no-op.

NCCL connects processes that each have a GPU, gloo all others. Only collectives are used that gloo has for CUDA tensors
too: all_reduce, broadcast and all_gather, which torch's SyncBatchNorm calls as well.

Why gradients are right: every rank computes the loss of the whole, gathered batch, and DistributedDataParallel
averages the parameter gradients over ranks. So the backward pass of `gather` returns, for the rows of this rank, the
gradient times the number of ranks. The average over ranks then equals the gradient of a single process.
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

from contune.console import plural, say

Picklable = TypeVar("Picklable")


@contextmanager
def process_group(device: torch.device) -> Iterator[None]:
    """Join the other processes that `torchrun` started, and leave them at the end."""
    if int(os.environ.get("WORLD_SIZE", 1)) == 1:
        yield
        return
    store, own_rank, size = next(rendezvous("env://"))
    # A launcher that restarts its processes may keep the store, and in it the addresses of dead processes.
    own_store = PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    backend = "gloo"
    if device.type == "cuda":
        own_store.set(f"gpu {own_rank}", str(torch.cuda.get_device_properties(device).uuid))
        num_gpus = len({own_store.get(f"gpu {other}") for other in range(size)})
        backend = "nccl" if num_gpus == size else "gloo"  # NCCL refuses two processes on one GPU
    dist.init_process_group(backend, store=own_store, rank=own_rank, world_size=size)
    try:
        if device.type == "cuda" and backend == "gloo":
            say(f"{size} processes share {plural(num_gpus, 'GPU')}: they communicate through gloo and train eagerly")
        yield
    finally:
        gc.collect()  # a model in a reference cycle that still holds the group would abort the process at exit
        dist.destroy_process_group()


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


def is_main() -> bool:
    return rank() == 0


def uses_gloo() -> bool:
    """Whether processes communicate through the CPU: without a GPU, or when they share one."""
    return dist.is_initialized() and dist.get_backend() == "gloo"


def barrier() -> None:
    if dist.is_initialized():
        dist.barrier()


def gather(local: Tensor, *, sum_gradients: bool = False) -> Tensor:
    """The rows of all ranks, in rank order, with gradients for this rank's own rows. Every rank has as many rows.

    sum_gradients: over ranks, for a loss that each rank computes for its own rows only. If every rank computes the loss
    of the whole batch, the result is the same without this communication.
    """
    return _Gather.apply(local, sum_gradients) if dist.is_initialized() else local  # type: ignore[no-untyped-call]  # torch leaves it untyped


def gather_objects(local: Picklable) -> list[Picklable]:
    """One object from each rank, in rank order; for small Python values, not for tensors."""
    if not dist.is_initialized():
        return [local]
    everyones: list[Any] = [None] * world_size()
    dist.all_gather_object(everyones, local)
    return everyones


@dataclass(frozen=True)
class Partition:
    """How many rows of a batch each rank has; the numbers may differ."""

    counts: tuple[int, ...]

    @property
    def start(self) -> int:
        """Index of this rank's first row."""
        return sum(self.counts[: rank()])

    def gather(self, local: Tensor) -> Tensor:
        """The rows of all ranks, in rank order, without gradient."""
        longest = max(self.counts)
        padded = local.new_zeros(longest, *local.shape[1:])
        padded[: len(local)] = local
        parts = [torch.empty_like(padded) for _ in self.counts]
        dist.all_gather(parts, padded)
        return torch.cat([part[:count] for part, count in zip(parts, self.counts, strict=True)])


def partition(local: Tensor) -> Partition:
    """Collect the number of rows of every rank."""
    counts = gather(torch.full((1,), len(local), device=local.device))
    return Partition(tuple(counts.tolist()))


def total(local: Tensor) -> Tensor:
    """The sum over ranks."""
    if not dist.is_initialized():
        return local
    result = local.clone()
    dist.all_reduce(result)
    return result


def mean(local: Tensor) -> Tensor:
    """The mean over ranks."""
    return total(local) / world_size()


def wrap(module: nn.Module, device: torch.device) -> nn.Module:
    """`module` with gradients averaged over ranks and, on GPUs, synchronized batch norm."""
    if not dist.is_initialized():
        return module
    if device.type == "cuda":
        module = nn.SyncBatchNorm.convert_sync_batchnorm(module)
    return nn.parallel.DistributedDataParallel(module, device_ids=[device.index] if device.type == "cuda" else None)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, local: Tensor, sum_gradients: bool) -> Tensor:
        parts = [torch.empty_like(local) for _ in range(world_size())]
        dist.all_gather(parts, local.contiguous())
        ctx.num_local, ctx.sum_gradients = local.shape[0], sum_gradients
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        own = slice(rank() * ctx.num_local, (rank() + 1) * ctx.num_local)
        return total(grads[0])[own] if ctx.sum_gradients else grads[0][own] * world_size(), None
