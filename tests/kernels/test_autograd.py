"""The autograd function over the backends: candidates, `torch.compile`, changes in place, and what it refuses."""

import pytest
import torch
from loss_cases import (
    CHUNKED,
    FUSED,
    Case,
    LossOf,
    Way,
    answer,
    closed_ways,
    every_way,
    inputs_of,
    paper_tcl,
    quiet,
    rows,
    supcon_in,
)
from torch import Tensor
from torch.nn import functional as F

from contune.errors import UserError
from contune.kernels import autograd
from contune.losses import dcl_loss, sincere_loss, tcl_loss

pytestmark = quiet


def nested(z: Tensor, candidates: Tensor, positive: Tensor, tau: float, k1: float, k2: float) -> Tensor:
    """Equations 6 to 8 over other candidates, anchor by anchor."""
    losses = []
    for anchor, is_positive in zip(z, positive, strict=True):
        s = candidates @ anchor
        near, far = s[is_positive], s[~is_positive]
        D = (near / tau).exp().sum() + k1 * (-near).exp().sum() + k2 * (far / tau).exp().sum()
        losses.append(D.log() - near.mean() / tau if len(near) else D * 0)
    return torch.stack(losses)


@pytest.mark.parametrize("pairs", ["labels", "mask"])
def test_dense_with_candidates_is_the_nested_loop(pairs: str) -> None:
    case = Case(37, 16, "half", 0.1, 50.0, 1.5, pairs=pairs, candidates=53)
    given = inputs_of(case)
    z, candidates, labels, others = (given[name] for name in ("z", "candidates", "labels", "candidate_labels"))
    assert z is not None
    assert candidates is not None
    positive = given["positives"]
    if labels is not None and others is not None:
        positive = labels[:, None] == others[None, :]
    assert positive is not None
    leaves = (z.requires_grad_(), candidates.requires_grad_())
    loss = nested(F.normalize(z, dim=1), F.normalize(candidates, dim=1), positive, 0.1, 50.0, 1.5)
    expected = torch.autograd.grad(loss, leaves, given["upstream"])
    actual = answer(case, "dense")
    torch.testing.assert_close(actual.loss, loss.detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(tuple(actual.grads), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("num", [9, 600])
def test_a_queue_may_be_of_a_better_type_than_what_autocast_gives(num: int) -> None:
    z, queue, ids = rows(num).bfloat16().requires_grad_(), rows(num + 1).float(), torch.arange(num + 1) % 4
    exact = z.detach().float().requires_grad_()
    for leaf in (z, exact):
        loss = tcl_loss(leaf, ids[:num], candidates=queue, candidate_labels=ids)
        assert loss.dtype == torch.float32
        loss.backward()
    assert z.grad is not None
    assert exact.grad is not None
    torch.testing.assert_close(z.grad, exact.grad.bfloat16())


@closed_ways
def test_a_second_derivative_is_refused_with_the_way_out(way: Way) -> None:
    z, labels = way.tensor(rows(9, dtype=way.dtype)).requires_grad_(), way.tensor(torch.arange(9) % 2)
    loss = tcl_loss(z, labels, **way.settings)
    assert not tcl_loss(z.detach(), labels, **way.settings).requires_grad
    with pytest.raises(UserError, match="no second derivative"):
        torch.autograd.grad(loss, z, create_graph=True)


@every_way
def test_losses_of_anchors_may_be_weighed_in_place(way: Way) -> None:
    z = way.tensor(rows(8).to(way.dtype)).detach().requires_grad_()
    labels, weights = way.tensor(torch.arange(8) % 2), way.tensor(torch.arange(8))
    grads = []
    for in_place in (True, False):
        losses = tcl_loss(z, labels, reduction="none", **way.settings)
        weighed = losses.mul_(weights) if in_place else losses * weights
        grads.append(torch.autograd.grad(weighed.sum(), z)[0])
    torch.testing.assert_close(*grads)


def test_what_the_backward_pass_needs_cannot_be_changed_unnoticed() -> None:
    z, labels, positives = rows(8).requires_grad_(), torch.arange(8) % 2, torch.rand(8, 8).double()
    loss = tcl_loss(z, positives=positives, backend="chunked")
    positives.fill_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    mask = labels[:, None] == labels
    expected = torch.autograd.grad(tcl_loss(z, labels), z)
    loss = tcl_loss(z, positives=mask, backend="chunked")
    mask.fill_(True)  # a buffer, filled again for the next batch; its values were copied
    torch.testing.assert_close(torch.autograd.grad(loss, z), expected)
    queue, queue_labels = rows(9), torch.arange(9) % 2
    losses = [
        tcl_loss(z, labels, candidates=queue, candidate_labels=queue_labels, backend=backend)
        for backend in ("dense", "chunked")
    ]
    queue_labels.fill_(1)  # copied too
    torch.testing.assert_close(*(torch.autograd.grad(each, z) for each in losses))
    leaf = FUSED[0].tensor(rows(8).float()).requires_grad_()
    labels = FUSED[0].tensor(labels)
    loss = tcl_loss(leaf, labels, backend="fused", reduction="none").sum()
    labels.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    loss = tcl_loss(z, torch.arange(8) % 2, backend="chunked")
    with torch.no_grad():
        z.mul_(2)
    loss.backward()  # computed from the normalized copy


def gradient(loss: Tensor, z: Tensor) -> Tensor:
    return torch.autograd.grad(loss.sum(), z)[0]


@pytest.mark.parametrize(
    ("reduction", "backend", "dtype"),
    [("mean", "chunked", torch.float64), ("sum", "auto", torch.float32), ("none", "chunked", torch.float64)],
)
def test_the_operator_keeps_the_rules_for_operators(reduction: str, backend: str, dtype: torch.dtype) -> None:
    z, labels = rows(9, dtype=dtype).requires_grad_(), torch.arange(9) % 2
    arguments = (z, labels, [0.1, 5000.0, 1.5, 0.0], f"out high {reduction} {backend}", True)
    torch.library.opcheck(autograd.pair_loss_op, arguments)
    classes = torch.ones(9, 3, dtype=dtype)
    torch.library.opcheck(
        autograd.pair_loss_op, (z, classes, [0.1, 0.3, 1.3, 0.0], f"auto high {reduction} {backend}", True)
    )


@pytest.mark.parametrize(
    ("way", "reduction", "loss_of"),
    [
        (CHUNKED, "mean", tcl_loss),
        (CHUNKED, "none", paper_tcl),
        (CHUNKED, "sum", supcon_in),
        (FUSED[0], "mean", sincere_loss),
        (FUSED[1], "none", dcl_loss),
    ],
)
def test_compiled_numbers_are_the_plain_ones(way: Way, reduction: str, loss_of: LossOf) -> None:
    torch.compiler.reset()  # it compiles a function only so many times, and all cases share one
    z = way.tensor(rows(20, 16, way.dtype)).requires_grad_()
    labels = way.tensor(torch.arange(20) % 7)

    def compute(z: Tensor) -> Tensor:
        return loss_of(z * 2, labels, reduction=reduction, **way.settings) * 3

    compiled = torch.compile(compute, backend="aot_eager", fullgraph=True)
    plain, actual = compute(z), compiled(z)
    # Small batches that are not compiled go another way, with other roundings.
    tolerance = 2e-3 if way.precision == "fast" else 1e-5
    torch.testing.assert_close(actual, plain, rtol=tolerance, atol=0.0)
    torch.testing.assert_close(gradient(actual, z), gradient(plain, z), rtol=tolerance, atol=tolerance)


def test_compiled_under_autocast_and_with_nothing_in_it() -> None:
    torch.compiler.reset()
    z, labels = rows(70, 16, torch.float32).requires_grad_(), torch.arange(70) % 7

    def compute(z: Tensor, labels: Tensor) -> Tensor:
        return tcl_loss(z, labels, backend="chunked")

    plain, compiled = compute(z, labels), torch.compile(compute, backend="aot_eager", fullgraph=True, dynamic=False)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = compiled(z, labels)
    assert torch.equal(actual, plain)
    assert torch.equal(gradient(actual, z), gradient(plain, z))
    empty = torch.zeros(0, 16).requires_grad_()
    loss = compiled(empty, labels[:0])
    assert loss == 0
    assert gradient(loss, empty).shape == empty.shape
    z = rows(16, 70, torch.float32).T.requires_grad_()
    assert gradient(compute(z, F.one_hot(labels)), z).is_contiguous(), "whatever z is, as a compiled step expects"
