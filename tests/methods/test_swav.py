"""SwAV: Sinkhorn-Knopp and swapped prediction against nested loops, its queue, and its prototypes."""

import math

import pytest
import torch
import torch.nn.functional as F
from test_every_method import BATCH, SIZE, batch, build
from torch import Tensor

from contune.errors import UserError
from contune.methods.swav import SwAV, sinkhorn, swapped_prediction_loss

N, K = 12, 5


def cosines(num: int = N, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    z_ND, c_KD = (F.normalize(torch.randn(n, 8, generator=generator).double(), dim=1) for n in (num, K))
    return z_ND @ c_KD.T


def nested_sinkhorn(scores: Tensor, weights: Tensor, epsilon: float = 0.05, num_iterations: int = 3) -> Tensor:
    """As the paper writes it, entry by entry; the sums over columns count each row by its weight."""
    num, size = scores.shape
    q = [[math.exp(scores[n, k].item() / epsilon) for k in range(size)] for n in range(num)]
    for _ in range(num_iterations):
        for k in range(size):
            total = sum(weights[n].item() * q[n][k] for n in range(num))
            for n in range(num):
                q[n][k] /= total
        for n in range(num):
            q[n] = [value / sum(q[n]) for value in q[n]]
    return torch.tensor(q, dtype=torch.float64)


def assigned(scores: Tensor, **knobs: float) -> Tensor:
    weights, eye = torch.ones(1, len(scores)), torch.eye(scores.shape[1]).to(scores.dtype)
    return sinkhorn(scores[None], eye, weights, wanted=slice(None), **knobs)[0]  # type: ignore[arg-type]


@pytest.mark.parametrize("num_iterations", [1, 3, 10])
@pytest.mark.parametrize("epsilon", [0.5, 0.05, 0.03, 0.005])
def test_sinkhorn_against_nested_loops(num_iterations: int, epsilon: float) -> None:
    """Two views at once, one with rows that do not count."""
    both_TNK = torch.stack([cosines(seed=1), cosines(seed=2)])
    weights_TN = torch.stack([torch.ones(N), torch.arange(N) % 3]).double()
    knobs = {"epsilon": epsilon, "num_iterations": num_iterations}
    expected = torch.stack(
        [nested_sinkhorn(*view, **knobs)[2:9] for view in zip(both_TNK, weights_TN, strict=True)]  # type: ignore[arg-type]
    )
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 2e-2 if epsilon < 0.01 else 1e-4)):
        scores_TNK, eye_KK = both_TNK.to(dtype).requires_grad_(), torch.eye(K).to(dtype)
        found = sinkhorn(scores_TNK, eye_KK, weights_TN, wanted=slice(2, 9), **knobs)  # type: ignore[arg-type]
        torch.testing.assert_close(found, expected.to(dtype), rtol=tolerance, atol=tolerance)
        assert not found.requires_grad


def test_sinkhorn_sums_and_limits() -> None:
    found = assigned(cosines(), num_iterations=200)
    torch.testing.assert_close(found.sum(dim=1), torch.ones(N).double())
    torch.testing.assert_close(found.sum(dim=0), torch.full((K,), N / K).double(), rtol=0, atol=1e-6)
    alike = assigned(cosines()[:1].expand(N, K))
    torch.testing.assert_close(alike, torch.full((N, K), 1 / K).double(), msg="a collapsed network's targets")
    scores = torch.tensor([[0.9, 0.8, 0.1], [0.8, 0.2, 0.1], [0.9, 0.7, 0.6]], dtype=torch.float64)
    assert assigned(scores, epsilon=0.005, num_iterations=200).argmax(dim=1).tolist() == [1, 0, 2], "a permutation"


@pytest.mark.parametrize(("num_global", "num_views"), [(2, 2), (2, 5), (3, 4)])
def test_swapped_prediction_against_nested_loops(num_global: int, num_views: int) -> None:
    scores = torch.stack([cosines(seed=view) for view in range(num_views)]).requires_grad_()
    assignments = torch.stack([assigned(scores_NK) for scores_NK in scores[:num_global]])
    losses = [
        -(assignments[t, b] * (torch.exp(scores[v, b] / 0.2) / torch.exp(scores[v, b] / 0.2).sum()).log()).sum()
        for t in range(num_global)
        for v in range(num_views)
        for b in range(N)
        if v != t
    ]
    actual, expected = swapped_prediction_loss(scores, assignments, temperature=0.2), torch.stack(losses).mean()
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
    gradients = (torch.autograd.grad(3 * loss, scores)[0] for loss in (actual, expected))
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-12)


def swav(**knobs: object) -> SwAV:
    method = build("swav", **({"projector_dim": 16, "queue_size": 30, "queue_epoch": 2.0} | knobs))
    assert isinstance(method, SwAV)
    return method


@pytest.mark.parametrize(
    ("epoch", "num_rows", "counts"), [(0.0, 0, False), (1.9, 30, False), (2.0, 30, True), (7.0, 29, False)]
)
def test_the_queue_counts_from_its_epoch_on_if_it_is_full(epoch: float, num_rows: int, counts: bool) -> None:
    """Before, assignments are exactly those of the batch alone; then, those of the batch together with the queue."""
    method = swav(temperature=0.2, epsilon=0.1, sinkhorn_iterations=2)
    for seed, queue in enumerate(method.queues):
        rows = torch.randn(num_rows, 16, generator=torch.Generator().manual_seed(seed))
        queue.push(F.normalize(rows, dim=1))
    method.set_time(epoch, 10)
    views = [*batch()[0], torch.randn(BATCH, 1, SIZE, SIZE)]  # the third one only predicts
    z_VBD = F.normalize(method.projector(torch.cat([method.encoder(view) for view in views])), dim=1).chunk(3)
    c_DK = F.normalize(method.prototypes.weight, dim=1).T
    targets = []
    for z_BD, queue in zip(z_VBD, method.queues, strict=False):
        rows = torch.cat([z_BD, queue.values_KD]) if counts else z_BD
        targets.append(assigned(rows @ c_DK, epsilon=0.1, num_iterations=2)[:BATCH])
    expected = swapped_prediction_loss(torch.stack(z_VBD) @ c_DK, torch.stack(targets), temperature=0.2)
    output = method(views, None)
    torch.testing.assert_close(output.loss, expected, rtol=1e-5, atol=1e-6)
    before = [int(queue.position) for queue in method.queues]
    method.after_step(output)
    for z_BD, queue, place in zip(z_VBD, method.queues, before, strict=False):
        torch.testing.assert_close(queue.values_KD[(place + torch.arange(BATCH)) % 30], z_BD)


def test_without_a_queue_it_is_the_batch_alone() -> None:
    views, _ = batch()
    without = swav(queue_size=0, queue_epoch=0.0)
    assert without(views, None).loss == swav(queue_epoch=100.0)(views, None).loss
    without.after_step(without(views, None))
    with pytest.raises(UserError, match="views"):
        swav(global_views=3)(views, None)
