"""SimSiam: the stop-gradient, and a predictor with a rate of its own."""

import pytest
import torch
import torch.nn.functional as F
from test_every_method import BATCH, batch, build
from torch import nn

from contune.methods.simsiam import SimSiam
from contune.models.norm import BatchNorm
from contune.train.optim import build_optimizer, set_learning_rate

SMALL = {"projector_hidden": 24, "projector_dim": 16, "predictor_hidden": 8}


def simsiam(**knobs: int) -> SimSiam:
    method = build("simsiam", **(SMALL | knobs))
    assert isinstance(method, SimSiam)
    return method


@pytest.mark.parametrize("num_views", [2, 3])
def test_loss_and_gradient_are_the_papers_over_all_directions(num_views: int) -> None:
    method = simsiam()
    views, _ = batch(num_views)
    method(views, None).loss.backward()
    found = [parameter.grad for parameter in method.parameters()]

    method.zero_grad()
    z_ND = method.projector(method.encoder(torch.cat(views)))
    p_ND = method.predictor(z_ND)
    cosines = []
    for i in range(num_views):
        for j in set(range(num_views)) - {i}:
            rows_i, rows_j = (slice(view * BATCH, (view + 1) * BATCH) for view in (i, j))
            cosines.append(F.cosine_similarity(p_ND[rows_i], z_ND[rows_j].detach()).mean())
    loss = -torch.stack(cosines).mean()
    loss.backward()
    torch.testing.assert_close(method(views, None).loss, loss)
    torch.testing.assert_close(found, [parameter.grad for parameter in method.parameters()])


def test_the_predictors_rate_is_constant() -> None:
    method = simsiam()
    others, predictor = method.parameter_groups()
    assert (others.constant, predictor.constant) == (False, True)
    assert {id(p) for p in predictor.parameters} == {id(p) for p in method.predictor.parameters()}
    assert {id(p) for p in (*others.parameters, *predictor.parameters)} == {id(p) for p in method.parameters()}
    optimizer = build_optimizer(method, "sgd", lr=0.5, momentum=0.9, weight_decay=1e-5)
    set_learning_rate(optimizer, 0.1)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.5]


def test_heads_have_the_references_sizes() -> None:
    method = build("simsiam")
    assert isinstance(method, SimSiam)
    linear = [layer for head in (method.projector, method.predictor) for layer in head if isinstance(layer, nn.Linear)]
    assert [layer.out_features for layer in linear] == [2048, 2048, 2048, 512, 2048]
    norms = [layer for layer in method.projector if isinstance(layer, BatchNorm)]
    assert [norm.affine for norm in norms] == [True, True, False]
    assert [type(layer) for layer in method.predictor] == [nn.Linear, BatchNorm, nn.ReLU, nn.Linear]
