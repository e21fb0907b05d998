"""The losses that compare a batch with a queue: MoCo's InfoNCE and ReSSL's relations."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from contune.errors import UserError
from contune.losses import ntxent_loss
from contune.methods.moco_v2 import infonce_loss
from contune.methods.ressl import relation_loss

LOSSES = (infonce_loss, relation_loss)
B, K, D = 5, 9, 4


def rows(seed: int, num: int = B) -> Tensor:
    return torch.randn(num, D, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def queue() -> Tensor:
    return F.normalize(rows(7, K), dim=1)


def unit(z_ND: Tensor) -> list[list[float]]:
    return [[x / math.hypot(*z) for x in z] for z in z_ND.tolist()]


def dot(a: list[float], b: list[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def softmax(values: list[float]) -> list[float]:
    total = math.fsum(math.exp(value) for value in values)
    return [math.exp(value) / total for value in values]


def entropy(target: list[float]) -> float:
    return -math.fsum(p * math.log(p) for p in target)


def test_infonce_against_loops() -> None:
    tau, losses = 0.3, []
    for q, k in zip(unit(rows(0)), unit(rows(1)), strict=True):
        shares = softmax([dot(q, k) / tau] + [dot(q, negative) / tau for negative in queue().tolist()])
        losses.append(-math.log(shares[0]))
    found = infonce_loss(rows(0), rows(1), queue(), temperature=tau)
    assert found.item() == pytest.approx(math.fsum(losses) / B, rel=1e-12)


def test_relation_against_loops() -> None:
    tau, tau_k, losses = 0.3, 0.2, []
    for q, k in zip(unit(rows(0)), unit(rows(1)), strict=True):
        target = softmax([dot(k, other) / tau_k for other in queue().tolist()])
        answer = softmax([dot(q, other) / tau for other in queue().tolist()])
        losses.append(-math.fsum(p * math.log(s) for p, s in zip(target, answer, strict=True)))
    found = relation_loss(rows(0), rows(1), queue(), temperature=tau, key_temperature=tau_k)
    assert found.item() == pytest.approx(math.fsum(losses) / B, rel=1e-12)


def test_infonce_is_cross_entropy_of_the_papers_logits() -> None:
    q_BD, k_BD = F.normalize(rows(0), dim=1), F.normalize(rows(1), dim=1)
    logits = torch.cat([(q_BD * k_BD).sum(dim=1, keepdim=True), q_BD @ queue().T], dim=1) / 0.2
    torch.testing.assert_close(infonce_loss(q_BD, k_BD, queue()), F.cross_entropy(logits, torch.zeros(B).long()))


def test_infonce_of_a_single_query_is_ntxent_against_key_and_queue() -> None:
    """With more, NT-Xent takes the keys of the others for negatives too."""
    q_BD, k_BD = rows(0, 1), rows(1, 1)
    candidates, ids = torch.cat([k_BD, queue()]), torch.arange(1 + K)
    expected = ntxent_loss(q_BD, torch.zeros(1).long(), candidates=candidates, candidate_ids=ids, temperature=0.3)
    torch.testing.assert_close(infonce_loss(q_BD, k_BD, queue(), temperature=0.3), expected)


def test_relations_are_learnt_when_the_loss_is_the_targets_own_entropy() -> None:
    """Cross-entropy has its minimum, with a gradient of 0, where both relations are the same."""
    k_BD, q_BD = rows(1), rows(1).mul(3).requires_grad_()
    loss = relation_loss(q_BD, k_BD, queue(), temperature=0.2, key_temperature=0.2)
    expected = [entropy(softmax([dot(k, other) / 0.2 for other in queue().tolist()])) for k in unit(k_BD)]
    assert loss.item() == pytest.approx(math.fsum(expected) / B, rel=1e-12)
    (gradient,) = torch.autograd.grad(loss, q_BD)
    assert gradient.abs().max() < 1e-12
    assert relation_loss(rows(0), k_BD, queue(), temperature=0.2, key_temperature=0.2) > loss


@pytest.mark.parametrize("loss", LOSSES)
def test_length_and_order_do_not_matter(loss: Callable[..., Tensor]) -> None:
    q_BD, k_BD = rows(0), rows(1)
    expected = loss(q_BD, k_BD, queue())
    generator = torch.Generator().manual_seed(3)
    order_B, order_K = torch.randperm(B, generator=generator), torch.randperm(K, generator=generator)
    rotation_DD = torch.linalg.qr(rows(4, D)).Q
    torch.testing.assert_close(loss(7 * q_BD, k_BD / 3, queue()), expected)
    torch.testing.assert_close(loss(q_BD[order_B], k_BD[order_B], queue()[order_K]), expected)
    torch.testing.assert_close(loss(q_BD @ rotation_DD, k_BD @ rotation_DD, queue() @ rotation_DD), expected)
    assert not torch.isclose(loss(q_BD[order_B], k_BD, queue()), expected)


def test_a_collapsed_batch_knows_nothing() -> None:
    """Everything in one point: the positive is one of 1 + K, every place of the queue is as near as another."""
    same_BD, same_KD = rows(0, 1).expand(B, -1), F.normalize(rows(0, 1), dim=1).expand(K, -1)
    assert infonce_loss(same_BD, same_BD, same_KD).item() == pytest.approx(math.log(1 + K))
    assert relation_loss(same_BD, same_BD, same_KD).item() == pytest.approx(math.log(K))


@pytest.mark.parametrize("loss", LOSSES)
def test_gradient(loss: Callable[..., Tensor]) -> None:
    q_BD, k_BD, queue_KD = (z.requires_grad_() for z in (rows(0), rows(1), queue()))
    assert torch.autograd.gradcheck(loss, (q_BD, k_BD, queue_KD))


@pytest.mark.parametrize("similarity", [1.0, -1.0])
def test_low_temperatures_neither_overflow_nor_vanish(similarity: float) -> None:
    q_BD = rows(0).float().requires_grad_()
    infonce_loss(q_BD, similarity * q_BD.detach(), queue(), temperature=1e-3).backward()
    assert q_BD.grad is not None
    assert q_BD.grad.isfinite().all()
    assert relation_loss(rows(0), rows(1), queue(), temperature=1e-3, key_temperature=1e-3).isfinite()


@pytest.mark.parametrize("loss", LOSSES)
def test_half_precision_is_computed_in_float32(loss: Callable[..., Tensor]) -> None:
    q_BD, k_BD, queue_KD = rows(0).bfloat16(), rows(1).bfloat16(), queue().float()
    with torch.autocast("cpu", torch.bfloat16):
        found = loss(q_BD, k_BD, queue_KD)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, loss(q_BD.float(), k_BD.float(), queue_KD))


@pytest.mark.parametrize("loss", LOSSES)
def test_wrong_input_is_a_sentence(loss: Callable[..., Tensor]) -> None:
    with pytest.raises(UserError, match=r"queries and keys are compared row by row .* got \(5, 4\) and \(4, 4\)"):
        loss(rows(0), rows(1, 4), queue())
    with pytest.raises(UserError, match=r"queue must hold embeddings of size 4, one or more, got shape \(9, 3\)"):
        loss(rows(0), rows(1), queue()[:, :3])
    with pytest.raises(UserError, match=r"queue must hold embeddings of size 4, one or more, got shape \(0, 4\)"):
        loss(rows(0), rows(1), queue()[:0])
    with pytest.raises(UserError, match="temperature must be above 0 and finite, got 0"):
        loss(rows(0), rows(1), queue(), temperature=0.0)
