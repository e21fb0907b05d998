"""Responses of single anchors: autograd's, and what the means are means of."""

from math import isnan, nan
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import contune
from contune.analysis.gradients import anchors as anchors_module
from contune.analysis.gradients import responses, responses_by_anchor
from contune.errors import UserError

KNOBS: dict[str, Any] = {"temperature": 0.2, "k1": 30.0, "k2": 1.4}


def points(num: int = 24, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Unit embeddings of three classes of different sizes, and one that is alone in its own."""
    draw = torch.Generator().manual_seed(seed)
    labels_N = torch.arange(num) % 7 % 3
    labels_N[-1] = 9
    centres = torch.randn(10, 6, generator=draw, dtype=torch.float64)
    noise = torch.randn(num, 6, generator=draw, dtype=torch.float64)
    return F.normalize(centres[labels_N] + noise, dim=1), labels_N


def terms_by_autograd(z: Tensor, labels: Tensor, i: int, tau: float, k1: float, k2: float) -> dict[str, Tensor]:
    """Of anchor i. Each place of the loss in which a similarity stands is a variable of its own here, so that what
    the loss makes of it is a term of lemma 2 apart from the others."""
    s = (z @ z[i]).detach()
    others = torch.arange(len(z)) != i
    positive, negative = others & (labels == labels[i]), labels != labels[i]
    above, below, turned, away = (s[mask].clone().requires_grad_() for mask in (positive, positive, positive, negative))
    D = (below / tau).exp().sum() + k1 * (-turned).exp().sum() + k2 * (away / tau).exp().sum()
    loss = -(above / tau).mean() + D.log()
    ours = contune.tcl_loss(
        z, labels, temperature=tau, k1=k1, k2=k2, normalize=False, reduction="none", backend="dense"
    )
    assert loss.item() == pytest.approx(ours[i].item(), rel=1e-10), "it is the loss that people train with"
    by_above, by_below, by_turned, by_away = torch.autograd.grad(loss, (above, below, turned, away))
    return {"X": -tau * by_above, "P": tau * by_below, "Y": -tau * by_turned, "N": tau * by_away}


@pytest.mark.parametrize(("tau", "k1", "k2"), [(0.1, 5000.0, 1.0), (0.2, 30.0, 1.4), (1.0, 1.0, 3.0), (0.05, 0.0, 1.0)])
def test_every_anchor_has_what_autograd_gives(tau: float, k1: float, k2: float) -> None:
    z, labels = points()
    found = responses_by_anchor(z, labels, temperature=tau, k1=k1, k2=k2)
    for i in range(len(z) - 1):
        tuned = terms_by_autograd(z, labels, i, tau, k1, k2)
        plain = terms_by_autograd(z, labels, i, tau, 0.0, 1.0)
        pull = (tuned["X"] - tuned["P"] + tuned["Y"]).abs()
        supcon_pull = (plain["X"] - plain["P"]).abs()
        expected = {
            "X_ip": tuned["X"], "P_ip": tuned["P"], "Y_ip": tuned["Y"], "P_in": tuned["N"],
            "supcon_P_ip": plain["P"], "supcon_P_in": plain["N"],
            "positive_gradient": pull, "supcon_positive_gradient": supcon_pull,
            "negative_gradient": tuned["N"], "supcon_negative_gradient": plain["N"],
        }  # fmt: skip
        for name, values in expected.items():
            assert float(found[name][i]) == pytest.approx(float(values.mean()), rel=1e-6), (name, i)
        if k1 > 0:
            share = (pull > supcon_pull).double().mean()
            assert float(found["theorem1_share"][i]) == pytest.approx(float(share)), i


def test_their_means_are_the_responses() -> None:
    z, labels = points()
    found, means = responses_by_anchor(z, labels, **KNOBS), responses(z, labels, **KNOBS)
    for name, mean in means.items():
        values_N, num = found[name], found["num_hard_positives" if name.startswith("hard_t") else "num_positives"]
        weights_N = num if name.endswith("_share") else (~values_N.isnan()).double()
        expected = (values_N.nan_to_num() * weights_N).sum() / weights_N.sum()
        assert float(mean) == pytest.approx(float(expected), rel=1e-12), name
    assert set(means) < set(found)


def test_pairs_are_counted() -> None:
    z, labels = points()
    found = responses_by_anchor(z, labels, **KNOBS, hard=0.25)
    same = labels[:, None] == labels
    usable = same.sum(dim=1) > 1
    assert found["num_positives"].tolist() == (same.sum(dim=1) - 1).tolist()
    assert found["num_negatives"].tolist() == ((~same).sum(dim=1) * usable).tolist()
    for sign in ("positive", "negative"):
        num = int(found[f"num_{sign}s"].sum())
        for kind in ("hard", "easy"):
            assert 0 <= int(found[f"num_{kind}_{sign}s"].sum()) - num / 4 < 3, (kind, sign)


def test_an_anchor_without_a_positive_has_no_numbers() -> None:
    found = responses_by_anchor(*points(), **KNOBS)
    for name, values_N in found.items():
        last = float(values_N[-1])
        assert last == 0 if name.startswith("num_") else isnan(last), name
    others = [values_N[:-1] for name, values_N in found.items() if "hard" not in name and "easy" not in name]
    assert not any(values_N.isnan().any() for values_N in others)


def test_blocks_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    z, labels = points()
    whole = responses_by_anchor(z, labels, **KNOBS, hard=None)
    assert not any("hard" in name or "easy" in name for name in whole)
    monkeypatch.setattr(anchors_module, "BLOCK_PAIRS", 5 * len(z))
    torch.testing.assert_close(responses_by_anchor(z, labels, **KNOBS, hard=None), whole, equal_nan=True)


def test_by_labels_or_by_a_matrix() -> None:
    z, labels = points()
    by_matrix = responses_by_anchor(z, positives=labels[:, None] == labels, **KNOBS)
    torch.testing.assert_close(by_matrix, responses_by_anchor(z, labels, **KNOBS), equal_nan=True)


@pytest.mark.parametrize("num", [0, 1])
def test_hardly_any_embeddings(num: int) -> None:
    found = responses_by_anchor(torch.ones(num, 3), torch.zeros(num).long())
    assert found["num_positives"].tolist() == [0] * num
    assert found["positive_gradient"].tolist() == pytest.approx([nan] * num, nan_ok=True)


@pytest.mark.parametrize(("arguments", "sentence"), [({"hard": 0.7}, "hard must be"), ({"k1": -1.0}, "k1 must be 0")])
def test_what_is_refused(arguments: dict[str, float], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        responses_by_anchor(*points(), **arguments)  # type: ignore[arg-type]  # on purpose
