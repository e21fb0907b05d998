"""Sinkhorn-Knopp against nested loops and by its sums, and SwAV's swapped prediction against nested loops."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from contune.errors import UserError
from contune.losses.clusters import sinkhorn, sinkhorn_of_cosines, swapped_prediction_loss

N, K = 12, 5


def cosines(num: int = N, size: int = K, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    z_ND, c_KD = (F.normalize(torch.randn(n, 8, generator=generator).double(), dim=1) for n in (num, size))
    return z_ND @ c_KD.T


def nested_sinkhorn(scores: Tensor, epsilon: float, num_iterations: int) -> Tensor:
    """As the paper writes it, entry by entry, with the marginals 1/K and 1/N in place."""
    num, size = scores.shape
    q = [[math.exp(scores[n, k].item() / epsilon) for k in range(size)] for n in range(num)]
    for _ in range(num_iterations):
        for k in range(size):
            total = sum(q[n][k] for n in range(num))
            for n in range(num):
                q[n][k] /= total * size
        for n in range(num):
            total = sum(q[n])
            for k in range(size):
                q[n][k] /= total * num
    return num * torch.tensor(q, dtype=torch.float64)


@pytest.mark.parametrize("num_iterations", [1, 3, 10])
def test_sinkhorn_against_nested_loops(num_iterations: int) -> None:
    expected = nested_sinkhorn(cosines(), 0.05, num_iterations)
    actual = sinkhorn(cosines(), epsilon=0.05, num_iterations=num_iterations)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-12)


def test_rows_sum_to_1_at_once_and_columns_to_the_same_in_the_end() -> None:
    shares_K = torch.full((K,), N / K, dtype=torch.float64)
    off = []
    for num_iterations in (1, 3, 200):
        assignments_NK = sinkhorn(cosines(), num_iterations=num_iterations)
        torch.testing.assert_close(assignments_NK.sum(dim=1), torch.ones(N, dtype=torch.float64))
        off.append((assignments_NK.sum(dim=0) - shares_K).abs().max().item())
    assert off[0] > off[1] > off[2]
    assert off[2] < 1e-6


def test_all_rows_alike_are_spread_over_all_prototypes() -> None:
    """What a collapsed network gets as targets, and what it costs."""
    scores_NK = cosines()[:1].expand(N, K)
    uniform_NK = torch.full((N, K), 1 / K, dtype=torch.float64)
    assignments_NK = sinkhorn(scores_NK)
    torch.testing.assert_close(assignments_NK, uniform_NK)
    views_VNK = torch.zeros(2, N, K)
    assert swapped_prediction_loss(views_VNK, assignments_NK.expand(2, N, K)).item() == pytest.approx(math.log(K))


def test_as_many_rows_as_prototypes_become_a_permutation() -> None:
    scores = torch.tensor([[0.9, 0.8, 0.1], [0.8, 0.2, 0.1], [0.9, 0.7, 0.6]], dtype=torch.float64)
    assignments = sinkhorn(scores, epsilon=0.005, num_iterations=200)
    assert assignments.argmax(dim=1).tolist() == [1, 0, 2]
    torch.testing.assert_close(assignments.amax(dim=1), torch.ones(3, dtype=torch.float64), rtol=0, atol=1e-2)


@pytest.mark.parametrize("scale", [1e3, 1e6])
def test_large_scores_do_not_overflow(scale: float) -> None:
    assignments_NK = sinkhorn(scale * cosines().float(), epsilon=0.05)
    assert assignments_NK.dtype == torch.float32
    assert assignments_NK.isfinite().all()
    torch.testing.assert_close(assignments_NK.sum(dim=1), torch.ones(N), rtol=1e-4, atol=1e-4)


def test_order_and_offsets_do_not_matter() -> None:
    scores, assignments = cosines(), sinkhorn(cosines())
    rows, columns = (torch.randperm(n, generator=torch.Generator().manual_seed(1)) for n in (N, K))
    torch.testing.assert_close(sinkhorn(scores[rows][:, columns]), assignments[rows][:, columns])
    torch.testing.assert_close(sinkhorn(scores + torch.arange(K)), assignments)
    torch.testing.assert_close(sinkhorn(scores + 3.0), assignments)


def test_weights_say_which_rows_count() -> None:
    scores, more = cosines(), cosines(num=7, seed=2)
    together = torch.cat([scores, more])
    none, all_ = (torch.cat([torch.ones(N), torch.full((7,), weight)]) for weight in (0.0, 1.0))
    without, along = sinkhorn(together, weights_N=none), sinkhorn(together, weights_N=all_)
    torch.testing.assert_close(without[:N], sinkhorn(scores), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(along, sinkhorn(together), rtol=1e-12, atol=1e-12)
    assert not torch.allclose(along[:N], without[:N], atol=1e-2)
    assert without.isfinite().all()
    twice = sinkhorn(scores, weights_N=torch.tensor([2] + [1] * (N - 1)))
    torch.testing.assert_close(twice, sinkhorn(torch.cat([scores, scores[:1]]))[:N])


def rows_whose_products_are(cosines_TNK: Tensor) -> tuple[Tensor, Tensor]:
    """Vectors and prototypes."""
    return cosines_TNK, torch.eye(cosines_TNK.shape[2], dtype=cosines_TNK.dtype)


@pytest.mark.parametrize("num_iterations", [1, 3, 10])
@pytest.mark.parametrize("epsilon", [0.5, 0.05, 0.03, 0.005])
def test_unit_vectors_are_assigned_alike_without_logarithms(num_iterations: int, epsilon: float) -> None:
    """Two matrices at once, one of which has rows that do not count; ε on both sides of where logarithms begin."""
    both_TNK = torch.stack([cosines(seed=1), cosines(seed=2)])
    weights_TN = torch.stack([torch.ones(N), torch.arange(N) % 3]).double()
    found = sinkhorn_of_cosines(
        *rows_whose_products_are(both_TNK),
        weights_TN,
        wanted=slice(2, 9),
        epsilon=epsilon,
        num_iterations=num_iterations,
    )
    expected = [
        sinkhorn(one_NK, epsilon=epsilon, num_iterations=num_iterations, weights_N=one_N)[2:9]
        for one_NK, one_N in zip(both_TNK, weights_TN, strict=True)
    ]
    torch.testing.assert_close(found, torch.stack(expected), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("epsilon", "num_iterations"), [(0.04, 20), (0.0286, 5), (0.0286, 1)])
@pytest.mark.parametrize(("num", "size"), [(300, 4), (4, 300), (64, 64), (256, 3000), (2, 3000)])
@pytest.mark.parametrize("kind", ["poles", "columns", "rows", "alone", "crossing", "halves"])
def test_cosines_of_1_and_minus_1_are_assigned_in_float32_as_in_float64(
    epsilon: float, num_iterations: int, num: int, size: int, kind: str
) -> None:
    """The largest ratios that cosines can have, at the smallest ε without logarithms."""
    signs = torch.randn(num, size, generator=torch.Generator().manual_seed(0)).sign()
    row, column = torch.arange(num)[:, None], torch.arange(size)
    signs = {
        "poles": signs,
        "columns": signs[:1].expand(num, size),
        "rows": signs[:, :1].expand(num, size),
        "alone": torch.where(row == column, 1.0, -1.0),
        "crossing": torch.where((row == 0) ^ (column == 0), 1.0, -1.0),
        "halves": torch.where((row < num // 2) ^ (column < 1), 1.0, -1.0),
    }[kind]
    (found,) = sinkhorn_of_cosines(
        *rows_whose_products_are(signs[None]),
        torch.ones(1, num),
        wanted=slice(None),
        epsilon=epsilon,
        num_iterations=num_iterations,
    )
    expected = sinkhorn(signs.double(), epsilon=epsilon, num_iterations=num_iterations)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-6)


def test_assignments_take_no_gradient() -> None:
    scores = cosines().requires_grad_()
    assert not sinkhorn(scores).requires_grad
    vectors, prototypes = rows_whose_products_are(scores[None])
    assert not sinkhorn_of_cosines(vectors, prototypes, torch.ones(1, N), wanted=slice(None)).requires_grad


def nested_swapped(scores: Tensor, assignments: Tensor, temperature: float) -> Tensor:
    losses = []
    for t in range(len(assignments)):
        for v in range(len(scores)):
            if v == t:
                continue
            for b in range(scores.shape[1]):
                p = torch.exp(scores[v, b] / temperature)
                losses.append(-(assignments[t, b] * (p / p.sum()).log()).sum())
    return torch.stack(losses).mean()


@pytest.mark.parametrize(("num_global", "num_views"), [(2, 2), (2, 6), (3, 4)])
def test_swapped_prediction_against_nested_loops(num_global: int, num_views: int) -> None:
    scores_VBK = torch.stack([cosines(seed=view) for view in range(num_views)]).requires_grad_()
    assignments_TBK = torch.stack([sinkhorn(scores) for scores in scores_VBK[:num_global]])
    actual = swapped_prediction_loss(scores_VBK, assignments_TBK, temperature=0.2)
    expected = nested_swapped(scores_VBK, assignments_TBK, 0.2)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        *(torch.autograd.grad(3 * loss, scores_VBK)[0] for loss in (actual, expected)), rtol=1e-9, atol=1e-12
    )


def test_swapped_prediction_by_hand() -> None:
    """Each view sure of its own prototype: the other's costs the difference of their scores over τ."""
    assignments = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    scores = torch.tensor([[[0.5, -0.5]], [[-0.5, 0.5]]])
    loss = swapped_prediction_loss(scores, assignments, temperature=0.5)
    assert loss.item() == pytest.approx(math.log(1 + math.exp(2)))
    assert swapped_prediction_loss(scores, assignments.flip(0), temperature=0.5).item() == pytest.approx(
        math.log(1 + math.exp(-2))
    )


def test_low_precision_is_computed_in_float32() -> None:
    scores = cosines().bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assignments = sinkhorn(scores)
        loss = swapped_prediction_loss(scores.expand(2, N, K), assignments.expand(2, N, K))
    assert (assignments.dtype, loss.dtype) == (torch.float32, torch.float32)
    torch.testing.assert_close(assignments, sinkhorn(scores.double()).float(), rtol=1e-4, atol=1e-6)


def test_wrong_knobs() -> None:
    with pytest.raises(UserError, match="epsilon must be above 0 and finite, got 0"):
        sinkhorn(cosines(), epsilon=0.0)
    with pytest.raises(UserError, match="epsilon must be above 0 and finite, got -1"):
        sinkhorn_of_cosines(
            *rows_whose_products_are(cosines()[None]), torch.ones(1, N), wanted=slice(None), epsilon=-1.0
        )
    with pytest.raises(UserError, match="num_iterations must be 1 or more, got 0"):
        sinkhorn(cosines(), num_iterations=0)
    with pytest.raises(UserError, match=r"scores must be \(N, d\), got shape \(2, 3, 4\)"):
        sinkhorn(torch.zeros(2, 3, 4))
    with pytest.raises(UserError, match="temperature must be above 0 and finite, got -1"):
        swapped_prediction_loss(torch.zeros(2, 3, 4), torch.zeros(2, 3, 4), temperature=-1.0)
