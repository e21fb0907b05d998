"""Lemmas 1 and 2: coefficients against autograd and by hand, responses against loops, the two theorems."""

import itertools
from math import ceil, exp
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

import contune
from contune.errors import UserError
from contune.kernels import LossSettings
from contune.losses import responses as module
from contune.losses import tcl_loss
from contune.losses.contrastive import Number
from contune.losses.responses import Coefficients, batch_block, coefficients, logged_responses, pair_block, responses

GRID = list(itertools.product((0.01, 0.1, 1.0), (0.0, 1.0, 5000.0, 1e6), (0.0, 1.0, 3.0)))
"""τ, k1, k2"""
KNOBS: dict[str, Any] = {"temperature": 0.2, "k1": 30.0, "k2": 1.4}


def points(seed: int = 0, spread: float = 1.0) -> tuple[Tensor, Tensor]:
    """Unit embeddings of four classes of different sizes, the last of them with one member."""
    draw = torch.Generator().manual_seed(seed)
    labels_N = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 3])
    centers = torch.randn(4, 6, generator=draw, dtype=torch.float64)
    noise = torch.randn(14, 6, generator=draw, dtype=torch.float64)
    return F.normalize(centers[labels_N] + spread * noise, dim=1), labels_N


def gradient_of_anchor(z_ND: Tensor, weights_NN: Tensor, i: int, tau: float, k1: float, k2: float) -> Tensor:
    """dL_i/dz_i by autograd, with the candidates held fixed."""
    others = [j for j in range(len(z_ND)) if j != i]
    anchor_1D = z_ND[i : i + 1].clone().requires_grad_()
    loss = contune.tcl_loss(
        anchor_1D,
        positives=weights_NN[i : i + 1, others],
        candidates=z_ND[others],
        normalize=False,
        reduction="sum",
        backend="dense",
        temperature=tau,
        k1=k1,
        k2=k2,
    )
    (gradient_1D,) = torch.autograd.grad(loss, anchor_1D)
    return gradient_1D[0]


@pytest.mark.filterwarnings("ignore:.*anchor")
@pytest.mark.parametrize(("tau", "k1", "k2"), GRID)
@pytest.mark.parametrize("pairs", ["labels", "weights"])
def test_coefficients_give_each_anchors_gradient(pairs: str, tau: float, k1: float, k2: float) -> None:
    z_ND, labels_N = points()
    weights_NN = (labels_N[:, None] == labels_N).double()
    if pairs == "weights":
        weights_NN *= torch.rand(14, 14, generator=torch.Generator().manual_seed(3), dtype=torch.float64) + 0.1
    labels, positives = (labels_N, None) if pairs == "labels" else (None, weights_NN)
    terms = coefficients(z_ND, labels, positives=positives, temperature=tau, k1=k1, k2=k2, normalize=False)
    expected_ND = torch.stack([gradient_of_anchor(z_ND, weights_NN, i, tau, k1, k2) for i in range(len(z_ND))])
    torch.testing.assert_close(terms.signed_RC @ z_ND / tau, expected_ND, rtol=1e-10, atol=1e-10)


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
    assert terms.signed_RC[1].tolist() == pytest.approx([1 / 6 - 1 - 0.5 * 3 / 6, 0, 2 / 6])
    assert terms.signed_RC[2].tolist() == [0, 0, 0], "it has no positive"


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
    draw = torch.Generator().manual_seed(num_classes)
    z_ND = (1 + spread * torch.randn(8, 4, generator=draw)).to(dtype)
    labels_N = torch.arange(8) % num_classes
    terms = coefficients(z_ND, labels_N, temperature=tau, k1=k1, k2=k2, normalize=normalize, variant=variant)
    assert all(term.isfinite().all() and (term >= 0).all() for term in terms)
    limit = 1 + 1e-3
    assert terms.P_RC.max() <= limit
    assert terms.N_RC.sum(dim=1).max() <= limit
    has_positive_N = labels_N.bincount()[labels_N] > 1
    torch.testing.assert_close(terms.X_RC.sum(dim=1), has_positive_N.to(terms.X_RC.dtype), rtol=1e-4, atol=1e-4)
    assert not terms.signed_RC[~has_positive_N].any()
    assert not terms.signed_RC.diagonal().any()


def by_loops(z: Tensor, labels: Tensor, terms: Coefficients, share: float) -> dict[str, float]:
    """`responses` of one loss as its docstring says it, pair by pair."""
    s, num = batch_block(z, labels).sim_RC, len(z)
    usable = [i for i in range(num) if (labels == labels[i]).sum() > 1]
    positive = {(i, j) for i in usable for j in range(num) if i != j and labels[i] == labels[j]}
    negative = {(i, j) for i in usable for j in range(num) if labels[i] != labels[j]}

    def mean(values: list[float]) -> float:
        return sum(values) / len(values) if values else 0.0

    def lowest(pairs: set[tuple[int, int]], sign: int) -> set[tuple[int, int]]:
        ordered = sorted(pairs, key=lambda pair: sign * float(s[pair]))
        limit = sign * float(s[ordered[ceil(share * len(ordered)) - 1]])
        return {pair for pair in pairs if sign * float(s[pair]) <= limit}

    def over_anchors(pairs: set[tuple[int, int]], values: Tensor) -> float:
        per_anchor = [[float(values[pair]) for pair in pairs if pair[0] == i] for i in usable]
        return mean([mean(found) for found in per_anchor if found])

    pull = (terms.X_RC - terms.P_RC + terms.Y_RC).abs()
    return {
        "positive_gradient": over_anchors(positive, pull),
        "hard_positive_gradient": over_anchors(lowest(positive, 1), pull),
        "easy_positive_gradient": over_anchors(lowest(positive, -1), pull),
        "negative_gradient": over_anchors(negative, terms.N_RC),
        "hard_negative_gradient": over_anchors(lowest(negative, -1), terms.N_RC),
        "easy_negative_gradient": over_anchors(lowest(negative, 1), terms.N_RC),
        "pushed_away_share": mean([float(terms.P_RC[p] > terms.X_RC[p] + terms.Y_RC[p]) for p in positive]),
    }


@pytest.mark.parametrize("share", [0.25, 0.5])
@pytest.mark.parametrize("spread", [0.2, 1.0])
def test_means_are_those_of_nested_loops(spread: float, share: float) -> None:
    z, labels = points(spread=spread)
    found = responses(z, labels, **KNOBS, hard=share)
    tuned, plain = coefficients(z, labels, **KNOBS), coefficients(z, labels, temperature=0.2, k1=0.0, k2=1.0)
    expected = by_loops(z, labels, tuned, share)
    expected |= {f"supcon_{name}": value for name, value in by_loops(z, labels, plain, share).items()}
    shares = {name: found.pop(name) for name in ("theorem1_share", "hard_theorem1_share")}
    assert {name: value.item() for name, value in found.items()} == pytest.approx(expected, rel=1e-9)
    larger = (tuned.positive_RC.abs() > plain.positive_RC.abs())[tuned.X_RC > 0]
    assert shares["theorem1_share"].item() == pytest.approx(larger.double().mean().item())
    torch.testing.assert_close(responses(z, positives=labels[:, None] == labels, **KNOBS, hard=share), found | shares)
    matrix = torch.nn.functional.one_hot(labels).bool()
    torch.testing.assert_close(responses(z, matrix, **KNOBS, hard=share), found | shares)


def test_large_batches_take_evenly_spaced_anchors(monkeypatch: pytest.MonkeyPatch) -> None:
    z, labels = points()
    monkeypatch.setattr(module, "BLOCK_PAIRS", 5 * len(z))
    block = batch_block(z, labels)
    torch.testing.assert_close(block.sim_RC, (z @ z.T)[::3])
    assert not block.positive_RC[range(5), range(0, 14, 3)].any()
    few = responses(z, labels, **KNOBS)
    logged = logged_responses(z, labels, LossSettings(**KNOBS), supcon=True)
    assert {name: few[name] for name in logged} == logged
    assert "pushed_away_share" not in logged


def test_nothing_logged_waits_for_the_device() -> None:
    """Tensors without values: whatever would look at one fails."""
    z_ND, labels_N = torch.empty(6, 3, device="meta"), torch.empty(6, dtype=torch.long, device="meta")
    block = pair_block(z_ND, z_ND, labels_N[:, None] == labels_N, torch.arange(6, device="meta"))
    for kind in ("out", "auto"):
        settings = LossSettings(0.1, 5000.0, 1.0, kind)
        assert {value.shape for value in module.response_sums(block, block.kinds(0.25), settings).values()} == {(2,)}


cases = {
    "seed": st.integers(0, 10**6),
    "k1": st.floats(1, 1e6),
    "k2": st.floats(1, 100),
    "tau": st.floats(0.05, 2),
    "spread": st.floats(0.05, 3),
}


@given(**cases)
def test_theorem_1_holds_where_x_is_at_least_p(seed: int, k1: float, k2: float, tau: float, spread: float) -> None:
    z, labels = points(seed=seed, spread=spread)
    tuned = coefficients(z, labels, temperature=tau, k1=k1, k2=k2)
    plain = coefficients(z, labels, temperature=tau, k1=0.0, k2=1.0)
    pulled = (plain.X_RC > 0) & (plain.P_RC <= plain.X_RC)
    assert pulled.any()
    assert (tuned.positive_RC.abs() - plain.positive_RC.abs())[pulled].min() > -1e-15


def test_theorem_1_can_fail_for_hard_and_easy_positives() -> None:
    """Where P > X: an easy positive that SupCon pushes away, and one of similarity 0 beside an even lower one."""
    z, labels = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), torch.zeros(3).long()
    found = responses(z, labels, temperature=0.1, k1=2.0)
    assert found["supcon_pushed_away_share"].item() == pytest.approx(2 / 6)
    assert found["theorem1_share"].item() == pytest.approx(4 / 6)
    z = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    tuned, plain = (coefficients(z, labels, temperature=0.1, k1=k1) for k1 in (2.0, 0.0))
    assert plain.P_RC[0, 1] > 0.99 > plain.X_RC[0, 1], "similarity 0, and SupCon pushes it away"
    assert tuned.positive_RC[0, 1].abs() < plain.positive_RC[0, 1].abs()


@given(**cases, more=st.floats(1.01, 10))
def test_theorem_2_the_push_of_every_negative_grows_with_k2(
    seed: int, k1: float, k2: float, tau: float, spread: float, more: float
) -> None:
    z, labels = points(seed=seed, spread=spread)
    before, after = (coefficients(z, labels, temperature=tau, k1=k1, k2=k).N_RC for k in (k2, k2 * more))
    assert (after >= before).all()
    assert (after > before).sum() == (before > 0).sum()


@given(seed=st.integers(0, 10**6), tau=st.floats(0.05, 2))
def test_at_k1_0_and_k2_1_tcl_is_supcon(seed: int, tau: float) -> None:
    with torch.inference_mode():
        found = responses(*points(seed=seed), temperature=tau, k1=0.0, k2=1.0)
    for name, value in found.items():
        assert "theorem1" in name or name.startswith("supcon_") or value == found[f"supcon_{name}"], name
    assert found["theorem1_share"] == found["hard_theorem1_share"] == 0


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"temperature": 0.0}, "temperature"),
        ({"labels": torch.zeros(2).long()}, "labels"),
        ({"hard": 0.6}, "hard"),
        ({"z": np.ones((3, 2))}, "embeddings"),
    ],
)
def test_bad_input(arguments: dict[str, Any], word: str) -> None:
    given_arguments: dict[str, Any] = {"z": torch.ones(3, 2), "labels": torch.zeros(3).long()} | arguments
    with pytest.raises(UserError, match=word):
        responses(**given_arguments)


@pytest.mark.parametrize(("k1", "k2"), [("auto", "auto"), ("auto", 2.0), (7.0, "auto")])
def test_automatic_k1_and_k2_are_those_of_each_anchor(k1: Number, k2: Number) -> None:
    """Against the gradient of the loss, anchor by anchor, and with one that has no positive."""
    z, labels = points()
    knobs: dict[str, Any] = {"temperature": 0.2, "k1": k1, "k2": k2, "r": 0.5, "normalize": False}
    found = coefficients(z, labels, **knobs)
    leaf = z.clone().requires_grad_()
    each = tcl_loss(leaf, labels, reduction="none", **knobs)
    grad = torch.stack([torch.autograd.grad(loss, leaf, retain_graph=True)[0][i] for i, loss in enumerate(each)])
    torch.testing.assert_close((found.signed_RC @ z) / 0.2, grad)
    pull = (found.positive_RC.abs().sum(dim=1) / (found.X_RC > 0).sum(dim=1))[:13].mean()
    torch.testing.assert_close(responses(z, labels, **knobs)["positive_gradient"], pull)
