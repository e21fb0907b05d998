"""Lemmas 1 and 2: the coefficients are those of autograd, by hand on three points, and never NaN."""

import itertools
from math import e, exp

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

import contune
from contune.analysis.gradients import Coefficients, coefficients
from contune.errors import UserError

GRID = list(itertools.product((0.01, 0.1, 1.0), (0.0, 1.0, 5000.0, 1e6), (0.0, 0.5, 1.0, 3.0)))
"""τ, k1, k2"""


def points(num: int = 11, dim: int = 5, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Unit embeddings of three classes, and one that is alone in its class."""
    draw = torch.Generator().manual_seed(seed)
    z_ND = F.normalize(torch.randn(num, dim, generator=draw, dtype=torch.float64), dim=1)
    labels_N = torch.arange(num) % 3
    labels_N[-1] = 7
    return z_ND.to(dtype), labels_N


def gradient_of_anchor(z_ND: Tensor, weights_NN: Tensor, i: int, tau: float, k1: float, k2: float) -> Tensor:
    """dL_i/dz_i by autograd, the candidates held still."""
    others = [j for j in range(len(z_ND)) if j != i]
    anchor_1D = z_ND[i : i + 1].clone().requires_grad_()
    loss = contune.tcl_loss(
        anchor_1D, positives=weights_NN[i : i + 1, others], candidates=z_ND[others], normalize=False, reduction="sum",
        backend="dense", temperature=tau, k1=k1, k2=k2,
    )  # fmt: skip
    (gradient_1D,) = torch.autograd.grad(loss, anchor_1D)
    return gradient_1D[0]


@pytest.mark.filterwarnings("ignore:no anchor in this batch")
@pytest.mark.parametrize(("tau", "k1", "k2"), GRID)
@pytest.mark.parametrize("pairs", ["labels", "weights"])
def test_the_coefficients_make_up_each_anchors_gradient(pairs: str, tau: float, k1: float, k2: float) -> None:
    z_ND, labels_N = points()
    weights_NN = (labels_N[:, None] == labels_N).double()
    if pairs == "weights":
        weights_NN *= torch.rand(11, 11, generator=torch.Generator().manual_seed(3), dtype=torch.float64) + 0.1
    by_labels = pairs == "labels"
    labels, positives = (labels_N, None) if by_labels else (None, weights_NN)
    terms = coefficients(z_ND, labels, positives=positives, temperature=tau, k1=k1, k2=k2, normalize=False)
    found_ND = terms.signed_RC @ z_ND / tau
    expected_ND = torch.stack([gradient_of_anchor(z_ND, weights_NN, i, tau, k1, k2) for i in range(len(z_ND))])
    torch.testing.assert_close(found_ND, expected_ND, rtol=1e-10, atol=1e-10)
    assert expected_ND[:-1].norm(dim=1).min() > 0 or k2 == 0


@pytest.mark.parametrize(("k1", "k2"), [(0.0, 1.0), (5000.0, 1.0), (1.0, 1.5)])
def test_float32_is_good_to_one_in_a_million(k1: float, k2: float) -> None:
    exact = coefficients(*points(64, 16), k1=k1, k2=k2)
    z_ND, labels_N = points(64, 16, dtype=torch.float32)
    single = coefficients(z_ND, labels_N, k1=k1, k2=k2)
    assert single.X_RC.dtype == torch.float32
    for found, expected in zip(single, exact, strict=True):
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-6)
    again = coefficients(z_ND.bfloat16(), labels_N, k1=k1, k2=k2)
    assert again.X_RC.dtype == torch.float32


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize(("tau", "k1", "k2"), [(0.1, 0.0, 1.0), (0.1, 5000.0, 1.0), (0.5, 10.0, 3.0)])
def test_all_anchors_together_make_up_the_gradient_of_the_batch(
    reduction: str, tau: float, k1: float, k2: float
) -> None:
    """Each embedding is an anchor and a candidate of others; through the normalisation only what is across is left."""
    z_ND, labels_N = points()
    raw_ND = (z_ND * torch.linspace(0.5, 3, 11, dtype=torch.float64)[:, None]).requires_grad_()
    loss = contune.tcl_loss(raw_ND, labels_N, temperature=tau, k1=k1, k2=k2, reduction=reduction)
    (expected_ND,) = torch.autograd.grad(loss, raw_ND)
    terms = coefficients(raw_ND, labels_N, temperature=tau, k1=k1, k2=k2)
    num_usable = 10 if reduction == "mean" else 1
    unit_ND = (terms.signed_RC + terms.signed_RC.T) @ z_ND / (tau * num_usable)
    across_ND = unit_ND - (unit_ND * z_ND).sum(dim=1, keepdim=True) * z_ND
    found_ND = across_ND / raw_ND.detach().norm(dim=1, keepdim=True)
    torch.testing.assert_close(found_ND, expected_ND, rtol=1e-10, atol=1e-12)


def test_supcon_with_the_mean_inside_the_logarithm() -> None:
    z_ND, labels_N = points()
    z_ND.requires_grad_()
    loss = contune.supcon_loss(z_ND, labels_N, variant="in", normalize=False, reduction="sum")
    (expected_ND,) = torch.autograd.grad(loss, z_ND)
    terms = coefficients(z_ND, labels_N, k1=0.0, k2=1.0, variant="in", normalize=False)
    found_ND = (terms.signed_RC + terms.signed_RC.T) @ z_ND.detach() / 0.1
    torch.testing.assert_close(found_ND, expected_ND, rtol=1e-10, atol=1e-10)


def test_three_points_by_hand() -> None:
    """A positive across from the anchor, s = 0, and a negative opposite to it, s = -1; τ = 1/2."""
    z_ND = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    terms = coefficients(z_ND, torch.tensor([0, 0, 1]), temperature=0.5, k1=3.0, k2=2.0)
    D = 1 + 3 + 2 * exp(-2)
    assert terms.X_RC[0].tolist() == [0, 1, 0]
    assert terms.P_RC[0].tolist() == pytest.approx([0, 1 / D, 0])
    assert terms.Y_RC[0].tolist() == pytest.approx([0, 0.5 * 3 / D, 0])
    assert terms.N_RC[0].tolist() == pytest.approx([0, 0, 2 * exp(-2) / D])
    # For anchor 1 the positive and the negative are both across.
    assert terms.signed_RC[1].tolist() == pytest.approx([1 / 6 - 1 - 0.5 * 3 / 6, 0, 2 / 6])
    assert terms.signed_RC[2].tolist() == [0, 0, 0], "it has no positive"


def test_a_positive_that_supcon_pushes_away_and_tcl_pulls() -> None:
    """Two positives at similarities 1 and 0 of the anchor: in SupCon the nearer has P = e/(e + 1) > X = 1/2."""
    z_ND = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    supcon, tcl = (coefficients(z_ND, torch.zeros(3).long(), temperature=1.0, k1=k1, k2=1.0) for k1 in (0.0, 9.0))
    assert supcon.positive_RC[0].tolist() == pytest.approx([0, e / (e + 1) - 0.5, 1 / (e + 1) - 0.5])
    D = e + 1 + 9 * (1 / e + 1)
    assert tcl.positive_RC[0, 1].item() == pytest.approx(e / D - 0.5 - 9 / e / D)
    assert tcl.positive_RC[0, 1] < 0 < supcon.positive_RC[0, 1]


@given(
    tau=st.floats(1e-3, 10),
    k1=st.one_of(st.just(0.0), st.floats(1e-6, 1e6)),
    k2=st.one_of(st.just(0.0), st.floats(1e-6, 1e6)),
    num_classes=st.integers(1, 8),
    spread=st.sampled_from([0.0, 1e-3, 1.0]),
    normalize=st.booleans(),
    variant=st.sampled_from(["out", "in"]),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_never_nan_and_within_bounds(
    tau: float, k1: float, k2: float, num_classes: int, spread: float, normalize: bool, variant: str, dtype: torch.dtype
) -> None:
    """For anything from all points the same to all apart, one class to a class each."""
    draw = torch.Generator().manual_seed(num_classes)
    z_ND = (1 + spread * torch.randn(8, 4, generator=draw)).to(dtype)
    labels_N = torch.arange(8) % num_classes
    terms = coefficients(z_ND, labels_N, temperature=tau, k1=k1, k2=k2, normalize=normalize, variant=variant)
    assert all(term.isfinite().all() and (term >= 0).all() for term in terms)
    limit = 1 + 1e-3
    assert terms.P_RC.max() <= limit
    assert terms.N_RC.sum(dim=1).max() <= limit
    if normalize:
        assert terms.Y_RC.sum(dim=1).max() <= tau * limit
    has_positive_N = labels_N.bincount()[labels_N] > 1
    torch.testing.assert_close(terms.X_RC.sum(dim=1), has_positive_N.to(terms.X_RC.dtype), rtol=1e-4, atol=1e-4)
    assert not terms.signed_RC[~has_positive_N].any()
    assert not terms.signed_RC.diagonal().any()


@pytest.mark.parametrize("num", [0, 1])
def test_a_batch_that_has_no_pairs(num: int) -> None:
    terms = coefficients(torch.ones(num, 3), torch.zeros(num).long())
    assert isinstance(terms, Coefficients)
    assert terms.signed_RC.tolist() == [[0.0]] * num


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"temperature": 0.0}, "temperature must be above 0 and finite, got 0"),
        ({"k1": -1.0}, "k1 must be 0 or above and finite, got -1"),
        ({"k2": float("inf")}, "k2 must be 0 or above and finite, got inf"),
        ({"labels": None}, "give either labels or positives"),
        ({"labels": torch.zeros(2).long()}, "labels must have one entry for each of the 3 embeddings"),
    ],
)
def test_what_is_refused(arguments: dict[str, Tensor | float | None], sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        coefficients(torch.ones(3, 2), **({"labels": torch.zeros(3).long()} | arguments))  # type: ignore[arg-type]  # on purpose
    assert str(caught.value).startswith(sentence)
