"""Responses: the means of the lemmas' terms, the theorems, and the same numbers block by block."""

from collections.abc import Callable
from math import ceil
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from contune.analysis.gradients import anchors as anchors_module
from contune.analysis.gradients import coefficients, responses, responses_by_anchor
from contune.analysis.gradients.anchors import Anchors
from contune.analysis.gradients.coefficients import Coefficients, theorem_1_holds
from contune.analysis.gradients.responses import ratios, sums_and_counts
from contune.errors import UserError
from contune.kernels.problem import Knobs

KNOBS: dict[str, Any] = {"temperature": 0.2, "k1": 30.0, "k2": 1.4}


def points(num: int = 14, seed: int = 0, spread: float = 1.0) -> tuple[Tensor, Tensor]:
    """Four classes of different sizes, one embedding alone in its own."""
    draw = torch.Generator().manual_seed(seed)
    labels_N = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 3])[:num]
    centres = torch.randn(4, 6, generator=draw, dtype=torch.float64)
    noise = torch.randn(num, 6, generator=draw, dtype=torch.float64)
    return F.normalize(centres[labels_N] + spread * noise, dim=1), labels_N


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def by_loops(z: Tensor, labels: Tensor, terms: Coefficients, share: float) -> dict[str, float]:
    """`responses` of one loss as its docstring says it, pair by pair."""
    # Its own similarities: s_ij and s_ji differ in their last bit, and the limit may lie between the two.
    s, num = anchors_module.anchors_of(z, labels, None, normalize=True).compared(0.2).sim_RC, len(z)
    usable = [i for i in range(num) if (labels == labels[i]).sum() > 1]
    positive = {(i, j) for i in usable for j in range(num) if i != j and labels[i] == labels[j]}
    negative = {(i, j) for i in usable for j in range(num) if labels[i] != labels[j]}

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


@pytest.mark.parametrize("share", [0.25, 0.1, 0.5])
@pytest.mark.parametrize("spread", [0.2, 1.0])
def test_the_means_are_those_of_nested_loops(spread: float, share: float) -> None:
    z, labels = points(spread=spread)
    found = responses(z, labels, **KNOBS, hard=share)
    tuned, plain = coefficients(z, labels, **KNOBS), coefficients(z, labels, temperature=0.2, k1=0.0, k2=1.0)
    expected = by_loops(z, labels, tuned, share)
    expected |= {f"supcon_{name}": value for name, value in by_loops(z, labels, plain, share).items()}
    shares = {name: found.pop(name) for name in ("theorem1_share", "hard_theorem1_share")}
    assert {name: value.item() for name, value in found.items()} == pytest.approx(expected, rel=1e-9)
    larger = tuned.positive_RC.abs() > plain.positive_RC.abs()
    positive = tuned.X_RC > 0
    assert shares["theorem1_share"].item() == pytest.approx(larger[positive].double().mean().item())


def test_blocks_of_rows_give_the_same_and_hold_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    z, labels = points()
    whole = responses(z, labels, **KNOBS, hard=None)
    assert not any("hard" in name or "easy" in name for name in whole)
    monkeypatch.setattr(anchors_module, "BLOCK_PAIRS", 3 * len(z) + 1)
    blocks = list(anchors_module.anchors_of(z, labels, None, normalize=True).blocks(0.2))
    assert [len(block.sim_RC) for block in blocks] == [3, 3, 3, 3, 2]
    torch.testing.assert_close(responses(z, labels, **KNOBS, hard=None), whole)


def test_a_matrix_of_positives_is_the_same_as_labels() -> None:
    z, labels = points()
    torch.testing.assert_close(
        responses(z, positives=labels[:, None] == labels, **KNOBS), responses(z, labels, **KNOBS)
    )


def test_thinned_anchors_are_evenly_spaced_and_meet_all_candidates() -> None:
    z, labels = points()
    anchors = anchors_module.anchors_of(z, labels, None, normalize=True)
    few = anchors.thinned(5 * len(z))
    assert few.own_R.tolist() == [0, 3, 6, 9, 12]
    compared = few.compared(0.2)
    torch.testing.assert_close(compared.sim_RC, (z @ z.T)[::3])
    assert not compared.positive_RC[torch.arange(5), few.own_R].any()
    assert anchors.thinned(10**6).own_R.tolist() == list(range(14))


def test_nothing_in_it_waits_for_the_device() -> None:
    """On tensors without values: whatever would look at one fails."""
    z_ND, labels_N = torch.empty(6, 3, device="meta"), torch.empty(6, dtype=torch.long, device="meta")
    own_N = torch.arange(6, device="meta")
    anchors = Anchors(x_RD=z_ND, y_CD=z_ND, labels_R=labels_N, labels_C=labels_N, own_R=own_N)
    found = ratios(sums_and_counts(anchors.thinned(18), Knobs(0.1, 5000.0, 1.0), split=None))
    assert {value.shape for value in found.values()} == {()}


@pytest.mark.parametrize("labels", [[0, 1, 2, 3], [0, 0, 0, 0], [0, 0, 1, 2]])
@pytest.mark.parametrize("k1", [0.0, 1.0, 1e6])
@pytest.mark.parametrize("tau", [1e-3, 0.1, 10.0])
def test_batches_without_positives_or_negatives_give_numbers(labels: list[int], k1: float, tau: float) -> None:
    z = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    found = responses(z, torch.tensor(labels), temperature=tau, k1=k1)
    assert all(value.isfinite() for value in found.values())
    if len(set(labels)) == 4:
        assert not any(value for value in found.values())
    if len(set(labels)) == 1:
        assert found["negative_gradient"] == 0 < found["positive_gradient"]


hard_cases = {
    "seed": st.integers(0, 10**6),
    "k1": st.floats(1, 1e6),
    "k2": st.floats(1, 100),
    "tau": st.floats(0.05, 2),
    "spread": st.floats(0.05, 3),
}


@given(**hard_cases)
def test_theorem_1_holds_for_positives_that_supcon_still_pulls(
    seed: int, k1: float, k2: float, tau: float, spread: float
) -> None:
    """What its proof takes for granted: P ≤ X. Then TCL's response is strictly larger, however small k1 is beside D."""
    z, labels = points(seed=seed, spread=spread)
    tuned = coefficients(z, labels, temperature=tau, k1=k1, k2=k2)
    plain = coefficients(z, labels, temperature=tau, k1=0.0, k2=1.0)
    pulled = (plain.X_RC > 0) & (plain.P_RC <= plain.X_RC)
    assert pulled.any()
    assert (tuned.positive_RC.abs() - plain.positive_RC.abs())[pulled].min() > -1e-15
    compared = anchors_module.anchors_of(z, labels, None, normalize=True).compared(tau)
    assert theorem_1_holds(compared, Knobs(tau, k1, k2), tuned, plain)[pulled].all()


@given(**hard_cases)
def test_the_share_is_that_of_the_inequality(seed: int, k1: float, k2: float, tau: float, spread: float) -> None:
    """The comparison without cancellation and the plain one, over pairs whose sides are apart in float64."""
    z, labels = points(seed=seed, spread=spread)
    tuned = coefficients(z, labels, temperature=tau, k1=k1, k2=k2 - 0.9)
    plain = coefficients(z, labels, temperature=tau, k1=0.0, k2=1.0)
    difference = tuned.positive_RC.abs() - plain.positive_RC.abs()
    positive = plain.X_RC > 0
    share = float(responses(z, labels, temperature=tau, k1=k1, k2=k2 - 0.9)["theorem1_share"])
    low, high = ((difference[positive] > margin).double().mean().item() for margin in (1e-12, -1e-12))
    assert low - 1e-9 <= share <= high + 1e-9


def test_theorem_1_fails_for_an_easy_positive_that_supcon_pushes_away() -> None:
    """In float32 too: SupCon's P is near 1 there and X a half; k1 = 2 takes from what is too much."""
    z, labels = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), torch.zeros(3).long()
    found = responses(z, labels, temperature=0.1, k1=2.0)
    assert found["supcon_pushed_away_share"].item() == pytest.approx(2 / 6)
    assert found["theorem1_share"].item() == pytest.approx(4 / 6)


def test_a_small_k1_is_not_lost_in_rounding() -> None:
    """Y is below the precision of X in float32, and the inequality is still strict."""
    z = F.normalize(torch.randn(256, 16, generator=torch.Generator().manual_seed(0)), dim=1)
    labels = torch.arange(256) % 2
    found = responses(z, labels, temperature=0.02, k1=1e-6, hard=None)
    assert found["theorem1_share"] + found["supcon_pushed_away_share"] > 0.99


@given(**hard_cases, more=st.floats(1.01, 10))
def test_theorem_2_the_push_of_every_negative_grows_with_k2(
    seed: int, k1: float, k2: float, tau: float, spread: float, more: float
) -> None:
    z, labels = points(seed=seed, spread=spread)
    before, after = (coefficients(z, labels, temperature=tau, k1=k1, k2=k).N_RC for k in (k2, k2 * more))
    assert (after >= before).all()
    assert (after > before).sum() == (before > 0).sum()


@given(seed=st.integers(0, 10**6), tau=st.floats(0.05, 2))
def test_at_k1_0_and_k2_1_tcl_is_supcon(seed: int, tau: float) -> None:
    found = responses(*points(seed=seed), temperature=tau, k1=0.0, k2=1.0)
    for name, value in found.items():
        assert "theorem1" in name or name.startswith("supcon_") or value == found[f"supcon_{name}"], name
    assert found["theorem1_share"] == found["hard_theorem1_share"] == 0


@pytest.mark.parametrize("hard", [0.0, 0.6, -1.0])
def test_a_share_that_is_none_is_refused(hard: float) -> None:
    with pytest.raises(UserError, match=r"hard must be a share above 0 and at most 0\.5, got"):
        responses(*points(), hard=hard)


@pytest.mark.parametrize("function", [responses, responses_by_anchor, coefficients])
def test_what_is_no_tensor_or_no_variant_is_said(function: Callable[..., object]) -> None:
    with pytest.raises(UserError, match=r"embeddings must be a tensor, got a ndarray; torch\.as_tensor"):
        function(np.ones((4, 3)), torch.arange(4) % 2)
    with pytest.raises(UserError, match="unknown variant 'bogus'"):
        coefficients(torch.ones(4, 3), torch.arange(4) % 2, variant="bogus")
