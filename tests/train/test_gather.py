"""Gradients through `distributed.gather`: two processes with data of their own against one with all of it."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn

from contune import distributed
from contune.losses import npair_loss, ntxent_loss, supcon_loss, tcl_loss, triplet_loss

PairLoss = Callable[[Tensor, Tensor], Tensor]
LOSSES: dict[str, PairLoss] = {
    "tcl": tcl_loss,
    "supcon": supcon_loss,
    "ntxent": ntxent_loss,
    "triplet": triplet_loss,
    "npair": npair_loss,
}
NUM_LOCAL, WORLD = 12, 2


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 8)).double()


def batch(loss: str) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    x_ND = torch.randn(NUM_LOCAL * WORLD, 6, generator=generator, dtype=torch.float64)
    labels_N = torch.randint(0, 4, (len(x_ND),), generator=generator)
    return x_ND, torch.arange(NUM_LOCAL).repeat_interleave(WORLD) if loss == "ntxent" else labels_N


def gradients(model: nn.Module, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(model.parameters())))


def shared_step(rank: int, folder: str) -> None:
    """Rank 0 leaves, for each loss, its value and the gradients averaged over ranks, as DDP averages them."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=WORLD)
    found = {}
    own = slice(rank * NUM_LOCAL, (rank + 1) * NUM_LOCAL)
    for name, pair_loss in LOSSES.items():
        model, (x_ND, groups_N) = network(), batch(name)
        loss = pair_loss(distributed.gather(model(x_ND[own])), distributed.gather(groups_N[own]))
        found[name] = [distributed.mean(value) for value in (loss.detach(), *gradients(model, loss))]
    if distributed.is_main():
        torch.save(found, f"{folder}/found.pt")
    distributed.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Tensor]]:
    folder: Path = tmp_path_factory.mktemp("gather")
    spawn(shared_step, args=(str(folder),), nprocs=WORLD)
    values: dict[str, list[Tensor]] = torch.load(folder / "found.pt")
    return values


@pytest.mark.parametrize("name", LOSSES)
def test_value_and_averaged_gradient_are_those_of_one_process(name: str, found: dict[str, list[Tensor]]) -> None:
    model, (x_ND, groups_N) = network(), batch(name)
    loss = LOSSES[name](model(x_ND), groups_N)
    value, *averaged = found[name]
    torch.testing.assert_close(value, loss.detach(), rtol=1e-12, atol=1e-12)
    for theirs, ours in zip(averaged, gradients(model, loss), strict=True):
        assert ours.abs().max() > 1e-6
        torch.testing.assert_close(theirs, ours, rtol=1e-12, atol=1e-12)


def test_one_process_gathers_and_averages_nothing() -> None:
    z_ND = torch.randn(4, 3, requires_grad=True)
    assert distributed.gather(z_ND) is z_ND
    assert torch.equal(distributed.mean(z_ND), z_ND)
    assert (distributed.rank(), distributed.world_size(), distributed.is_main()) == (0, 1, True)
    module = nn.Linear(3, 2)
    assert distributed.wrap(module, torch.device("cpu")) is module
