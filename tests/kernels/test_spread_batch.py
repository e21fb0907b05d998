"""A batch spread over processes: the loss and the gradient of one process that has all of it, and less memory."""

from collections.abc import Callable
from itertools import accumulate, product
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from largest_tensor import largest_tensor
from loss_cases import DEVICE, relative_error
from loss_ways import supcon_in
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn

from contune import distributed
from contune.errors import UserError
from contune.losses import ntxent_loss, supcon_loss, tcl_loss

LOSSES: dict[str, Callable[..., Tensor]] = {
    "tcl": tcl_loss,
    "supcon out": supcon_loss,
    "supcon in": supcon_in,
    "ntxent": ntxent_loss,
}
REDUCTIONS = ("mean", "sum", "none")
PARTITIONS = {2: ((6, 6), (9, 4)), 4: ((5, 5, 5, 5), (7, 1, 5, 4))}
"""Rows of each rank, equally and unequally many."""
NUM_FOR_MEMORY = 256
Found = dict[tuple[Any, ...], list[Tensor]]


def layer() -> nn.Linear:
    torch.manual_seed(1)
    return nn.Linear(6, 5).double()


def batch(num: int, name: str) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, labels or ids, and a weight for each anchor's loss. Positives stand on the same and on other ranks."""
    draw = torch.Generator().manual_seed(num)
    x_ND, weights_N = torch.randn(num, 6, generator=draw).double(), torch.randn(num, generator=draw).double()
    labels_N = torch.randint(0, 4, (num,), generator=draw)
    return x_ND, torch.arange(num) % (num // 2) if name == "ntxent" else labels_N, weights_N


def step(name: str, reduction: str, num: int, own: slice, **settings: Any) -> list[Tensor]:
    """The loss of some rows, and the layer's gradients from it times 1.7, or times each anchor's own weight."""
    model, (x_ND, labels_N, weights_N) = layer(), batch(num, name)
    loss = LOSSES[name](model(x_ND[own]), labels_N[own], reduction=reduction, **settings)
    objective = (loss * weights_N[own]).sum() if reduction == "none" else loss * 1.7
    return [loss.detach(), *torch.autograd.grad(objective, list(model.parameters()))]


def shared_steps(rank: int, world: int, folder: str) -> None:
    """Each rank leaves its loss and the gradients averaged over ranks, as DistributedDataParallel averages them."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    found: Found = {}
    for counts, name, reduction in product(PARTITIONS[world], LOSSES, REDUCTIONS):
        ends = list(accumulate(counts))
        own = slice(ends[rank] - counts[rank], ends[rank])
        loss, *grads = step(name, reduction, ends[-1], own, distributed=True)
        found[counts, name, reduction] = [loss, *map(distributed.mean, grads)]
    found["memory",] = [torch.tensor(largest_on_this_rank(rank, world))]
    if DEVICE.type == "cpu":
        found["kernels",] = fused_step(rank, world)
    torch.save((found, refusal()), f"{folder}/{rank}.pt")
    distributed.barrier()
    dist.destroy_process_group()


def largest_on_this_rank(rank: int, world: int) -> int:
    draw, num = torch.Generator().manual_seed(rank), NUM_FOR_MEMORY // world
    z, labels = torch.randn(num, 4, generator=draw), torch.randint(0, 9, (num,), generator=draw)
    return largest_tensor(lambda z: tcl_loss(z, labels, distributed=True), z)


def fused_step(rank: int, world: int) -> list[Tensor]:
    num = 40 // world
    z, labels = (part[rank * num : (rank + 1) * num] for part in for_kernels())
    leaf = z.detach().requires_grad_()
    loss = tcl_loss(leaf, labels, backend="fused", precision="high", distributed=True)
    (grad,) = torch.autograd.grad(loss, leaf)
    return [loss.detach(), grad / world]


def for_kernels() -> tuple[Tensor, Tensor]:
    return torch.randn(40, 8, generator=torch.Generator().manual_seed(3)), torch.arange(40) % 6


def refusal() -> str:
    try:
        tcl_loss(torch.ones(2, 2), torch.zeros(2, dtype=torch.long), backend="dense", distributed=True)
    except UserError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module", params=PARTITIONS, ids="{} processes".format)
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Found, str]]:
    """What each rank found."""
    folder: Path = tmp_path_factory.mktemp("spread")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        spawn(shared_steps, args=(request.param, str(folder)), nprocs=request.param)
    return [torch.load(folder / f"{rank}.pt") for rank in range(request.param)]


@pytest.mark.parametrize("equal", [0, 1], ids=["equal parts", "unequal parts"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", LOSSES)
def test_loss_and_gradient_are_those_of_one_process(
    name: str, reduction: str, equal: int, ranks: list[tuple[Found, str]]
) -> None:
    counts = PARTITIONS[len(ranks)][equal]
    num = sum(counts)
    expected_loss, *expected_grads = step(name, reduction, num, slice(0, num), backend="dense")
    found = [found[counts, name, reduction] for found, _ in ranks]
    losses = [loss for loss, *_ in found]
    for loss in [torch.cat(losses)] if reduction == "none" else losses:
        assert relative_error(loss, expected_loss) < 1e-12
    for _, *grads in found:
        for grad, expected in zip(grads, expected_grads, strict=True):
            assert relative_error(grad, expected) < 1e-12


@pytest.mark.skipif(DEVICE.type == "cuda", reason="gloo, which joins these processes, is for CPUs")
def test_the_kernels_take_a_part_of_the_batch(ranks: list[tuple[Found, str]]) -> None:
    z, labels = for_kernels()
    leaf = z.double().requires_grad_()
    expected = tcl_loss(leaf, labels, backend="dense")
    (grad,) = torch.autograd.grad(expected, leaf)
    parts = [found["kernels",] for found, _ in ranks]
    assert all(relative_error(loss.double(), expected.detach()) < 1e-6 for loss, _ in parts)
    assert relative_error(torch.cat([grad for _, grad in parts]).double(), grad) < 1e-5


def test_memory_is_shared(ranks: list[tuple[Found, str]]) -> None:
    """No rank makes more than its own rows of the matrix, and dense would make all of them."""
    for found, _ in ranks:
        assert found["memory",][0].item() == NUM_FOR_MEMORY**2 // len(ranks)


def test_dense_is_for_one_process(ranks: list[tuple[Found, str]]) -> None:
    for _, sentence in ranks:
        assert "backend='dense' knows one process" in sentence
