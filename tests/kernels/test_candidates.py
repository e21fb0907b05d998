"""Candidates apart from the anchors: a queue, a momentum batch, prototypes."""

import pytest
import torch
from loss_cases import DEVICE, Case, answer, assert_close, batch_of
from torch import Tensor
from torch.nn import functional as F

from contune.errors import UserError
from contune.losses import ntxent_loss, supcon_loss, tcl_loss

ASKING = ("both", "anchors", "candidates")
CASES = [
    Case(37, 16, "half", 0.1, 50.0, 1.5, pairs=pairs, candidates=53, asking="both") for pairs in ("labels", "mask")
]


def nested(z: Tensor, candidates: Tensor, positive: Tensor, tau: float, k1: float, k2: float) -> Tensor:
    """Equations 6 to 8 over other candidates, anchor by anchor."""
    losses = []
    for anchor, is_positive in zip(z, positive, strict=True):
        s = candidates @ anchor
        near, far = s[is_positive], s[~is_positive]
        D = (near / tau).exp().sum() + k1 * (-near).exp().sum() + k2 * (far / tau).exp().sum()
        losses.append(D.log() - near.mean() / tau if len(near) else D * 0)
    return torch.stack(losses)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_dense_is_the_nested_loop(case: Case) -> None:
    batch = batch_of(case)
    assert batch.candidates is not None
    z, candidates = batch.z.requires_grad_(), batch.candidates.requires_grad_()
    positive = batch.positives
    if positive is None:
        assert batch.labels is not None
        assert batch.candidate_labels is not None
        positive = batch.labels[:, None] == batch.candidate_labels[None, :]
    loss = nested(F.normalize(z, dim=1), F.normalize(candidates, dim=1), positive, 0.1, 50.0, 1.5)
    expected = torch.autograd.grad(loss, (z, candidates), batch.upstream)
    actual = answer(case, "dense")
    torch.testing.assert_close(actual.loss, loss.detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(tuple(actual.grads), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("asking", ASKING)
@pytest.mark.parametrize("pairs", ["labels", "mask", "weights"])
@pytest.mark.parametrize("num", [1, 100])
def test_chunked_gives_the_gradients_that_are_asked_for(asking: str, pairs: str, num: int) -> None:
    case = Case(num, 16, "half", pairs=pairs, candidates=53, asking=asking)
    assert_close(answer(case, "chunked"), answer(case, "dense"), 1e-10)


@pytest.mark.parametrize("asking", ASKING)
@pytest.mark.parametrize(("num", "candidates"), [(1, 53), (100, 1), (70, 53)])
def test_fused_gives_the_gradients_that_are_asked_for(asking: str, num: int, candidates: int) -> None:
    case = Case(num, 16, "two", candidates=candidates, asking=asking)
    expected = answer(case, "dense", rounded=torch.float32)
    assert_close(answer(case, "fused", torch.float32, precision="high", device=DEVICE), expected, 1e-5)
    assert_close(answer(case, "fused", torch.float32, precision="fast", device=DEVICE), expected, 2e-3)


@pytest.mark.parametrize("backend", ["dense", "chunked"])
def test_an_embedding_among_the_candidates_is_a_positive_of_itself(backend: str) -> None:
    """Nobody but the caller knows that it is the same one."""
    z = torch.randn(10, 6, generator=torch.Generator().manual_seed(0)).double().requires_grad_()
    labels = torch.arange(10)
    loss = tcl_loss(z, labels, candidates=z, candidate_labels=labels, backend=backend)
    expected = tcl_loss(z, positives=torch.eye(10) > 0, candidates=z.detach(), backend="dense")
    torch.testing.assert_close(loss, expected)
    (grad,) = torch.autograd.grad(loss, z)
    apart = [z.detach().clone().requires_grad_() for _ in range(2)]
    loss = tcl_loss(apart[0], labels, candidates=apart[1], candidate_labels=labels, backend="dense")
    torch.testing.assert_close(grad, sum(torch.autograd.grad(loss, apart)))


@pytest.mark.parametrize("backend", ["dense", "chunked"])
def test_every_loss_takes_candidates(backend: str) -> None:
    z, queue = torch.randn(4, 6).double(), torch.randn(9, 6).double()
    ids, queue_ids = torch.arange(4), torch.arange(9) % 4
    expected = tcl_loss(z, ids, candidates=queue, candidate_labels=queue_ids, k1=0.0, temperature=0.2, backend="dense")
    supcon = supcon_loss(z, ids, candidates=queue, candidate_labels=queue_ids, temperature=0.2, backend=backend)
    ntxent = ntxent_loss(z, ids, candidates=queue, candidate_ids=queue_ids, backend=backend)
    torch.testing.assert_close(supcon, expected)
    torch.testing.assert_close(ntxent, expected)


@pytest.mark.parametrize("backend", ["dense", "chunked", "auto"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])
def test_labels_and_candidate_labels_may_be_of_different_types(backend: str, dtype: torch.dtype) -> None:
    z, queue, ids = torch.randn(40, 6), torch.randn(90, 6), torch.arange(90) % 4
    expected = tcl_loss(z, ids[:40], candidates=queue, candidate_labels=ids, backend="dense")
    actual = tcl_loss(z, ids[:40].to(dtype), candidates=queue, candidate_labels=ids, backend=backend)
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("backend", ["dense", "chunked", "auto"])
@pytest.mark.parametrize("num", [4, 3])
def test_labels_of_no_candidates_are_refused(backend: str, num: int) -> None:
    with pytest.raises(UserError, match="candidate_labels are those of candidates, and there are none"):
        tcl_loss(Z, IDS, candidate_labels=torch.zeros(num, dtype=torch.long), backend=backend)
    with pytest.raises(UserError, match="candidate_labels are those of candidates, and there are none"):
        ntxent_loss(Z, IDS, candidate_ids=torch.zeros(num, dtype=torch.long), backend=backend)


@pytest.mark.parametrize("backend", ["dense", "chunked", "auto"])
def test_positives_and_candidate_labels_are_two_answers_to_one_question(backend: str) -> None:
    with pytest.raises(UserError, match="leave candidate_labels out"):
        tcl_loss(Z, positives=torch.ones(4, 9), candidates=QUEUE, candidate_labels=torch.arange(9) % 4, backend=backend)


Z, QUEUE, IDS = torch.randn(4, 6), torch.randn(9, 6), torch.arange(4)


@pytest.mark.parametrize("num", [9, 600])
def test_a_queue_may_be_of_a_better_type_than_what_autocast_gives(num: int) -> None:
    z = torch.randn(num, 6).bfloat16().requires_grad_()
    queue, ids = torch.randn(num, 6), torch.arange(num) % 4
    loss = tcl_loss(z, ids, candidates=queue, candidate_labels=ids)
    loss.backward()
    exact = z.detach().float().requires_grad_()
    tcl_loss(exact, ids, candidates=queue, candidate_labels=ids).backward()
    assert loss.dtype == torch.float32
    assert z.grad is not None
    assert exact.grad is not None
    assert z.grad.dtype == torch.bfloat16
    torch.testing.assert_close(z.grad, exact.grad.bfloat16())


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"candidates": QUEUE}, "need candidate_labels"),
        ({"candidates": QUEUE, "candidate_labels": IDS}, "candidate_labels must have one entry for each of the 9"),
        ({"candidates": QUEUE[:, :5], "candidate_labels": IDS}, "candidates must have the embeddings' size 6, got 5"),
        ({"candidates": QUEUE.long(), "candidate_labels": IDS}, "candidates must be"),
        ({"candidates": QUEUE[0], "candidate_labels": IDS}, "candidates must be"),
        ({"candidates": QUEUE, "candidate_labels": IDS, "distributed": True}, "gather the rest yourself"),
    ],
)
def test_candidates_that_do_not_fit_are_refused(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        tcl_loss(Z, IDS, **settings)  # type: ignore[arg-type]  # each of its own type
