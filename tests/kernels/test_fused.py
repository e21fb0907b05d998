"""The Triton kernels against float64 on the whole matrix; without a GPU they run through Triton's interpreter."""

from typing import Any

import pytest
import torch
from loss_cases import (
    DEVICE,
    LOSSES,
    Case,
    LossOf,
    all_pairs,
    answer,
    assert_close,
    every_loss,
    float32_tolerance,
    poison,
    quiet,
    relative_error,
    rows,
    well_conditioned,
)
from torch import Tensor

from contune.kernels import fused
from contune.losses import tcl_loss

pytestmark = quiet
VALUES: dict[str, Any] = {
    "num": (2, 63, 70),
    "dim": (8, 100, 300),
    "classes": ("one", "half", "all"),
    "temperature": (0.01, 0.1, 1.0),
    "k1": (0.0, 0.5, 1e6),
    "k2": (0.5, 1.5),
    "variant": ("out", "in"),
    "reduction": ("none", "sum", "mean"),
    "normalize": (True, False),
    "layout": ("plain", "turned", "gaps"),
    "candidates": (0, 77),
    "asking": ("both", "anchors", "candidates"),
    "loss": tuple(LOSSES),
    "pairs": ("labels", "matrix"),
}
GRID = all_pairs(**VALUES)
LARGE = [
    Case(1, 64),
    Case(200, 8, "half", 0.1, 5000.0, 1.5, candidates=63),
    Case(63, 100, "half", 0.1, 5000.0, 1.5, candidates=200),
    Case(30, 1030, "two", 0.1, 5000.0, 1.0, reduction="sum"),
]
OF_SMALL = {"num": (1, 16, 70), "dim": (8, 100, 256), "temperature": (0.05, 0.1, 1.0), "reduction": ("sum", "mean")}
SMALL = all_pairs(**{k: v for k, v in VALUES.items() if k not in ("normalize", "candidates", "asking")} | OF_SMALL)
ROADS = [
    Case(70, 20, "two", 0.1, 5000.0, 1.5),
    Case(70, 20, "half", 0.1, 0.0, 1.0, "in", reduction="mean"),
    Case(70, 20, "half", 0.1, 5000.0, 1.0, candidates=100),
    Case(70, 20, "half", 0.01, 5000.0, 1.5, normalize=False),
    Case(70, 20, "half", 0.01, 5000.0, 1.0, "in", candidates=70),
    Case(130, 260, "half"),
    Case(130, 260, "half", variant="in", candidates=70),
    *(Case(70, 20, "two", 0.1, 0.3, 1.3, loss=loss) for loss in ("auto", "epsilon")),
    *(Case(66, 20, "half", 0.01, 0.3, 1.3, candidates=70, loss=loss) for loss in ("auto", "sincere", "dcl")),
    Case(70, 260, "half", loss="sincere"),
    *(Case(66, 20, "half", 0.1, 0.3, 1.3, candidates=70, pairs="matrix", loss=x) for x in ("tcl", "auto", "sincere")),
    Case(130, 260, "two", variant="in", pairs="matrix"),
]
"""One for each way through the kernels, with more than one tile in both directions."""
SORTED, AS_GIVEN = 1, 10**9
"""Values of SORT_FROM: every batch the way large ones go, or the way middling ones do."""


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the batches whose gradient came with the loss."""
    sizes: list[int] = []
    usual = fused.loss_and_gradient

    def noted(z_ND: Tensor, *args: Any) -> tuple[Tensor, Tensor, Tensor]:
        sizes.append(len(z_ND))
        return usual(z_ND, *args)

    monkeypatch.setattr(fused, "loss_and_gradient", noted)
    return sizes


def assert_precise(case: Case, precision: str) -> None:
    """Also that the kernels write all memory that they read: what they leave out is NaN."""
    expected = answer(case, "dense", rounded=torch.float32)
    tolerance = 2e-3 * max(1.0, 0.1 / case.temperature) if precision == "fast" else float32_tolerance(case.temperature)
    with pytest.MonkeyPatch.context() as patch:
        poison(patch)
        found = answer(case, "fused", torch.float32, precision=precision)
    assert_close(found, expected, tolerance)


@pytest.mark.parametrize("case", [case for case in [*GRID, *LARGE] if well_conditioned(case)], ids=str)
def test_high_precision_is_float64_to_1e_5(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "SMALL_BATCH", 0)
    assert_precise(case, "high")


@pytest.mark.parametrize("case", [case for case in GRID + LARGE if case.temperature == 0.1], ids=str)
def test_fast_and_sorted_is_float64_to_2e_3(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "SMALL_BATCH", 0)
    monkeypatch.setattr(fused, "SORT_FROM", 1)
    assert_precise(case, "fast")


@pytest.mark.parametrize("case", [case for case in SMALL if well_conditioned(case)], ids=str)
def test_small_batches_are_float64_to_their_tolerance(case: Case, at_once: list[int]) -> None:
    assert_precise(case, ("fast", "high")[SMALL.index(case) % 2])
    assert at_once == [case.num]


@pytest.mark.parametrize(
    ("case", "processors"), [*((case, 1000) for case in ROADS), *((case, 1) for case in ROADS[:8:2])], ids=str
)
def test_splits_of_the_columns_pieces_and_sorting_change_nothing(
    case: Case, processors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some with many splits in half precision. Every other case is sorted with one split, the others with many."""
    is_sorted = (processors == 1) == (ROADS.index(case) % 2 == 0)
    monkeypatch.setattr(fused, "SORT_FROM", SORTED if is_sorted else AS_GIVEN)
    monkeypatch.setattr(fused, "SMALL_BATCH", 0)
    monkeypatch.setattr(fused, "num_processors", lambda _: processors)
    monkeypatch.setattr(fused, "COEFFICIENT_BYTES", 1)
    assert_precise(case, "high" if processors == 1 or case.temperature < 0.1 else "fast")


def loss_of(z: Tensor, **settings: Any) -> Tensor:
    return tcl_loss(z, (torch.arange(len(z)) % 5).to(DEVICE), backend="fused", **settings)


def leaf(num: int = 40, dim: int = 16) -> Tensor:
    return rows(num, dim, torch.float32).to(DEVICE).requires_grad_()


def test_a_small_batch_has_two_backward_passes_and_any_upstream_gradient(at_once: list[int]) -> None:
    z = leaf()
    loss = loss_of(z)
    (once,) = torch.autograd.grad(loss, z, retain_graph=True)
    (scaled,) = torch.autograd.grad(-3 * loss, z)
    torch.testing.assert_close(scaled, -3 * once)
    half = z.detach().half().requires_grad_()
    (scaled,) = torch.autograd.grad(loss_of(half) * 1e-6 * 2.0**16, half)
    torch.testing.assert_close(scaled.float() / 2**16, once * 1e-6, rtol=5e-2, atol=2e-9)
    assert at_once == [40, 40]


def test_labels_need_not_be_contiguous() -> None:
    z, table_N2 = leaf(), torch.stack([torch.arange(40) % 5, torch.arange(40) % 3], dim=1).to(DEVICE)
    for labels_N in (table_N2[:, 0], table_N2[:1, 0].expand(40)):
        loss, expected = (tcl_loss(z, labels, backend="fused") for labels in (labels_N, labels_N.contiguous()))
        assert loss == expected
        assert torch.equal(*(torch.autograd.grad(each, z)[0] for each in (loss, expected)))


def test_what_is_not_small_goes_the_usual_way(at_once: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    z = leaf()
    loss_of(z.detach())
    with torch.no_grad():
        loss_of(z)
    for settings in ({"reduction": "none"}, {"normalize": False}, {"temperature": 0.005}, {"distributed": True}):
        loss_of(z, **settings)
    loss_of(leaf(dim=300))
    monkeypatch.setattr(fused, "SMALL_BATCH", 39)
    loss_of(z)
    assert at_once == []


@pytest.mark.gpu
@pytest.mark.parametrize("dim", [128, 512, 2048])
def test_high_precision_does_not_follow_the_global_flag_for_tf32(dim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", True)
    z, labels = rows(3000, dim, torch.float32).cuda(), torch.arange(3000, device="cuda") % 100
    grads = []
    for x, backend in ((z.double(), "dense"), (z.clone(), "fused")):
        loss = tcl_loss(x.requires_grad_(), labels, backend=backend, precision="high")
        grads.append(torch.autograd.grad(loss, x)[0].double())
    assert relative_error(grads[1], grads[0]) < 2e-6


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fast", "high"])
@pytest.mark.parametrize("dim", [128, 512])
@every_loss
def test_a_captured_step_replays_on_new_embeddings(loss_of: LossOf, precision: str, dim: int) -> None:
    z, labels = rows(300, dim, torch.float32).cuda().requires_grad_(), torch.arange(300, device="cuda") % 10

    def step() -> tuple[Tensor, Tensor]:
        loss = loss_of(z, labels, precision=precision, distributed=True)
        return loss, torch.autograd.grad(loss, z)[0]

    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss, grad = step()
    with torch.no_grad():
        z.copy_(rows(300, dim, torch.float32).cuda().flip(0) * 2)
    graph.replay()
    expected_loss, expected_grad = step()
    assert torch.equal(loss, expected_loss)
    assert torch.equal(grad, expected_grad)
