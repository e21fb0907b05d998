"""BYOL: what is predicted from what, and how the target follows."""

import pytest
import torch
import torch.nn.functional as F
from test_every_method import BATCH, batch, build
from torch import Tensor

from contune.methods.byol import BYOL
from contune.models.heads import mlp

SMALL = {"projector_hidden": 24, "projector_dim": 16, "predictor_hidden": 20}


def byol(**knobs: float) -> BYOL:
    method = build("byol", **(SMALL | knobs))
    assert isinstance(method, BYOL)
    return method


@pytest.mark.parametrize("num_views", [2, 3])
def test_the_loss_is_the_papers_over_all_directions(num_views: int) -> None:
    method = byol()
    with torch.no_grad():  # a target that is not the online network any more
        for parameter in method.target.parameters():
            parameter.mul_(1.1)
    views, _ = batch(num_views)
    target_encoder, target_projector = method.target.children()
    online_ND = method.predictor(method.projector(method.encoder(torch.cat(views))))
    target_ND = target_projector(target_encoder(torch.cat(views)))
    total = torch.zeros(())
    for i in range(num_views):
        for j in range(num_views):
            if i != j:
                rows_i, rows_j = (slice(view * BATCH, (view + 1) * BATCH) for view in (i, j))
                q_BD, z_BD = F.normalize(online_ND[rows_i], dim=1), F.normalize(target_ND[rows_j], dim=1)
                total = total + (q_BD - z_BD).square().sum(dim=1).mean()
    # L + L~ of equation 2 for two views; of six directions, a third.
    expected = total * 2 / (num_views * (num_views - 1))
    torch.testing.assert_close(method(views, None).loss, expected)


def test_only_the_online_network_is_trained() -> None:
    method = byol()
    method(*batch()).loss.backward()
    assert all(parameter.grad is None for parameter in method.target.parameters())
    assert not set(method.target.parameters()) & set(method.parameter_groups()[0].parameters)


@pytest.mark.parametrize(("share", "momentum"), [(0.0, 0.9), (0.5, 0.95), (1.0, 1.0)])
def test_the_target_follows_on_a_cosine(share: float, momentum: float) -> None:
    method = byol(momentum=0.9)
    method.set_time(10 * share, 10)
    output = method(*batch())
    with torch.no_grad():
        for parameter in (*method.encoder.parameters(), *method.projector.parameters()):
            parameter.add_(torch.randn_like(parameter))
    before = [parameter.clone() for parameter in method.target.parameters()]
    method.after_step(output)
    online = [*method.encoder.parameters(), *method.projector.parameters()]
    for old, leader, new in zip(before, online, method.target.parameters(), strict=True):
        torch.testing.assert_close(new, momentum * old + (1 - momentum) * leader.detach())


def test_heads_have_the_references_sizes() -> None:
    def sizes(head: torch.nn.Module) -> list[tuple[int, ...]]:
        return [tuple(parameter.shape) for parameter in head.parameters()]

    method = build("byol")
    assert isinstance(method, BYOL)
    assert sizes(method.projector) == sizes(mlp([256, 4096, 256]))
    assert sizes(method.predictor) == sizes(mlp([256, 4096, 256]))
    assert (method.settings.momentum, method.settings.last_momentum) == (0.99, 1.0)


def test_a_target_that_stands_still_is_learnt() -> None:
    method = byol(momentum=1.0)
    views, _ = batch()
    optimizer = torch.optim.SGD(method.parameter_groups()[0].parameters, lr=0.05, momentum=0.9)
    losses: list[Tensor] = []
    for _ in range(20):
        output = method(views, None)
        losses.append(output.loss.detach())
        optimizer.zero_grad()
        output.loss.backward()
        optimizer.step()
        method.after_step(output)
    assert losses[-1] < 0.5 * losses[0]
