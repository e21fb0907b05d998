"""BYOL and SimSiam: their cosine losses, what is predicted from what, the stop-gradient and the constant rate."""

import math
from collections.abc import Callable
from itertools import permutations

import pytest
import torch
import torch.nn.functional as F
from test_every_method import batch, build
from torch import Tensor

from contune.methods.byol import BYOL, regression_loss
from contune.methods.simsiam import SimSiam, negative_cosine_loss


def rows(seed: int, num: int = 7, dim: int = 5) -> Tensor:
    return torch.randn(num, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_both_losses_against_loops() -> None:
    cosines, distances = [], []
    for p, z in zip(rows(0).tolist(), rows(1).tolist(), strict=True):
        pairs = [(a / math.hypot(*p), b / math.hypot(*z)) for a, b in zip(p, z, strict=True)]
        cosines.append(sum(a * b for a, b in pairs))
        distances.append(sum((a - b) ** 2 for a, b in pairs))
    assert negative_cosine_loss(rows(0), rows(1)).item() == pytest.approx(-sum(cosines) / 7, rel=1e-12)
    assert regression_loss(rows(0), rows(1)).item() == pytest.approx(sum(distances) / 7, rel=1e-12)


@pytest.mark.parametrize(("degrees", "cosine_loss", "squared"), [(0, -1, 0), (60, -0.5, 1), (90, 0, 2), (180, 1, 4)])
def test_losses_on_angles(degrees: float, cosine_loss: float, squared: float) -> None:
    angle = math.radians(degrees)
    p_ND, z_ND = torch.tensor([[3.0, 0.0]]), torch.tensor([[0.2 * math.cos(angle), 0.2 * math.sin(angle)]])
    assert negative_cosine_loss(p_ND, z_ND).item() == pytest.approx(cosine_loss, abs=1e-6)
    assert regression_loss(p_ND, z_ND).item() == pytest.approx(squared, abs=1e-6)


@pytest.mark.parametrize("loss", [negative_cosine_loss, regression_loss])
def test_gradient_and_invariances(loss: Callable[..., Tensor]) -> None:
    p_ND, z_ND = rows(0).requires_grad_(), rows(1).requires_grad_()
    assert torch.autograd.gradcheck(loss, (p_ND, z_ND))
    assert torch.autograd.grad(loss(p_ND, torch.zeros(7, 5)), p_ND)[0].isfinite().all(), "a target without direction"
    expected, lengths_N1, rotation_DD = loss(p_ND, z_ND), rows(2, dim=1).exp(), torch.linalg.qr(rows(4, 5, 5)).Q
    torch.testing.assert_close(loss(p_ND * lengths_N1, z_ND / lengths_N1), expected)
    torch.testing.assert_close(loss(p_ND @ rotation_DD, z_ND @ rotation_DD), expected)
    assert not torch.isclose(loss(p_ND.flip(0), z_ND), expected)


@pytest.mark.parametrize("num_views", [2, 3])
def test_byol_is_the_papers_loss_over_all_directions(num_views: int) -> None:
    method = build("byol")
    assert isinstance(method, BYOL)
    with torch.no_grad():  # a target that differs from the online network
        for parameter in method.target.parameters():
            parameter.mul_(1.1)
    views, _ = batch(num_views)
    encoder, projector = method.target.children()
    q_VBD = F.normalize(method.predictor(method.projector(method.encoder(torch.cat(views)))), dim=1).chunk(num_views)
    z_VBD = F.normalize(projector(encoder(torch.cat(views))), dim=1).chunk(num_views)
    pairs = list(permutations(range(num_views), 2))
    # L + L~ of equation 2 for two views; of six directions, a third.
    expected = sum((q_VBD[i] - z_VBD[j]).square().sum(dim=1).mean() for i, j in pairs) * 2 / len(pairs)
    torch.testing.assert_close(method(views, None).loss, expected)


@pytest.mark.parametrize("num_views", [2, 3])
def test_simsiam_loss_and_gradient_are_the_papers_over_all_directions(num_views: int) -> None:
    method = build("simsiam")
    assert isinstance(method, SimSiam)
    views, _ = batch(num_views)
    z_ND = method.projector(method.encoder(torch.cat(views)))
    p_VBD, z_VBD = method.predictor(z_ND).chunk(num_views), z_ND.detach().chunk(num_views)
    cosines = [F.cosine_similarity(p_VBD[i], z_VBD[j]).mean() for i, j in permutations(range(num_views), 2)]
    found, expected = method(views, None).loss, -torch.stack(cosines).mean()
    torch.testing.assert_close(found, expected)
    parameters = list(method.parameters())
    torch.testing.assert_close(torch.autograd.grad(found, parameters), torch.autograd.grad(expected, parameters))
    names = {name for name, _ in method.named_parameters() if name.startswith(method.constant_rate)}
    assert names == {f"predictor.{name}" for name, _ in method.predictor.named_parameters()}
