"""`auto` takes what fits, and a backend that was asked for and cannot run says why."""

from typing import Any

import pytest
import torch
from loss_cases import DEVICE
from torch import Tensor

from contune.errors import UserError
from contune.kernels import dense, engine, fused
from contune.kernels.problem import Knobs
from contune.losses import dispatch, ntxent_loss, supcon_loss, tcl_loss

Z = torch.randn(40, 8, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(40) % 5


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The backends that were taken, in turn."""
    names: list[str] = []
    through_engine, by_matrix = engine.pair_loss, dense.loss_per_anchor

    def noted(*args: Any) -> tuple[Tensor, Tensor]:
        names.append(args[-1].__name__.rpartition(".")[-1])
        return through_engine(*args)

    def noted_dense(*args: Any) -> tuple[Tensor, Tensor]:
        names.append("dense")
        return by_matrix(*args)

    monkeypatch.setattr(engine, "pair_loss", noted)
    monkeypatch.setattr(dense, "loss_per_anchor", noted_dense)
    return names


@pytest.mark.parametrize("loss", [tcl_loss, supcon_loss, ntxent_loss])
def test_auto_on_a_cpu_writes_out_a_small_matrix_and_no_large_one(
    loss: Any, taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = loss(Z, LABELS)
    monkeypatch.setattr(dispatch, "SMALL_MATRIX", 40 * 40 - 1)
    large = loss(Z, LABELS)
    assert taken == ["dense", "chunked"]
    torch.testing.assert_close(large, small)


def test_auto_counts_the_candidates(taken: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "SMALL_MATRIX", 5 * 39)
    for num in (39, 40):
        tcl_loss(Z[:5], LABELS[:5], candidates=Z[:num], candidate_labels=LABELS[:num])
    assert taken == ["dense", "chunked"]


def test_auto_is_fused_where_that_runs(taken: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        fused, "is_supported", lambda z, positives, knobs: positives is None and z.dtype != torch.float64
    )
    monkeypatch.setattr(dispatch, "SMALL_MATRIX", 0)
    actual = tcl_loss(Z.to(DEVICE), LABELS.to(DEVICE))
    torch.testing.assert_close(actual.cpu(), tcl_loss(Z, LABELS, backend="dense"), rtol=1e-4, atol=0.0)
    tcl_loss(Z.double(), LABELS)
    tcl_loss(Z, positives=LABELS[:, None] == LABELS)
    assert taken == ["fused", "dense", "chunked", "chunked"]


@pytest.mark.parametrize("small_matrix", [0, 40 * 40])
def test_weights_that_learn_get_their_gradient_at_every_size(
    small_matrix: int, taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "SMALL_MATRIX", small_matrix)
    weights = torch.rand(40, 40, generator=torch.Generator().manual_seed(1)).requires_grad_()
    (grad,) = torch.autograd.grad(tcl_loss(Z, positives=weights), weights)
    assert taken == ["dense"]
    assert grad.norm() > 0


def test_a_backend_without_gradient_for_weights_says_so() -> None:
    weights = torch.rand(40, 40, generator=torch.Generator().manual_seed(1)).requires_grad_()
    with pytest.raises(UserError, match="backend='chunked' has no gradient for positives; backend='dense' has one"):
        tcl_loss(Z, positives=weights, backend="chunked")
    expected = tcl_loss(Z, positives=weights)
    with torch.no_grad():
        torch.testing.assert_close(tcl_loss(Z, positives=weights, backend="chunked"), expected)


def test_fused_is_for_cuda_only_when_nobody_asks_for_it() -> None:
    """The interpreter is a test's, never a user's."""
    assert fused.is_supported(Z.to(DEVICE), None, Knobs(0.1, 5000.0, 1.0)) == (DEVICE.type == "cuda")


@pytest.mark.parametrize(
    ("z", "settings", "sentence"),
    [
        (Z, {"labels": LABELS}, "backend='fused' needs a CUDA device and the embeddings are on cpu"),
        (Z.double(), {"labels": LABELS}, "backend='fused' computes in float32 and got float64"),
        (Z, {"positives": torch.eye(40)}, "backend='fused' goes by labels and not by a matrix of positives"),
    ],
)
def test_fused_says_why_it_cannot(
    z: Tensor, settings: dict[str, Tensor], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "interprets_triton", lambda: False)
    with pytest.raises(UserError) as raised:
        tcl_loss(z, backend="fused", **settings)  # type: ignore[arg-type]  # tensors, all of them
    assert str(raised.value) == f"{sentence}; backend='auto' takes another"


def test_fused_says_that_triton_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "HAS_TRITON", False)
    with pytest.raises(UserError, match="needs the package triton"):
        tcl_loss(Z.to(DEVICE), LABELS.to(DEVICE), backend="fused")


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(UserError, match="unknown precision 'hihg'; did you mean high"):
        tcl_loss(Z, LABELS, precision="hihg")


def test_distributed_in_a_single_process_is_as_without() -> None:
    assert torch.equal(tcl_loss(Z, LABELS, distributed=True), tcl_loss(Z, LABELS))
