"""MoCo v2 and ReSSL: their losses against a queue, which keys a query meets, and when keys enter the queue."""

import math
from collections.abc import Callable
from itertools import permutations

import pytest
import torch
import torch.nn.functional as F
from test_every_method import BATCH, batch, build
from torch import Tensor

from contune.methods.moco_v2 import MoCoV2, infonce_loss
from contune.methods.ressl import ReSSL, relation_loss

B, K, D = 5, 9, 4


def rows(seed: int, num: int = B) -> Tensor:
    return torch.randn(num, D, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def queue() -> Tensor:
    return F.normalize(rows(7, K), dim=1)


def softmax(q: list[float], others: list[list[float]], tau: float) -> list[float]:
    """Of the products of q, scaled to length 1, with the others."""
    scores = [math.exp(math.fsum(a * b for a, b in zip(q, x, strict=True)) / math.hypot(*q) / tau) for x in others]
    return [score / math.fsum(scores) for score in scores]


def test_both_losses_against_loops() -> None:
    infonce, relation = [], []
    for q, k in zip(rows(0).tolist(), rows(1).tolist(), strict=True):
        key = [x / math.hypot(*k) for x in k]
        infonce.append(-math.log(softmax(q, [key, *queue().tolist()], 0.3)[0]))
        target, answer = softmax(k, queue().tolist(), 0.2), softmax(q, queue().tolist(), 0.3)
        relation.append(-math.fsum(p * math.log(s) for p, s in zip(target, answer, strict=True)))
    found = infonce_loss(rows(0), rows(1), queue(), temperature=0.3)
    assert found.item() == pytest.approx(math.fsum(infonce) / B, rel=1e-12)
    found = relation_loss(rows(0), rows(1), queue(), temperature=0.3, key_temperature=0.2)
    assert found.item() == pytest.approx(math.fsum(relation) / B, rel=1e-12)


@pytest.mark.parametrize(("loss", "collapsed"), [(infonce_loss, math.log(1 + K)), (relation_loss, math.log(K))])
def test_gradient_invariances_and_collapse(loss: Callable[..., Tensor], collapsed: float) -> None:
    q_BD, k_BD = rows(0).requires_grad_(), rows(1)
    assert torch.autograd.gradcheck(lambda q: loss(q, k_BD, queue()), q_BD)
    expected, rotation_DD = loss(q_BD, k_BD, queue()), torch.linalg.qr(rows(4, D)).Q
    torch.testing.assert_close(loss(7 * q_BD, k_BD / 3, queue()), expected)
    torch.testing.assert_close(loss(q_BD.flip(0), k_BD.flip(0), queue().flip(0)), expected)
    torch.testing.assert_close(loss(q_BD @ rotation_DD, k_BD @ rotation_DD, queue() @ rotation_DD), expected)
    assert not torch.isclose(loss(q_BD.flip(0), k_BD, queue()), expected)
    same_BD, same_KD = rows(0, 1).expand(B, -1), F.normalize(rows(0, 1), dim=1).expand(K, -1)
    assert loss(same_BD, same_BD, same_KD).item() == pytest.approx(collapsed), "everything in one point"
    cold = rows(0).float().requires_grad_()
    for similarity in (1.0, -1.0):
        extreme = loss(cold, similarity * cold.detach(), queue(), temperature=1e-3)
        assert torch.autograd.grad(extreme, cold)[0].isfinite().all()


@pytest.mark.parametrize("num_views", [2, 3])
def test_moco_queries_meet_the_queue_of_their_keys_view(num_views: int) -> None:
    method = build("moco-v2", temperature=0.3, queue_size=3 * BATCH)
    assert isinstance(method, MoCoV2)
    views, _ = batch(num_views)
    q = [method.projector(method.encoder(view)) for view in views]  # at first the key networks are the same
    queues = [method.queues[view].values_KD.clone() for view in (0, 1)]
    pairs = permutations(range(num_views), 2)
    losses = [infonce_loss(q[i], q[j], queues[j % 2], temperature=0.3) for i, j in pairs]
    output = method(views, None)
    torch.testing.assert_close(output.loss, torch.stack(losses).mean())
    method.after_step(output)
    for view in (0, 1):  # a third view's keys join the first queue
        keys = torch.cat([F.normalize(q[j].detach(), dim=1) for j in range(view, num_views, 2)])
        expected = torch.cat([keys, queues[view][len(keys) :]])
        torch.testing.assert_close(method.queues[view].values_KD, expected)


@pytest.mark.parametrize("num_views", [2, 4])
def test_ressl_compares_every_strong_view_with_the_last_one(num_views: int) -> None:
    temperatures = {"temperature": 0.3, "teacher_temperature": 0.2}
    method = build("ressl", queue_size=3 * BATCH, **temperatures)
    assert isinstance(method, ReSSL)
    with torch.no_grad():
        for parameter in method.teacher.parameters():
            parameter.mul_(1.1)
    *strong, weak = batch(num_views)[0]
    encoder, projector = method.teacher.children()
    q, k_BD, queue_KD = method.projector, projector(encoder(weak)), method.queue.values_KD.clone()
    losses = [
        relation_loss(q(method.encoder(view)), k_BD, queue_KD, temperature=0.3, key_temperature=0.2) for view in strong
    ]
    output = method([*strong, weak], None)
    torch.testing.assert_close(output.loss, torch.stack(losses).mean())
    torch.testing.assert_close(output.features_ND[-BATCH:], encoder(weak), msg="the teacher's")
    method.after_step(output)
    expected = torch.cat([F.normalize(k_BD, dim=1), queue_KD[BATCH:]])
    torch.testing.assert_close(method.queue.values_KD, expected)
