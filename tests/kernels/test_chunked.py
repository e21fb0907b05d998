"""The chunked backend against float64 on the whole matrix: value, gradient and memory, over odd sizes and settings."""

from functools import partial
from typing import Any

import pytest
import torch
from loss_cases import (
    EVERY_LOSS,
    LOSSES,
    Case,
    LossOf,
    all_pairs,
    answer,
    assert_close,
    float32_tolerance,
    largest_tensor,
    poison,
    supcon_in,
    well_conditioned,
)
from torch import Tensor

from contune.kernels import chunked
from contune.losses import tcl_loss

GRID = all_pairs(
    num=(1, 2, 63, 100, 257),
    dim=(8, 64, 100, 128, 300),
    classes=("one", "two", "half", "all"),
    temperature=(0.01, 0.07, 0.1, 1.0),
    k1=(0.0, 0.5, 5000.0, 1e6),
    k2=(0.5, 1.0, 1.5, 10.0),
    variant=("out", "in"),
    pairs=("labels", "mask", "weights", "matrix"),
    reduction=("none", "sum", "mean"),
    normalize=(True, False),
    layout=("plain", "turned", "gaps"),
    candidates=(0, 77),
    asking=("both", "anchors", "candidates"),
    loss=tuple(LOSSES),
)


LARGE = [
    Case(1271, 8, "half", 0.07, 5000.0, 1.5),
    Case(1271, 100, "one", 0.1, 5000.0, 1.0, "out", "weights", "mean"),
    Case(1271, 64, "all", 0.1, candidates=63),
    Case(257, 2048, "two", 0.1, 5000.0, 1.5, "out", "labels", "mean"),
]
CASES = [*GRID, *LARGE]


@pytest.mark.parametrize("elements", [1, 2**19], ids=["blocks of 16", "whole"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_float64_is_the_whole_matrix_to_1e_10(case: Case, elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked, "BLOCK_ELEMENTS", elements)
    assert_close(answer(case, "chunked"), answer(case, "dense"), 1e-10)


@pytest.mark.parametrize("case", [case for case in CASES if well_conditioned(case)], ids=str)
def test_float32_is_float64_to_1e_5(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also that it writes all memory that it reads: what it leaves out is NaN."""
    expected = answer(case, "dense", rounded=torch.float32)
    poison(monkeypatch)
    assert_close(answer(case, "chunked", torch.float32), expected, float32_tolerance(case.temperature))


@pytest.mark.parametrize("case", [Case(1271, 20), Case(1271, 20, candidates=77, pairs="weights")], ids=str)
def test_threads_take_whole_blocks(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked, "BLOCK_ELEMENTS", 2**14)
    alone = answer(case, "chunked")
    torch.set_num_threads(3)
    try:
        together = answer(case, "chunked")
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(1)
    torch.testing.assert_close([together.loss, *together.grads], [alone.loss, *alone.grads], rtol=1e-12, atol=1e-14)


def queue_loss(z: Tensor, labels: Tensor, **settings: Any) -> Tensor:
    queue = torch.randn(len(z), 8, requires_grad=True)
    return tcl_loss(z, labels, candidates=queue, candidate_labels=labels, **settings)


def matrix_loss(z: Tensor, labels: Tensor, **settings: Any) -> Tensor:
    return tcl_loss(z, torch.nn.functional.one_hot(labels), **settings)


@pytest.mark.parametrize(
    "loss",
    [*EVERY_LOSS.values(), supcon_in, queue_loss, partial(tcl_loss, temperature=0.01, normalize=False), matrix_loss],
    ids=[*EVERY_LOSS, "supcon in", "candidates", "shifted", "label matrix"],
)
def test_the_largest_tensor_grows_with_the_batch_and_not_with_its_square(
    loss: LossOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunked, "BLOCK_ELEMENTS", 1)
    for num in (256, 512):
        compute = partial(loss, labels=torch.arange(num) % 7, backend="chunked")
        assert largest_tensor(compute, torch.randn(num, 8)) == 16 * num  # 16 rows are the fewest of a block


def test_a_block_has_as_many_elements_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked, "BLOCK_ELEMENTS", 2**16)
    z, labels = torch.randn(1024, 8), torch.arange(1024) % 7
    assert largest_tensor(lambda z: tcl_loss(z, labels, backend="chunked"), z) == 2**16
    assert largest_tensor(lambda z: tcl_loss(z, labels, backend="dense"), z) == 1024**2, "as the ruler shows"
