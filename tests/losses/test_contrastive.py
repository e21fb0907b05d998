"""TCL, SupCon and NT-Xent against the paper's equations, other libraries and hand-computed cases."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import paper
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from contune.errors import UserError
from contune.losses import (
    DCLLoss,
    EpsSupInfoNCELoss,
    NTXentLoss,
    SINCERELoss,
    SupConLoss,
    TCLLoss,
    dcl_loss,
    eps_supinfonce_loss,
    npair_loss,
    ntxent_loss,
    sincere_loss,
    supcon_loss,
    tcl_loss,
    triplet_loss,
)

EVERY_LOSS = (tcl_loss, supcon_loss, sincere_loss, eps_supinfonce_loss, dcl_loss, ntxent_loss, triplet_loss, npair_loss)


def random_unit(num: int, dim: int = 6, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(num, dim, generator=generator, dtype=torch.float64), dim=1).to(dtype)


def random_weights(kind: str, num: int, seed: int) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """labels, positives and the weights they stand for."""
    generator = torch.Generator().manual_seed(seed)
    if kind == "labels":
        labels = torch.randint(0, 3, (num,), generator=generator)
        return labels, None, (labels[:, None] == labels[None, :]).double()
    mask = torch.rand(num, num, generator=generator) < 0.3
    if kind == "mask":
        return None, mask, mask.double()
    if kind == "label matrix":
        classes = torch.rand(num, 4, generator=generator, dtype=torch.float64) * mask[:, :1].repeat(1, 4)
        classes[torch.rand(num, 4, generator=generator) < 0.6] = 0
        return classes, None, classes @ classes.T
    weights = mask * torch.rand(num, num, generator=generator, dtype=torch.float64)
    return None, weights, weights


LOOPS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    "auto": (tcl_loss, partial(paper.auto, r=0.3)),
    "auto, r = 5": (partial(tcl_loss, r=5.0), partial(paper.auto, r=5.0)),
    "k1 = 7, k2 auto": (partial(tcl_loss, k1=7), partial(paper.tcl, k1=7.0, k2=1.3)),
    "k1 auto, k2 = 2": (partial(tcl_loss, k2=2.0), partial(paper.auto, r=0.3, k2=2.0)),
    "tcl": (partial(tcl_loss, k1=50.0, k2=1.5), partial(paper.tcl, k1=50.0, k2=1.5)),
    "sincere": (sincere_loss, partial(paper.eps_supinfonce, epsilon=0.0)),
    "epsilon": (eps_supinfonce_loss, partial(paper.eps_supinfonce, epsilon=0.25)),
    "dcl": (dcl_loss, partial(paper.eps_supinfonce, epsilon=math.inf)),
}


WAYS = {
    "dense": (torch.float64, "high", 1e-10),
    "chunked": (torch.float64, "high", 1e-10),
    "chunked, float32": (torch.float32, "high", 1e-5),
    "fused, high": (torch.float32, "high", 1e-5),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:no anchor")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["labels", "mask", "weights", "label matrix"])
@pytest.mark.parametrize("name", LOOPS)
def test_every_loss_is_its_nested_loop(name: str, kind: str, way: str) -> None:
    if way.startswith("fused") and kind in ("mask", "weights"):
        pytest.skip("fused takes labels")
    (loss_of, loops), (dtype, precision, tolerance) = LOOPS[name], WAYS[way]
    device = "cuda" if way.startswith("fused") and torch.cuda.is_available() else "cpu"
    for num, tau in ((7, 0.1),) if way.startswith("fused") else ((2, 0.1), (7, 0.1), (13, 1.0)):
        leaf = (2 * random_unit(num, dim=9, seed=num)).requires_grad_()
        z = leaf.detach().to(device, dtype).requires_grad_()
        labels, positives, weights = random_weights(kind, num, seed=num + 1)
        upstream = torch.linspace(-1, 2, num, dtype=torch.float64)
        pairs = (None if x is None else x.to(device) for x in (labels, positives))
        settings = {"temperature": tau, "reduction": "none", "backend": way.split(",")[0], "precision": precision}
        actual = loss_of(z, next(pairs), positives=next(pairs), **settings)
        expected = loops(F.normalize(leaf, dim=1), weights, tau)
        (grad,) = torch.autograd.grad(actual, z, upstream.to(actual))
        (expected_grad,) = torch.autograd.grad(expected, leaf, upstream)
        for one, other in ((actual.detach(), expected.detach()), (grad, expected_grad)):
            assert (one.double().cpu() - other).norm() <= tolerance * other.norm()


def test_auto_is_supcon_but_for_less_push_between_positives() -> None:
    """The value, and by finite differences the gradient, with both coefficients held where they were."""
    z, labels, tau, r = random_unit(9).requires_grad_(), torch.arange(9) % 3, 0.2, 0.4
    supcon = supcon_loss(z, labels, temperature=tau, reduction="none", normalize=False)
    loss = tcl_loss(z, labels, temperature=tau, r=r, reduction="none", normalize=False)
    torch.testing.assert_close(loss, supcon + math.log(1 + r))
    assert tcl_loss(z, labels, r=0.0) == supcon_loss(z, labels)
    weights = (labels[:, None] == labels).double()
    k1 = [paper.auto_k1(z, weights, i, tau, r) for i in range(9)]

    def held(x: Tensor) -> Tensor:
        return torch.stack([paper.tcl_of_anchor(x, weights, i, tau, k1[i], 1 + r) for i in range(9)]).sum()

    assert torch.autograd.gradcheck(held, z)
    torch.testing.assert_close(torch.autograd.grad(loss.sum(), z), torch.autograd.grad(held(z), z))


def test_supcon_out_is_supcontrasts_definition() -> None:
    """Their form: log-probabilities over all others, averaged over the positives' mask, then over anchors."""
    z, labels, tau = random_unit(18), torch.arange(18) % 4, 0.07
    logits = z @ z.T / tau
    others = 1 - torch.eye(18, dtype=torch.float64)
    mask = (labels[:, None] == labels[None, :]) * others
    log_probability = logits - torch.log((logits.exp() * others).sum(1, keepdim=True))
    expected = -((mask * log_probability).sum(1) / mask.sum(1)).mean()
    torch.testing.assert_close(supcon_loss(z, labels, temperature=tau), expected, rtol=1e-12, atol=0.0)


def test_supcon_in_has_the_mean_inside_the_logarithm() -> None:
    z, labels, tau = random_unit(9), torch.arange(9) % 3, 0.2
    expected = []
    for i in range(9):
        positives = [p for p in range(9) if p != i and labels[p] == labels[i]]
        denominator = sum(math.exp(float(z[i] @ z[a]) / tau) for a in range(9) if a != i)
        numerator = sum(math.exp(float(z[i] @ z[p]) / tau) for p in positives) / len(positives)
        expected.append(-math.log(numerator / denominator))
    actual = supcon_loss(z, labels, temperature=tau, variant="in", reduction="none")
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=0.0)
    assert (actual <= supcon_loss(z, labels, temperature=tau, reduction="none")).all(), "Jensen: L_in ≤ L_out"


def test_ntxent_is_pytorch_metric_learnings() -> None:
    from pytorch_metric_learning.losses import NTXentLoss as TheirNTXent
    from pytorch_metric_learning.losses import SupConLoss as TheirSupCon

    z = random_unit(16, dtype=torch.float32)
    ids = torch.arange(8).repeat(2)
    torch.testing.assert_close(ntxent_loss(z, ids, temperature=0.2), TheirNTXent(temperature=0.2)(z, ids))
    labels = torch.arange(16) % 3
    torch.testing.assert_close(supcon_loss(z, labels), TheirSupCon(temperature=0.1)(z, labels))
    labels = torch.arange(16) % 4  # they average over pairs, so every anchor needs as many positives
    torch.testing.assert_close(sincere_loss(z, labels), TheirNTXent(temperature=0.1)(z, labels))


def test_a_case_done_by_hand() -> None:
    """Two orthogonal pairs: every similarity is 1 within a pair and 0 between, so each term is a number."""
    z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
    labels = torch.tensor([0, 0, 1, 1])
    D = math.exp(1 / 0.5) + 10 * math.exp(-1) + 2 * 2 * math.exp(0)
    expected = math.log(D) - 1 / 0.5
    actual = tcl_loss(z, labels, temperature=0.5, k1=10.0, k2=2.0)
    assert actual.item() == pytest.approx(expected, rel=1e-14)


@given(seed=st.integers(0, 10_000), scale=st.floats(0.1, 10.0))
def test_order_scale_and_rotation_do_not_matter(seed: int, scale: float) -> None:
    z, labels = random_unit(10, seed=seed), torch.arange(10) % 3
    order = torch.randperm(10, generator=torch.Generator().manual_seed(seed))
    rotation = torch.linalg.qr(random_unit(6, seed=seed + 1))[0]
    expected = tcl_loss(z, labels)
    torch.testing.assert_close(tcl_loss(z[order], labels[order]), expected)
    torch.testing.assert_close(tcl_loss(z * scale, labels), expected)
    torch.testing.assert_close(tcl_loss(z @ rotation, labels), expected)
    torch.testing.assert_close(tcl_loss(z, labels + 7), expected)


def test_modules_are_their_functions() -> None:
    z, labels = random_unit(12), torch.arange(12) % 3
    assert TCLLoss(k1=10.0, k2=2.0, temperature=0.3)(z, labels) == tcl_loss(z, labels, k1=10.0, k2=2.0, temperature=0.3)
    assert EpsSupInfoNCELoss(epsilon=1.0)(z, labels) == eps_supinfonce_loss(z, labels, epsilon=1.0)
    assert (SINCERELoss()(z, labels), DCLLoss()(z, labels)) == (sincere_loss(z, labels), dcl_loss(z, labels))
    assert TCLLoss(r=1.0)(z, labels) == tcl_loss(z, labels, r=1.0) != TCLLoss()(z, labels)
    assert SupConLoss(variant="in")(z, labels) == supcon_loss(z, labels, variant="in")
    assert NTXentLoss(temperature=0.5)(z, labels) == ntxent_loss(z, labels, temperature=0.5)
    for module in (TCLLoss, SupConLoss, NTXentLoss, SINCERELoss, EpsSupInfoNCELoss, DCLLoss):
        whole = module(distributed=True, precision="high")
        assert whole(z, labels) == module()(z, labels), "in one process, on a CPU, neither changes anything"
    assert "k1=10.0" in repr(TCLLoss(k1=10.0))
    assert "variant='out'" in repr(SupConLoss())
    assert "temperature=0.2" in repr(NTXentLoss())


@pytest.mark.parametrize("variant", ["out", "in"])
def test_weights_have_a_gradient(variant: str) -> None:
    """Those of 0 included, which say who is negative: there it is 0 or finite, never NaN."""
    z, (_, _, weights) = random_unit(7), random_weights("weights", 7, seed=1)
    leaf = weights.clone().requires_grad_()
    loss = supcon_loss(z, positives=leaf, variant=variant)
    (grad,) = torch.autograd.grad(loss, leaf)
    assert grad.isfinite().all()
    step = torch.where(weights > 0, 1e-6, 0.0)
    further = supcon_loss(z, positives=weights + step, variant=variant)
    before = supcon_loss(z, positives=weights - step, variant=variant)
    torch.testing.assert_close((grad * step).sum(), (further - before) / 2, rtol=1e-4, atol=1e-12)


@pytest.mark.parametrize("num", [64, 600])
def test_a_label_matrix_is_learnt_whatever_the_size_of_the_batch(num: int) -> None:
    z, labels = random_unit(num), random_unit(num, seed=1).abs().requires_grad_()
    losses = tcl_loss(z, labels), tcl_loss(z, positives=labels @ labels.T)
    found, expected = (torch.autograd.grad(loss, labels)[0] for loss in losses)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("num", [64, 600])
def test_a_temperature_is_learnt_whatever_the_size_of_the_batch(num: int) -> None:
    z, labels = random_unit(num), torch.arange(num) % 3
    temperature = torch.nn.Parameter(torch.tensor(0.5, dtype=torch.float64))
    module = TCLLoss(temperature=temperature, k1=50.0, k2=1.0)  # type: ignore[arg-type]  # typed as a number
    assert list(module.parameters()) == [temperature]
    module(z, labels).backward()
    above, below = (tcl_loss(z, labels, temperature=0.5 + sign * 1e-5, k1=50.0, k2=1.0) for sign in (1, -1))
    assert temperature.grad is not None
    assert temperature.grad.item() == pytest.approx(((above - below) / 2e-5).item(), rel=1e-5)
    of_tensors = tcl_loss(z, labels, temperature=torch.tensor(0.25), k1=torch.tensor(7.0))  # type: ignore[arg-type]
    torch.testing.assert_close(of_tensors, tcl_loss(z, labels, temperature=0.25, k1=7.0))


@pytest.mark.parametrize("loss_of", EVERY_LOSS)
def test_views_may_have_an_axis_and_labels_may_be_lists_and_arrays(loss_of: Callable[..., Tensor]) -> None:
    """As SupContrast has them: (B, V, d), and one label for each of the B samples."""
    z_BVD, labels = random_unit(15).reshape(5, 3, 6), [0, 1, 1, 0, 2]
    z_ND, labels_N = z_BVD.transpose(0, 1).flatten(0, 1), torch.tensor(labels).repeat(3)
    expected = loss_of(z_ND, labels_N)
    for given_labels in (labels, np.array(labels), torch.tensor(labels)):
        torch.testing.assert_close(loss_of(z_BVD, given_labels), expected)
    each = loss_of(z_BVD, labels, reduction="none")
    torch.testing.assert_close(each.reshape(5, 3).T.flatten(), loss_of(z_ND, labels_N, reduction="none"))
    if loss_of is not ntxent_loss:
        mask = torch.tensor(labels)[:, None] == torch.tensor(labels)
        torch.testing.assert_close(loss_of(z_BVD, positives=mask), expected)


Z4, L4, Q9, QL9 = random_unit(4), torch.tensor([0, 0, 1, 1]), random_unit(9), torch.arange(9) % 2
BAD: list[tuple[dict[str, Any], str]] = [
    ({"temperature": 0.0}, "temperature"),
    ({"temperature": math.nan}, "temperature"),
    ({"temperature": "0.1"}, "temperature"),
    ({"temperature": torch.ones(2)}, "temperature"),
    ({"k1": -1.0}, "k1"),
    ({"k1": "automatic"}, "k1"),
    ({"r": -0.1}, "r must"),
    ({"k1": torch.ones((), requires_grad=True)}, "not differentiable"),
    ({"k2": math.inf}, "k2"),
    ({"reduction": "avg"}, "reduction"),
    ({"backend": "dens"}, "did you mean dense"),
    ({"precision": "hihg"}, "did you mean high"),
    ({"z": Z4[None, None]}, "torch.cat"),
    ({"z": Z4[None]}, "labels"),
    ({"z": Z4.to_sparse()}, "dense"),
    ({"z": Z4.to("meta")}, "dense"),
    ({"z": torch.nested.nested_tensor([Z4[:3], Z4], layout=torch.jagged)}, "dense"),
    ({"labels": torch.eye(4).to_sparse()}, "dense"),
    ({"labels": -torch.ones(4, 3)}, "at least 0, got -1"),
    ({"labels": torch.ones(4, 3), "candidates": Q9, "candidate_labels": torch.ones(9, 2)}, "alike"),
    ({"z": L4[:, None]}, "embeddings"),
    ({"z": Z4.numpy()}, "ndarray"),
    ({"z": [Z4, Z4]}, "torch.cat"),
    ({"labels": L4[:3]}, "labels.repeat"),
    ({"labels": L4.double()}, "integers"),
    ({"labels": L4[:, None]}, "integers"),
    ({"labels": L4[:, None, None]}, "integers"),
    ({"labels": torch.tensor([[0, 3], [1, 2], [0, 2], [1, 3]])}, "floats or of 0 and 1"),
    ({"labels": ["cat", "cat", "dog", "dog"]}, "numpy.unique"),
    ({"labels": None}, "either labels or positives"),
    ({"positives": torch.ones(4, 4)}, "either labels or positives"),
    ({"labels": None, "positives": torch.ones(4, 3)}, r"\(4, 4\)"),
    ({"labels": None, "positives": -torch.ones(4, 4)}, "at least 0, got -1"),
    ({"labels": None, "positives": -torch.ones(4, 4).long()}, "at least 0, got -1"),
    ({"candidates": Q9}, "candidate_labels"),
    ({"candidates": Q9, "candidate_labels": L4}, "each of the 9"),
    ({"candidates": Q9[:, :5], "candidate_labels": QL9}, "size 6"),
    ({"candidates": Q9.long(), "candidate_labels": QL9}, "candidates must be"),
    ({"candidates": Q9[0], "candidate_labels": QL9}, "candidates must be"),
    ({"candidate_labels": QL9}, "together with candidates"),
    ({"labels": None, "positives": torch.ones(4, 9), "candidates": Q9, "candidate_labels": QL9}, "no positives"),
    ({"candidates": Q9, "candidate_labels": QL9, "distributed": True}, "Gather"),
]


@pytest.mark.parametrize(("change", "word"), BAD)
def test_wrong_input_is_one_sentence(change: dict[str, Any], word: str) -> None:
    with pytest.raises(UserError, match=word):
        tcl_loss(**({"z": Z4, "labels": L4} | change))
    if word == next(iter(change)):  # a Module with a wrong number or name is not built
        with pytest.raises(UserError, match=word):
            TCLLoss(**change)


def test_a_wrong_variant_is_one_sentence() -> None:
    for build in (SupConLoss, lambda **settings: supcon_loss(Z4, L4, **settings)):
        with pytest.raises(UserError, match="variant"):
            build(variant="both")
