"""Small batches, whose gradient is computed with the loss: against float64, and where they are taken."""

from typing import Any

import pytest
import torch
from loss_cases import DEVICE, Answer, Case, all_pairs, answer, assert_close, float32_tolerance, well_conditioned
from loss_ways import quiet
from test_poisoned import assert_same_bits, poison
from torch import Tensor

from contune.kernels import small
from contune.losses import tcl_loss

pytestmark = quiet

GRID = all_pairs(
    num=(1, 3, 16, 63, 100, 130),
    dim=(8, 100, 128, 200, 256),
    classes=("one", "two", "half", "all"),
    temperature=(0.05, 0.1, 1.0),
    k1=(0.0, 0.5, 5000.0, 1e6),
    k2=(0.5, 1.0, 1.5),
    variant=("out", "in"),
    reduction=("sum", "mean"),
    layout=("plain", "turned", "gaps"),
)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the batches that went this way."""
    sizes: list[int] = []
    usual = small.pair_loss

    def noted(z_ND: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
        sizes.append(len(z_ND))
        return usual(z_ND, *args)

    monkeypatch.setattr(small, "pair_loss", noted)
    return sizes


def fused_answer(case: Case, precision: str) -> Answer:
    return answer(case, "fused", torch.float32, precision=precision, device=DEVICE)


@pytest.mark.parametrize("case", [case for case in GRID if well_conditioned(case)], ids=str)
@pytest.mark.parametrize("precision", ["fast", "high"])
def test_is_float64_to_its_tolerance(case: Case, precision: str, taken: list[int]) -> None:
    expected = answer(case, "dense", rounded=torch.float32)
    tolerance = 2e-3 * max(1.0, 0.1 / case.temperature) if precision == "fast" else float32_tolerance(case.temperature)
    assert_close(fused_answer(case, precision), expected, tolerance)
    assert taken == [case.num]


@pytest.mark.parametrize("variant", ["out", "in"])
def test_writes_all_it_reads(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(100, 20, variant=variant, reduction="mean", layout="gaps")
    clean = fused_answer(case, "fast")
    poison(monkeypatch)
    assert_same_bits(fused_answer(case, "fast"), clean)


def loss_of(z: Tensor, **settings: Any) -> Tensor:
    return tcl_loss(z, (torch.arange(len(z)) % 5).to(DEVICE), backend="fused", **settings)


def embeddings(num: int = 40, dim: int = 16) -> Tensor:
    return torch.randn(num, dim, generator=torch.Generator().manual_seed(1)).to(DEVICE).requires_grad_()


def test_two_backward_passes_and_any_upstream_gradient(taken: list[int]) -> None:
    z = embeddings()
    loss = loss_of(z)
    (once,) = torch.autograd.grad(loss, z, retain_graph=True)
    (scaled,) = torch.autograd.grad(-3 * loss, z)
    torch.testing.assert_close(scaled, -3 * once)
    assert taken == [40]


@pytest.mark.parametrize("view", ["column", "expanded"])
def test_labels_need_not_lie_one_after_another(view: str, taken: list[int]) -> None:
    z, table_N2 = embeddings(), torch.stack([torch.arange(40) % 5, torch.arange(40) % 3], dim=1).to(DEVICE)
    labels_N = {
        "column": table_N2[:, 0],
        "expanded": torch.zeros(1, dtype=torch.int64, device=DEVICE).expand(40),
    }[view]
    assert not labels_N.is_contiguous()
    loss, expected = (tcl_loss(z, labels, backend="fused") for labels in (labels_N, labels_N.contiguous()))
    assert loss == expected
    assert torch.equal(*(torch.autograd.grad(each, z)[0] for each in (loss, expected)))
    assert taken == [40, 40]


def test_float16_keeps_a_gradient_that_a_loss_scaler_has_made_large_enough() -> None:
    z = embeddings()
    half = z.detach().half().requires_grad_()
    (expected,) = torch.autograd.grad(loss_of(z) * 1e-6, z)
    (actual,) = torch.autograd.grad(loss_of(half) * 1e-6 * 2.0**16, half)
    torch.testing.assert_close(actual.float() / 2**16, expected, rtol=5e-2, atol=2e-9)


def test_everything_else_goes_the_usual_way(taken: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    z = embeddings()
    loss_of(z.detach())
    with torch.no_grad():
        loss_of(z)
    loss_of(z, reduction="none")
    loss_of(z, normalize=False)
    loss_of(z, temperature=0.005)
    loss_of(embeddings(dim=300))
    monkeypatch.setattr(small, "LARGEST_BATCH", 39)
    loss_of(z)
    assert taken == []
