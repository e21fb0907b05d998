"""SwAV: its loss on its own scores, its two queues and when they count, and what is frozen and saved."""

import pytest
import torch
import torch.nn.functional as F
from test_every_method import BATCH, SIZE, batch, build
from torch import Tensor, nn

from contune.errors import UserError
from contune.losses.clusters import sinkhorn, swapped_prediction_loss
from contune.methods.swav import SwAV
from contune.models.norm import BatchNorm
from contune.models.queue import Queue
from contune.train.collapse import COLLAPSED_RANK, spread

SMALL = {"projector_hidden": 32, "projector_dim": 16, "num_prototypes": 20, "queue_size": 30, "queue_epoch": 2.0}


def small(**knobs: object) -> SwAV:
    method = build("swav", **(SMALL | knobs))
    assert isinstance(method, SwAV)
    return method


def queues(method: SwAV) -> list[Queue]:
    return [queue for queue in method.queues if isinstance(queue, Queue)]


def embeddings(method: SwAV, views: list[Tensor]) -> Tensor:
    """(V, B, D): batch-norm sees all views at once, so they go through together."""
    z_ND = F.normalize(method.projector(torch.cat([method.encoder(view) for view in views])), dim=1)
    return torch.stack(z_ND.chunk(len(views)))


def scores(method: SwAV, z: Tensor) -> Tensor:
    return z @ F.normalize(method.prototypes.weight, dim=1).T


def step(method: SwAV, optimizer: torch.optim.Optimizer, views: list[Tensor]) -> float:
    output = method(views, None)
    optimizer.zero_grad()
    output.loss.backward()
    optimizer.step()
    method.after_step(output)
    loss: float = output.loss.item()
    return loss


def fill(method: SwAV, num_rows: int) -> None:
    for seed, queue in enumerate(queues(method)):
        rows = torch.randn(num_rows, 16, generator=torch.Generator().manual_seed(seed))
        queue.push(F.normalize(rows, dim=1))


@pytest.mark.parametrize(("num_views", "num_global"), [(2, 2), (5, 2), (4, 3)])
def test_it_is_its_loss_on_its_own_assignments(num_views: int, num_global: int) -> None:
    method = small(global_views=num_global, temperature=0.2, epsilon=0.1, sinkhorn_iterations=2)
    views, labels_B = batch(num_views)
    scores_VBK = scores(method, embeddings(method, views))
    assigned = [sinkhorn(scores_BK, epsilon=0.1, num_iterations=2) for scores_BK in scores_VBK[:num_global]]
    expected = swapped_prediction_loss(scores_VBK, torch.stack(assigned), temperature=0.2)
    torch.testing.assert_close(method(views, labels_B).loss, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("epoch", "num_rows", "counts"), [(1.9, 30, False), (2.0, 30, True), (7.0, 30, True), (7.0, 29, False)]
)
def test_the_queue_counts_from_its_epoch_on_and_when_it_is_full(epoch: float, num_rows: int, counts: bool) -> None:
    """Before, assignments are exactly those of the batch alone; then, those of the batch among the queue's rows."""
    method = small()
    fill(method, num_rows)
    method.set_time(epoch, 10)
    views, _ = batch()
    z_VBD = embeddings(method, views)
    assigned = []
    for z_BD, queue in zip(z_VBD, queues(method), strict=True):
        rows = torch.cat([z_BD, queue.values_KD]) if counts else z_BD
        assigned.append(sinkhorn(scores(method, rows))[:BATCH])
    expected = swapped_prediction_loss(scores(method, z_VBD), torch.stack(assigned))
    torch.testing.assert_close(method(views, None).loss, expected, rtol=1e-6, atol=1e-6)


def test_each_global_view_has_a_queue_of_its_own() -> None:
    method = small()
    views, _ = batch(3)
    z_VBD = embeddings(method, views)
    method.after_step(method(views, None))
    assert len(method.queues) == 2
    for z_BD, queue in zip(z_VBD, queues(method), strict=False):
        torch.testing.assert_close(queue.values_KD[:BATCH], z_BD)
        assert queue.num_seen == BATCH


def test_without_a_queue_it_is_the_batch_alone() -> None:
    views, _ = batch()
    without = small(queue_size=0, queue_epoch=0.0)
    assert len(without.queues) == 0
    loss = without(views, None).loss
    without.after_step(without(views, None))
    assert loss == small(queue_epoch=100.0)(views, None).loss


def test_small_crops_only_predict() -> None:
    views, _ = batch(2)
    crops = [torch.randn(BATCH, 1, SIZE // 2, SIZE // 2, generator=torch.Generator().manual_seed(n)) for n in range(3)]
    output = small()([*views, *crops], None)
    output.loss.backward()
    assert output.loss.isfinite()
    assert output.features_ND.shape == (5 * BATCH, 256)
    assert output.state["z_TBD"].shape == (2, BATCH, 16)


def test_the_reference_values_are_the_defaults() -> None:
    method = SwAV(nn.Identity(), 256, 3, SwAV.Settings())
    assert [type(layer) for layer in method.projector] == [nn.Linear, BatchNorm, nn.ReLU, nn.Linear]
    layers = [layer for layer in method.projector if isinstance(layer, nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in layers] == [(256, 2048), (2048, 128)]
    assert method.prototypes.weight.shape == (3000, 128)
    assert [queue.values_KD.shape for queue in queues(method)] == [(3840, 128)] * 2
    knobs = method.settings
    assert (knobs.temperature, knobs.epsilon, knobs.sinkhorn_iterations) == (0.1, 0.05, 3)
    assert (knobs.queue_epoch, knobs.frozen_epochs) == (50.0, 2.0)


def test_prototypes_stay_for_two_epochs_and_then_move() -> None:
    method = small()
    optimizer = torch.optim.SGD(method.parameters(), lr=0.1, momentum=0.9)
    first = method.prototypes.weight.clone()
    for epoch in (0.0, 1.0, 1.99):
        method.set_time(epoch, 10)
        step(method, optimizer, batch()[0])
        assert torch.equal(method.prototypes.weight, first)
    method.set_time(2.0, 10)
    step(method, optimizer, batch()[0])
    assert not torch.equal(method.prototypes.weight, first)


def test_too_few_views_are_a_sentence() -> None:
    with pytest.raises(UserError, match=r"the first 2 being global ones, and got 1; set augment\.views=2 or more"):
        small()(batch(1)[0], None)


def test_a_batch_larger_than_the_queue_is_a_sentence() -> None:
    method = small(queue_size=8)
    output = method(batch()[0], None)
    with pytest.raises(UserError, match="a batch of 12 does not fit a queue of 8"):
        method.after_step(output)


def test_under_autocast_scores_assignments_and_loss_are_float32() -> None:
    method = small(queue_epoch=0.0)
    fill(method, 30)
    views, _ = batch()
    plain = method(views, None).loss
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = method(views, None)
        assert method.prototypes(output.state["z_TBD"][0]).dtype == torch.float32
    assert output.loss.dtype == torch.float32
    torch.testing.assert_close(output.loss, plain, rtol=0.02, atol=0.0)
    method.after_step(output)
    assert all(queue.values_KD.dtype == torch.float32 for queue in queues(method))


def test_a_saved_method_goes_on_exactly() -> None:
    """In the middle of filling its queues, before they count and its prototypes move."""
    losses = []
    for interrupted in (False, True):
        method = small(frozen_epochs=3)
        for number in range(6):
            if interrupted and number == 2:
                state = method.state_dict()
                method = small(frozen_epochs=3)
                with torch.no_grad():
                    method.prototypes.weight.zero_()
                method.load_state_dict(state)
            method.set_time(number, 6)
            losses.append(step(method, torch.optim.SGD(method.parameters(), lr=0.1), batch()[0]))
    assert losses[:6] == losses[6:]


def test_training_on_noisy_patterns_keeps_features_apart_and_brings_views_together() -> None:
    method = small(projector_hidden=256, projector_dim=64, num_prototypes=300, queue_size=48)
    optimizer = torch.optim.SGD(method.parameters(), lr=0.02, momentum=0.9)
    views, _ = batch()
    before = spread(method(views, None).features_ND, 2)
    losses = []
    for number in range(30):
        method.set_time(number / 6, 10)
        losses.append(step(method, optimizer, views))
    after = spread(method(views, None).features_ND, 2)
    assert losses[-1] < losses[0] - 0.5
    assert after["alignment"] < 0.5 * before["alignment"]
    # 0.78 to 0.81, as the last digit of a pixel decides
    assert after["feature_std"] > 0.7 * before["feature_std"]
    assert after["effective_rank"] > 2 * COLLAPSED_RANK
