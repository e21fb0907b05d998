"""The chunked backend never holds the N×N matrix: its largest tensor grows with N and not with N²."""

import pytest
import torch
from largest_tensor import largest_tensor

from contune.kernels import chunked
from contune.losses import supcon_loss, tcl_loss

DIM, ROWS = 8, 16
"""16 is the fewest rows of a block."""


@pytest.mark.parametrize("kind", ["tcl", "supcon in", "shifted", "candidates"])
def test_the_largest_tensor_grows_with_the_batch_and_not_with_its_square(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunked, "BLOCK_ELEMENTS", 1)
    for num in (512, 1024, 2048):
        z, labels = torch.randn(num, DIM), torch.arange(num) % 7
        queue = torch.randn(num, DIM, requires_grad=True)
        compute = {
            "tcl": lambda z, y=labels: tcl_loss(z, y, backend="chunked"),
            "supcon in": lambda z, y=labels: supcon_loss(z, y, variant="in", backend="chunked"),
            "shifted": lambda z, y=labels: tcl_loss(z, y, temperature=0.01, normalize=False, backend="chunked"),
            "candidates": lambda z, y=labels, c=queue: tcl_loss(
                z, y, candidates=c, candidate_labels=y, backend="chunked"
            ),
        }[kind]
        assert largest_tensor(compute, z) == ROWS * num


def test_a_block_holds_as_many_elements_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked, "BLOCK_ELEMENTS", 2**16)
    z, labels = torch.randn(2048, DIM), torch.arange(2048) % 7
    assert largest_tensor(lambda z: tcl_loss(z, labels, backend="chunked"), z) == 2**16
    assert largest_tensor(lambda z: tcl_loss(z, labels, backend="dense"), z) == 2048**2, "as the ruler shows"
