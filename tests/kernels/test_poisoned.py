"""With NaN in all memory that is handed out unwritten, and once more without: the same bits each time."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from loss_cases import DEVICE, Answer, Case, answer
from torch import Tensor

from contune.kernels import chunked, fused, small

BASE = Case(100, 20, "half", normalize=True)
CASES = {
    "usual": BASE,
    "one number": BASE._replace(reduction="mean"),
    "sum": BASE._replace(reduction="sum", layout="turned"),
    "inner": BASE._replace(variant="in", k1=0.0),
    "shifted": BASE._replace(temperature=0.01, normalize=False),
    "shifted inner": BASE._replace(temperature=0.01, normalize=False, variant="in"),
    "nobody has a positive": BASE._replace(classes="all"),
    "one anchor": BASE._replace(num=1),
    "candidates": BASE._replace(candidates=77),
    "only candidates ask": BASE._replace(candidates=77, asking="candidates", variant="in"),
    "long": BASE._replace(dim=260),
}


def poisoned(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def made(*args: Any, **kwargs: Any) -> Tensor:
        tensor = make(*args, **kwargs)
        return tensor.fill_(math.nan if tensor.is_floating_point() else 10**6)

    return made


def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name in ((torch, "empty"), (torch, "empty_like"), (Tensor, "new_empty")):
        monkeypatch.setattr(owner, name, poisoned(getattr(owner, name)))


def assert_same_bits(one: Answer, other: Answer) -> None:
    for first, second in zip((one.loss, *one.grads), (other.loss, *other.grads), strict=True):
        assert first.isfinite().all()
        assert torch.equal(first, second)


def test_the_poison_works(monkeypatch: pytest.MonkeyPatch) -> None:
    poison(monkeypatch)
    assert torch.empty(3).isnan().all()
    assert torch.ones(3).new_empty(2).isnan().all()
    assert torch.empty_like(torch.ones(3)).isnan().all()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("elements", [1, 2**19])
def test_chunked_writes_all_it_reads(name: str, elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked, "BLOCK_ELEMENTS", elements)
    clean = answer(CASES[name], "chunked", torch.float32)
    poison(monkeypatch)
    assert_same_bits(answer(CASES[name], "chunked", torch.float32), clean)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("precision", ["fast", "high"])
@pytest.mark.parametrize("sort_from", [1, 10**9], ids=["sorted", "as given"])
def test_fused_writes_all_it_reads(name: str, precision: str, sort_from: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small, "LARGEST_BATCH", 0)
    monkeypatch.setattr(fused, "SORT_FROM", sort_from)
    monkeypatch.setattr(fused, "COEFFICIENT_BYTES", 1)
    monkeypatch.setattr(fused, "num_processors", lambda _: 4 if sort_from == 1 else 1000)
    clean = answer(CASES[name], "fused", torch.float32, precision=precision, device=DEVICE)
    poison(monkeypatch)
    assert_same_bits(answer(CASES[name], "fused", torch.float32, precision=precision, device=DEVICE), clean)
