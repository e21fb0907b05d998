"""`auto` chooses the backend that fits, and a backend that cannot run says why."""

from typing import Any

import pytest
import torch
from torch import Tensor

from contune.errors import UserError
from contune.kernels import autograd, dense, fused
from contune.losses import dispatch, ntxent_loss, supcon_loss, tcl_loss

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
Z = torch.randn(40, 8, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(40) % 5
WEIGHTS = torch.rand(40, 40, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The backends that were chosen, in turn."""
    names: list[str] = []
    by_function, by_matrix = autograd.PairLoss.apply, dense.loss_per_anchor

    def noted(*args: Any) -> Any:
        names.append(args[6].__name__.rpartition(".")[-1])
        return by_function(*args)  # type: ignore[no-untyped-call]

    def noted_dense(*args: Any) -> tuple[Tensor, Tensor]:
        names.append("dense")
        return by_matrix(*args)

    monkeypatch.setattr(autograd.PairLoss, "apply", noted)
    monkeypatch.setattr(dense, "loss_per_anchor", noted_dense)
    return names


@pytest.mark.parametrize("loss", [tcl_loss, supcon_loss, ntxent_loss])
def test_auto_on_a_cpu_writes_out_a_small_matrix_and_no_large_one(
    loss: Any, chosen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = loss(Z, LABELS)
    monkeypatch.setattr(dispatch, "SMALL_MATRIX", 40 * 40 - 1)
    torch.testing.assert_close(loss(Z, LABELS), small)
    monkeypatch.setattr(dispatch, "SMALL_MATRIX", 5 * 39)
    for num in (39, 40):
        tcl_loss(Z[:5], LABELS[:5], candidates=Z[:num], candidate_labels=LABELS[:num])
    assert chosen == ["dense", "chunked", "dense", "chunked"]


def test_a_process_without_rows_chooses_as_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """On GPUs, where another choice would exchange other tensors."""
    modules: list[Any] = []

    def noted(*args: Any) -> tuple[Tensor, Tensor]:
        modules.append(args[6])
        return torch.zeros(()), torch.ones(1)

    monkeypatch.setattr(autograd.PairLoss, "apply", noted)
    monkeypatch.setattr(dispatch, "world_size", lambda: 2)
    monkeypatch.setattr(fused, "unsupported", lambda *args: None)
    monkeypatch.setattr(torch.Tensor, "is_cuda", True, raising=False)
    for num in (40, 0):
        tcl_loss(Z[:num], LABELS[:num], distributed=True)
    assert modules == [fused, fused]


@pytest.mark.gpu
def test_auto_on_a_gpu_is_fused_where_that_runs(chosen: list[str]) -> None:
    z, labels = Z.cuda(), LABELS.cuda()
    torch.testing.assert_close(tcl_loss(z, labels).cpu(), tcl_loss(Z, LABELS), rtol=1e-4, atol=0.0)
    tcl_loss(z.double(), labels)
    tcl_loss(z, positives=labels[:, None] == labels)
    assert chosen == ["fused", "dense", "chunked", "chunked"]


@pytest.mark.parametrize(
    ("z", "settings", "word"),
    [
        (Z, {"labels": LABELS, "backend": "fused"}, "CUDA"),
        (Z.double(), {"labels": LABELS, "backend": "fused"}, "CUDA|float64"),
        (Z, {"positives": WEIGHTS.requires_grad_(), "backend": "chunked"}, "gradient for positives"),
        (Z, {"labels": LABELS, "temperature": torch.ones((), requires_grad=True), "backend": "chunked"}, "temperature"),
    ],
)
def test_a_backend_that_cannot_says_why(
    z: Tensor, settings: dict[str, Any], word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "interprets_triton", lambda: False)
    with pytest.raises(UserError, match=word):
        tcl_loss(z, **settings)


def test_fused_needs_triton_and_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="labels"):
        tcl_loss(Z.to(DEVICE), positives=WEIGHTS.detach().to(DEVICE), backend="fused")
    monkeypatch.setattr(fused, "HAS_TRITON", False)
    with pytest.raises(UserError, match="triton"):
        tcl_loss(Z.to(DEVICE), LABELS.to(DEVICE), backend="fused")
