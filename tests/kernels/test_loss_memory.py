"""The chunked backend never holds the N×N matrix: its largest tensor grows with N and not with N²."""

from functools import partial
from typing import Any

import pytest
import torch
from largest_tensor import largest_tensor
from loss_ways import LossOf, supcon_in
from torch import Tensor

from contune.kernels import chunked
from contune.losses import tcl_loss

DIM, ROWS = 8, 16
"""16 is the fewest rows of a block."""


def queue_loss(z: Tensor, labels: Tensor, **settings: Any) -> Tensor:
    queue = torch.randn(len(z), DIM, requires_grad=True)
    return tcl_loss(z, labels, candidates=queue, candidate_labels=labels, **settings)


@pytest.mark.parametrize(
    "loss",
    [tcl_loss, supcon_in, queue_loss, partial(tcl_loss, temperature=0.01, normalize=False)],
    ids=["tcl", "supcon in", "candidates", "shifted"],
)
def test_the_largest_tensor_grows_with_the_batch_and_not_with_its_square(
    loss: LossOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunked, "BLOCK_ELEMENTS", 1)
    for num in (512, 1024, 2048):
        compute = partial(loss, labels=torch.arange(num) % 7, backend="chunked")
        assert largest_tensor(compute, torch.randn(num, DIM)) == ROWS * num


def test_a_block_holds_as_many_elements_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked, "BLOCK_ELEMENTS", 2**16)
    z, labels = torch.randn(2048, DIM), torch.arange(2048) % 7
    assert largest_tensor(lambda z: tcl_loss(z, labels, backend="chunked"), z) == 2**16
    assert largest_tensor(lambda z: tcl_loss(z, labels, backend="dense"), z) == 2048**2, "as the ruler shows"
