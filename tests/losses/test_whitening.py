"""Whitening, and W-MSE against numpy in float64."""

import numpy as np
import pytest
import torch
from torch import Tensor

from contune.errors import UserError
from contune.losses import wmse_loss
from contune.losses.whitening import sub_batches, whiten


def mixed(num: int, dim: int, seed: int = 0) -> Tensor:
    """Dimensions that vary together, around a mean other than 0."""
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.eye(dim) + 0.5 * torch.randn(dim, dim, generator=generator) / dim**0.5
    z: Tensor = torch.randn(num, dim, generator=generator) @ matrix + 5 * torch.randn(dim, generator=generator)
    return z.double()


def views(num: int, dim: int) -> tuple[Tensor, Tensor]:
    first = mixed(num, dim)
    return first, first + mixed(num, dim, seed=1)


def numpy_wmse(z1: Tensor, z2: Tensor, num_parts: int) -> float:
    """By the inverse of the covariance's Cholesky factor, one sub-batch and one sample after the other."""
    losses = []
    for part in range(num_parts):
        whitened = []
        for z in (z1, z2):
            rows = z.numpy()[part::num_parts]
            factor = np.linalg.cholesky(np.cov(rows, rowvar=False))
            whitened.append([np.linalg.inv(factor) @ (row - rows.mean(axis=0)) for row in rows])
        for one, other in zip(*whitened, strict=True):
            distance = one / np.linalg.norm(one) - other / np.linalg.norm(other)
            losses.append(float(distance @ distance))
    return float(np.mean(losses))


@pytest.mark.parametrize(("num", "dim"), [(128, 64), (20, 3), (1000, 17)])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_a_whitened_batch_is_white(num: int, dim: int, scale: float) -> None:
    z = scale * mixed(num, dim)
    for w, tolerance in ((whiten(z), 1e-5), (whiten(z.float()).double(), 2e-3)):
        torch.testing.assert_close(w.mean(dim=0), torch.zeros(dim).double(), rtol=0.0, atol=tolerance)
        torch.testing.assert_close(torch.cov(w.T), torch.eye(dim).double(), rtol=0.0, atol=tolerance)


def test_sub_batches_are_whitened_each_for_itself() -> None:
    z = mixed(60, 4)
    parts = whiten(sub_batches(z, 20))
    assert parts.shape == (3, 20, 4)
    for index, part in enumerate(parts):
        torch.testing.assert_close(part, whiten(z[index::3]))


@pytest.mark.parametrize(
    ("num", "size", "shape"),
    [(256, 128, (2, 128)), (100, 128, (1, 100)), (300, 128, (2, 150)), (257, 64, (1, 257)), (128, 128, (1, 128))],
)
def test_sub_batches_are_equal_and_no_smaller_than_asked(num: int, size: int, shape: tuple[int, int]) -> None:
    z = torch.arange(num).float()[:, None]
    parts = sub_batches(z, size)
    assert parts.shape == (*shape, 1)
    assert sorted(parts.flatten().tolist()) == z.flatten().tolist(), "every sample once"


@pytest.mark.parametrize(("size", "num_parts"), [(128, 1), (30, 2), (15, 4)])
def test_wmse_against_numpy(size: int, num_parts: int) -> None:
    z1, z2 = views(60, 4)
    assert wmse_loss(z1, z2, size=size).item() == pytest.approx(numpy_wmse(z1, z2, num_parts), rel=1e-9)


def test_the_gradient_is_that_of_finite_differences() -> None:
    z1, z2 = (z.requires_grad_() for z in views(10, 3))
    assert torch.autograd.gradcheck(lambda a, b: wmse_loss(a, b, size=5), (z1, z2))


def test_wmse_by_hand() -> None:
    z1, z2 = views(64, 4)
    assert wmse_loss(z1, z1).item() == pytest.approx(0, abs=1e-9)
    assert wmse_loss(z1, -z1).item() == pytest.approx(4)
    assert 0 < wmse_loss(z1, z2).item() < 2


def test_scale_shift_and_mixing_of_lower_dimensions_into_higher_do_not_matter() -> None:
    """A lower triangular matrix with a positive diagonal goes into the Cholesky factor, and out with it."""
    z1, z2 = views(200, 4)
    matrix = torch.tensor([[2.0, 0, 0, 0], [1, 0.5, 0, 0], [-1, 3, 1, 0], [2, 0, 1, 4]]).double()
    expected = wmse_loss(z1, z2)
    torch.testing.assert_close(wmse_loss(1e-3 * z1 + 9, 100 * z2), expected, rtol=1e-5, atol=0.0)
    torch.testing.assert_close(wmse_loss(z1 @ matrix.T, z2), expected, rtol=1e-9, atol=0.0)


def test_neither_order_within_a_sub_batch_nor_that_of_the_views_matters() -> None:
    z1, z2 = views(60, 4)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(1))
    expected = wmse_loss(z1, z2)
    torch.testing.assert_close(wmse_loss(z1[order], z2[order]), expected, rtol=1e-9, atol=0.0)
    torch.testing.assert_close(wmse_loss(z2, z1), expected, rtol=1e-9, atol=0.0)
    assert wmse_loss(z1[order], z2) > expected


@pytest.mark.parametrize("kind", ["collapsed", "one line", "ten dimensions", "steep spectrum"])
@pytest.mark.parametrize(("num", "dim"), [(128, 64), (65, 64), (257, 256)])
def test_a_singular_covariance_stays_finite_in_float32(kind: str, num: int, dim: int) -> None:
    generator = torch.Generator().manual_seed(0)
    rank = {"collapsed": 0, "one line": 1, "ten dimensions": 10, "steep spectrum": dim}[kind]
    steps = torch.logspace(0, -8, rank) if kind == "steep spectrum" else torch.ones(rank)
    z1 = (torch.randn(num, rank, generator=generator) * steps) @ torch.randn(rank, dim, generator=generator) + 0.5
    z1.requires_grad_()
    loss = wmse_loss(z1, z1.detach().roll(1, dims=0), size=num)
    loss.backward()
    assert loss.isfinite()
    assert z1.grad is not None
    assert z1.grad.isfinite().all()
    if kind == "collapsed":
        assert loss == 2


def test_half_precision_and_autocast_are_computed_in_float32() -> None:
    z1, z2 = (z.bfloat16() for z in views(64, 4))
    expected = wmse_loss(z1.float(), z2.float())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert wmse_loss(z1, z2) == expected


def test_too_few_samples_are_a_sentence() -> None:
    with pytest.raises(
        UserError, match=r"8 embeddings of size 8 cannot be whitened.*optim\.batch_images.*projector_dim"
    ):
        wmse_loss(*views(8, 8))
    with pytest.raises(UserError, match="16 embeddings of size 20 cannot be whitened"):
        wmse_loss(*views(64, 20), size=16)
    with pytest.raises(UserError, match="size must be above 0"):
        wmse_loss(*views(64, 4), size=0)
