"""Batches and numbers at the edge of sense, on every backend: what is documented happens, and nothing else."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from loss_cases import (
    CHUNKED,
    DENSE,
    EVERY_LOSS,
    FUSED,
    LossOf,
    Way,
    closed_ways,
    every_way,
    quiet,
    relative_error,
    rows,
    solved,
    supcon_in,
)
from torch import Tensor

from contune.errors import UserError
from contune.kernels import fused
from contune.losses import dcl_loss, dispatch, sincere_loss, supcon_loss, tcl_loss

pytestmark = quiet


@every_way
@pytest.mark.parametrize("loss_of", [*EVERY_LOSS.values(), supcon_in])
def test_an_anchor_without_a_positive_is_an_exact_zero_and_not_in_the_mean(way: Way, loss_of: LossOf) -> None:
    z, labels = rows(5), torch.tensor([3, 1, 3, 2, 3])
    each, _ = solved(way, z, labels, loss_of=loss_of, reduction="none")
    assert (each == 0).tolist() == [False, True, False, True, False]
    mean, _ = solved(way, z, labels, loss_of=loss_of)
    torch.testing.assert_close(mean, each.sum() / 3, rtol=1e-6, atol=0.0)


@every_way
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("num", [1, 5])
def test_a_batch_without_positives_is_zero_with_zero_gradient_and_a_warning(way: Way, reduction: str, num: int) -> None:
    with pytest.warns(UserWarning, match=f"no anchor in this batch of {num} has a positive"):
        loss, grad = solved(way, rows(num), torch.arange(num), reduction=reduction)
    assert (loss == 0).all()
    assert (grad == 0).all()


@every_way
@pytest.mark.parametrize("loss_of", [sincere_loss, dcl_loss])
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_without_negatives_there_is_nothing_to_tell_apart(way: Way, loss_of: LossOf, reduction: str) -> None:
    z, labels = rows(5), torch.zeros(5, dtype=torch.long)
    for temperature in (0.1, 0.01):
        dispatch._sizes_seen.clear()
        with pytest.warns(UserWarning, match="no anchor in this batch of 5 has both"):
            loss, grad = solved(way, z, labels, loss_of=loss_of, reduction=reduction, temperature=temperature)
        assert (loss == 0).all()
        assert (grad == 0).all()


@closed_ways
@pytest.mark.parametrize("loss_of", EVERY_LOSS.values(), ids=EVERY_LOSS)
def test_positives_and_negatives_far_apart_are_no_overflow(way: Way, loss_of: LossOf) -> None:
    """By e^200 at τ = 0.01, one way for some anchors and the other way for others."""
    z = torch.tensor([[1.0, 0.0], [1.0, 0.01], [-1.0, 0.02], [-1.0, 0.03], [1.0, -0.01], [-1.0, -0.02]])
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    expected = solved(DENSE, z, labels, loss_of=loss_of, temperature=0.01)
    loss, grad = solved(way, z, labels, loss_of=loss_of, temperature=0.01)
    assert relative_error(loss, expected[0]) < 1e-3
    assert relative_error(grad, expected[1]) < (2e-2 if way.precision == "fast" else 1e-3)


@closed_ways
def test_weights_leave_the_exponentials_room(way: Way) -> None:
    z, weights, settings = 1 + rows(16) / 100, rows(16).abs(), {"temperature": 0.0145, "reduction": "none"}
    expected = solved(DENSE, z, weights, loss_of=supcon_in, **settings)
    assert relative_error(solved(way, z, weights, loss_of=supcon_in, **settings)[0], expected[0]) < 1e-2


@closed_ways
def test_nothing_to_compare_is_nothing_learnt(way: Way) -> None:
    z, labels, none = rows(5), torch.arange(5) % 2, torch.zeros(0, dtype=torch.long)
    queue = way.tensor(torch.zeros(0, 6, dtype=way.dtype))
    with pytest.warns(UserWarning, match="no anchor in this batch of 0"):
        assert solved(way, z[:0], none)[0] == 0
    with pytest.warns(UserWarning, match="no anchor in this batch of 5"):
        loss, grad = solved(way, z, labels, candidates=queue, candidate_labels=way.tensor(none))
    assert loss == 0
    assert (grad == 0).all()


@closed_ways
@pytest.mark.parametrize(
    ("loss_of", "temperature"), list(zip([*EVERY_LOSS.values(), supcon_in], [0.01, 0.1, 0.1, 0.01, 0.01], strict=True))
)
def test_equal_embeddings_are_no_special_case(way: Way, temperature: float, loss_of: LossOf) -> None:
    z, labels = rows(3).repeat(4, 1), torch.arange(12) % 2
    expected = solved(DENSE, z, labels, loss_of=loss_of, temperature=temperature)
    loss, grad = solved(way, z, labels, loss_of=loss_of, temperature=temperature)
    tolerance = 2e-3 * max(1.0, 0.02 / temperature) if way.precision == "fast" else 1e-4
    assert relative_error(loss, expected[0]) < tolerance
    assert (grad - expected[1]).norm() < tolerance / temperature


@every_way
def test_a_zero_vector_is_a_number(way: Way) -> None:
    z, labels = rows(8), torch.arange(8) % 2
    z[:3] = 0
    loss, grad = solved(way, z, labels)
    torch.testing.assert_close(loss, solved(DENSE, z, labels)[0], rtol=1e-3, atol=0.0)
    assert (grad[:3] == 0).all(), "it has no direction to turn"
    assert 0 < grad[3:].norm() < 100
    loss, grad = solved(way, torch.zeros(8, 6), labels)
    assert loss.isfinite()
    assert (grad == 0).all()


@every_way
def test_an_embedding_too_long_to_measure_is_no_zero_vector(way: Way) -> None:
    z, labels = rows(8), torch.arange(8) % 2
    z[3] *= 1e200 if way.dtype == torch.float64 else 1e20
    for reduction in ("mean", "none"):
        loss, grad = solved(way, z, labels, reduction=reduction)
        assert loss.isnan().any()
        assert grad.isnan().all()


@every_way
@pytest.mark.parametrize(("bad", "temperature"), [(math.nan, 0.1), (math.inf, 0.01)])
@pytest.mark.parametrize("loss_of", [*EVERY_LOSS.values(), supcon_in])
def test_what_is_not_a_number_goes_in_and_comes_out(way: Way, bad: float, temperature: float, loss_of: LossOf) -> None:
    z, labels = rows(20), torch.arange(20) % 3
    z[14, 2] = bad
    loss, grad = solved(way, z, labels, loss_of=loss_of, temperature=temperature)
    assert loss.isnan()
    assert grad.isnan().all()


@pytest.mark.parametrize("way", [DENSE, CHUNKED, *FUSED], ids=str)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float16, 1e-3), (torch.bfloat16, 4e-3)])
def test_half_precision_in_is_half_precision_out_and_float32_between(
    way: Way, dtype: torch.dtype, tolerance: float
) -> None:
    z, labels = rows(40, 16, dtype), torch.arange(40) % 7
    leaf = way.tensor(z).detach().requires_grad_()
    loss = tcl_loss(leaf, way.tensor(labels), reduction="sum", **way.settings)
    (grad,) = torch.autograd.grad(loss, leaf)
    expected, expected_grad = solved(DENSE, z, labels, loss_of=tcl_loss, reduction="sum")
    assert loss.dtype == torch.float32
    assert grad.dtype == dtype
    assert relative_error(loss.double().cpu(), expected) < (1e-4 if way.precision == "fast" else 1e-6)
    assert relative_error(grad.double().cpu(), expected_grad) < tolerance


@every_way
def test_autocast_changes_nothing(way: Way) -> None:
    z, labels = way.tensor(rows(20, 16, way.dtype)).requires_grad_(), way.tensor(torch.arange(20) % 7)
    plain = tcl_loss(z, labels, **way.settings)
    (plain_grad,) = torch.autograd.grad(plain, z)
    with torch.autocast(z.device.type, dtype=torch.bfloat16):
        cast = tcl_loss(z, labels, **way.settings)
        (cast_grad,) = torch.autograd.grad(cast, z, retain_graph=True)
    assert torch.equal(plain, cast)
    assert way.backend == "dense" or torch.equal(cast_grad, plain_grad)
    assert torch.equal(torch.autograd.grad(cast, z)[0], plain_grad)


@every_way
@pytest.mark.parametrize("sort_from", [1, 10**9])
def test_the_same_bits_every_time(way: Way, sort_from: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "SORT_FROM", sort_from)
    z, labels = rows(40, 16), torch.arange(40) % 7
    (loss, grad), (again, grad_again) = (solved(way, z, labels, reduction="none") for _ in range(2))
    assert torch.equal(loss, again)
    assert torch.equal(grad, grad_again)


@pytest.mark.parametrize("loss_of", [partial(tcl_loss, k1=50.0, k2=1.5), supcon_in], ids=["tcl", "supcon in"])
def test_dense_has_a_second_derivative(loss_of: LossOf) -> None:
    z, labels = rows(5, 3).requires_grad_(), torch.tensor([0, 1, 0, 1, 2])

    def loss(z: Tensor) -> Tensor:
        return loss_of(z, labels, temperature=0.5, backend="dense")

    assert torch.autograd.gradcheck(loss, z)
    assert torch.autograd.gradgradcheck(loss, z)


@closed_ways
@pytest.mark.parametrize(("classes", "temperature"), [(1, 0.1), (5, 0.02), (5, 0.013)])
def test_an_embedding_far_from_all_others_is_no_overflow(way: Way, classes: int, temperature: float) -> None:
    """Its D is tiny, so its factor 1/D is huge where nothing small is there to be multiplied with."""
    z, labels = rows(35, 16) * 0.05, torch.arange(35) % classes
    z[:, 0] += 1
    z[0] *= -1
    expected = solved(DENSE, z, labels, loss_of=supcon_loss, temperature=temperature)
    loss, grad = solved(way, z, labels, loss_of=supcon_loss, temperature=temperature)
    assert relative_error(loss, expected[0]) < 1e-3
    assert relative_error(grad, expected[1]) < (2e-2 if way.precision == "fast" else 1e-4)


@closed_ways
@pytest.mark.parametrize("k1", [0.0, 1.0])
@pytest.mark.parametrize("temperature", [0.01, 0.1])
def test_without_k2_negatives_are_as_if_they_were_not_there(way: Way, k1: float, temperature: float) -> None:
    """Positives on opposite sides and negatives nearby, so that exp(s/τ) of the two are far apart."""
    z = torch.tensor([[1.0, 0.0], [-1.0, 0.1], [0.7, 0.7], [1.0, 0.01], [-1.0, 0.02], [0.7, 0.6]])
    labels = torch.tensor([0, 0, 0, 1, 1, 1])
    if way.backend == "fused":
        with pytest.raises(UserError, match="k2"):
            solved(way, z, labels, k1=k1, k2=0.0, temperature=temperature)
        return
    expected = solved(DENSE, z, labels, k1=k1, k2=0.0, temperature=temperature)
    loss, grad = solved(way, z, labels, k1=k1, k2=0.0, temperature=temperature)
    assert relative_error(loss, expected[0]) < 1e-2
    assert relative_error(grad, expected[1]) < 2e-2


@closed_ways
@pytest.mark.parametrize("z", [[[1.0, 0.0], [-1.0, 1e-3]], [[1.0, 0.0], [-1.0, 1e-3], [-1.0, 1.0]]], ids=len)
def test_a_large_upstream_gradient_only_scales(way: Way, z: list[list[float]]) -> None:
    """65,536 is where automatic loss scaling starts."""
    labels = way.tensor(torch.zeros(len(z), dtype=torch.long))
    leaf = way.tensor(torch.tensor(z, dtype=way.dtype)).requires_grad_()
    losses = [supcon_loss(leaf, labels, temperature=0.0128, **way.settings) for _ in range(2)]
    (plain,), (scaled,) = torch.autograd.grad(losses[0], leaf), torch.autograd.grad(losses[1] * 65536.0, leaf)
    torch.testing.assert_close(scaled / 65536.0, plain, rtol=1e-4, atol=1e-3)


@closed_ways
@pytest.mark.parametrize(
    "numbers",
    [
        {"k1": 1e38},
        {"k1": 1e300, "k2": 1e300},
        {"k2": 1e30},
        {"k1": 0.0, "k2": 1e-120, "temperature": 0.01},
        {"temperature": 1000.0},
        {"k1": 0.0, "k2": 1e-30, "temperature": 0.01},
    ],
    ids=str,
)
def test_numbers_beyond_the_kernels_types_are_no_overflow(way: Way, numbers: dict[str, Any]) -> None:
    z, labels = rows(40, 8), torch.arange(40) % 4
    if way.backend == "fused" and {1e300, 1e-120, 1000.0}.intersection(numbers.values()):
        with pytest.raises(UserError, match="k2"):
            solved(way, z, labels, **numbers)
        return
    expected = solved(DENSE, z, labels, **numbers)
    loss, grad = solved(way, z, labels, **numbers)
    assert relative_error(loss, expected[0]) < (1e-2 if way.precision == "fast" else 1e-4)
    assert relative_error(grad, expected[1]) < (2e-2 if way.precision == "fast" else 1e-3)


@closed_ways
def test_any_integer_is_a_label(way: Way) -> None:
    """Those included that kernels put where a tile reaches past the batch."""
    z, labels = rows(40, 8), torch.arange(40) % 4
    expected = solved(DENSE, z, labels)
    for others in (labels - 6, labels - 2, labels - 1, labels + 2**40, labels.to(torch.uint8) + 252):
        loss, grad = solved(way, z, others)
        assert relative_error(loss, expected[0]) < 1e-3
        assert relative_error(grad, expected[1]) < 2e-3
