"""A batch spread over processes: the loss and the gradient of one process that has all of it, and less memory.

`distributed=True` does that for losses by labels. For the others `distributed.gather` brings the rows together.
"""

import warnings
from collections.abc import Callable
from itertools import accumulate, product
from typing import Any

import pytest
import torch
import torch.distributed as dist
from command_line import START_METHOD
from loss_cases import DEVICE, EVERY_LOSS, largest_tensor, relative_error, rows, supcon_in
from torch import Tensor, nn
from torch.multiprocessing.spawn import start_processes

from contune import distributed
from contune.errors import UserError
from contune.losses import eps_supinfonce_loss, npair_loss, ntxent_loss, tcl_loss, triplet_loss

KERNELS: dict[str, Callable[..., Tensor]] = {
    **EVERY_LOSS,
    "epsilon": eps_supinfonce_loss,
    **{f"{name}, label matrix": loss for name, loss in EVERY_LOSS.items()},
}
LOSSES: dict[str, Callable[..., Tensor]] = {**KERNELS, "supcon in": supcon_in, "ntxent": ntxent_loss}
GATHERED: dict[str, Callable[..., Tensor]] = {"tcl": tcl_loss, "triplet": triplet_loss, "npair": npair_loss}
WORLD = 3
PARTITIONS = ((5, 5, 5), (7, 0, 6))
"""Rows of each rank, equally and unequally many; one has none."""
CASES = list(product(PARTITIONS, LOSSES, ("mean", "sum", "none")))
BY_KERNELS = [
    ("auto", "high"),
    ("sincere", "high"),
    ("dcl, label matrix", "high"),
    ("tcl", "fast"),
    ("tcl, label matrix", "fast"),
]
NUM_FOR_MEMORY, NUM_FOR_KERNELS = 240, 42
Found = dict[tuple[Any, ...], list[Tensor]]


def batch(num: int, name: str) -> tuple[nn.Module, Tensor, Tensor, Tensor]:
    """A model, inputs, labels or ids, and a weight for each anchor's loss. Positives are on all ranks."""
    torch.manual_seed(num)
    model, x_ND, weights_N = nn.Linear(6, 5).double(), torch.randn(num, 6).double(), torch.randn(num).double()
    labels_N = torch.randint(0, 2, (num, 4)) if "matrix" in name else torch.randint(0, 4, (num,))
    return model, x_ND, torch.arange(num) % (num // 2) if name == "ntxent" else labels_N, weights_N


def step(name: str, reduction: str, num: int, own: slice, **settings: Any) -> list[Tensor]:
    """The loss of some rows, and the model's gradients from it times 1.7, or times each anchor's own weight."""
    model, x_ND, labels_N, weights_N = batch(num, name)
    loss = LOSSES[name](model(x_ND[own]), labels_N[own], reduction=reduction, **settings)
    objective = (loss * weights_N[own]).sum() if reduction == "none" else loss * 1.7
    return [loss.detach(), *torch.autograd.grad(objective, list(model.parameters()))]


def gathered_step(name: str, own: slice) -> list[Tensor]:
    model, x_ND, labels_N, _ = batch(12, name)
    loss = GATHERED[name](distributed.gather(model(x_ND[own])), distributed.gather(labels_N[own]))
    return [loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))]


def fused_step(name: str, own: slice, **settings: Any) -> list[Tensor]:
    leaf, labels = rows(NUM_FOR_KERNELS, 8, torch.float32)[own].requires_grad_(), torch.arange(NUM_FOR_KERNELS) % 6
    if "matrix" in name:  # the largest entries are on one rank
        labels = torch.nn.functional.one_hot(labels) + (labels[:, None] == torch.arange(6) + 1) * labels[:, None] * 0.1
    loss = KERNELS[name](leaf, labels[own], **settings)
    return [loss.detach(), torch.autograd.grad(loss, leaf)[0]]


def shared_steps(rank: int, folder: str) -> None:
    """Each rank leaves its loss and the gradients averaged over ranks, as DistributedDataParallel averages them."""
    torch.set_num_threads(1)
    warnings.filterwarnings("error", "no anchor")  # which would be wrong: one rank has no rows, but others have
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=WORLD)
    found: Found = {}
    for counts, name, reduction in CASES:
        ends = list(accumulate(counts))
        own = slice(ends[rank] - counts[rank], ends[rank])
        loss, *grads = step(name, reduction, ends[-1], own, distributed=True)
        found[counts, name, reduction] = [loss, *map(distributed.mean, grads)]
    for name in GATHERED:
        num = 12 // WORLD
        found["gathered", name] = [*map(distributed.mean, gathered_step(name, slice(num * rank, num * rank + num)))]
    z, labels = rows(NUM_FOR_MEMORY // WORLD, 4), torch.arange(NUM_FOR_MEMORY // WORLD) % 9
    found["memory",] = [torch.tensor(largest_tensor(lambda z: tcl_loss(z, labels, distributed=True), z))]
    if DEVICE.type == "cpu":
        own = [slice(0, 14), slice(14, 14), slice(14, NUM_FOR_KERNELS)][rank]
        for name, precision in BY_KERNELS:
            loss, grad = fused_step(name, own, backend="fused", precision=precision, distributed=True)
            found["kernels", name, precision] = [loss, grad / WORLD]
    learned: Any = torch.ones((), requires_grad=True)
    for word, settings in (("one process", {"backend": "dense"}), ("Gather", {"temperature": learned})):
        with pytest.raises(UserError, match=word):
            tcl_loss(z, labels, distributed=True, **settings)
    torch.save(found, f"{folder}/{rank}.pt")
    distributed.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Found]:
    """What each rank found. All checks share these processes."""
    folder = tmp_path_factory.mktemp("spread")
    start_processes(shared_steps, args=(str(folder),), nprocs=WORLD, start_method=START_METHOD)
    return [torch.load(folder / f"{rank}.pt") for rank in range(WORLD)]


@pytest.mark.parametrize(("counts", "name", "reduction"), CASES)
def test_loss_and_gradient_are_those_of_one_process(
    counts: tuple[int, ...], name: str, reduction: str, ranks: list[Found]
) -> None:
    num = sum(counts)
    expected_loss, *expected_grads = step(name, reduction, num, slice(0, num), backend="dense")
    losses = [found[counts, name, reduction][0] for found in ranks]
    for loss in [torch.cat(losses)] if reduction == "none" else losses:
        assert relative_error(loss, expected_loss) < 1e-12
    for found in ranks:
        for grad, expected in zip(found[counts, name, reduction][1:], expected_grads, strict=True):
            assert relative_error(grad, expected) < 1e-12


@pytest.mark.parametrize("name", GATHERED)
def test_gathered_rows_give_the_gradient_of_one_process(name: str, ranks: list[Found]) -> None:
    for value, expected in zip(ranks[0]["gathered", name], gathered_step(name, slice(0, 12)), strict=True):
        assert expected.abs().max() > 1e-6
        torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.skipif(DEVICE.type == "cuda", reason="gloo, which joins these processes, is for CPUs")
@pytest.mark.parametrize(("name", "precision"), BY_KERNELS)
def test_the_kernels_take_a_part_of_the_batch(name: str, precision: str, ranks: list[Found]) -> None:
    tolerance = {"high": 1e-5, "fast": 2e-3}[precision]
    loss, grad = fused_step(name, slice(0, NUM_FOR_KERNELS), backend="dense")
    parts = [found["kernels", name, precision] for found in ranks]
    assert all(relative_error(part[0], loss) < tolerance for part in parts)
    assert relative_error(torch.cat([part[1] for part in parts]), grad) < tolerance


def test_memory_is_shared(ranks: list[Found]) -> None:
    """No rank makes more than its own rows of the matrix, and dense would make all of them."""
    assert all(found["memory",][0].item() == NUM_FOR_MEMORY**2 // WORLD for found in ranks)


def test_one_process_gathers_nothing() -> None:
    z, labels = rows(8), torch.arange(8) % 2
    assert distributed.gather(z) is z
    assert torch.equal(tcl_loss(z, labels, distributed=True), tcl_loss(z, labels))
