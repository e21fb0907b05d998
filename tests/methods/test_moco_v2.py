"""MoCo v2: which keys a query meets, and when they enter the queues."""

import pytest
import torch
import torch.nn.functional as F
from test_every_method import BATCH, batch, build
from torch import Tensor

from contune.errors import UserError
from contune.losses import infonce_loss
from contune.methods.moco_v2 import MoCoV2
from contune.models.queue import Queue

PLACES = 3 * BATCH


def moco(**knobs: float) -> MoCoV2:
    method = build("moco-v2", **({"projector_hidden": 24, "projector_dim": 16, "queue_size": PLACES} | knobs))
    assert isinstance(method, MoCoV2)
    return method


def queued(method: MoCoV2) -> list[Tensor]:
    return [queue.values_KD.clone() for queue in method.queues if isinstance(queue, Queue)]


@pytest.mark.parametrize("num_views", [2, 3])
def test_queries_meet_the_queue_of_their_keys_view(num_views: int) -> None:
    method = moco(temperature=0.3)
    views, _ = batch(num_views)
    q = [method.projector(method.encoder(view)) for view in views]  # at first the key networks are the same
    queues = queued(method)
    losses = [
        infonce_loss(q[i], q[j], queues[j % 2], temperature=0.3)
        for i in range(num_views)
        for j in range(num_views)
        if i != j
    ]
    torch.testing.assert_close(method(views, None).loss, sum(losses) / torch.tensor(len(losses)))


def test_keys_are_kept_view_by_view_and_the_oldest_are_replaced() -> None:
    method = moco()
    random = queued(method)
    for step in range(4):
        views, _ = batch()
        views = [view + step for view in views]
        encoder, projector = method.key_networks.children()
        keys = [F.normalize(projector(encoder(view)), dim=1) for view in views]
        output = method(views, None)
        assert not output.state["k_VBD"].requires_grad
        before = queued(method)
        method.after_step(output)
        place = step % 3 * BATCH
        for view, queue in enumerate(queued(method)):
            torch.testing.assert_close(queue[place : place + BATCH], keys[view])
            untouched = torch.ones(PLACES, dtype=torch.bool)
            untouched[place : place + BATCH] = False
            assert torch.equal(queue[untouched], before[view][untouched])
            assert torch.equal(queue[place + BATCH :], random[view][place + BATCH :]) or step == 3


def test_the_keys_of_a_third_view_join_the_first() -> None:
    method = moco()
    views, _ = batch(3)
    output = method(views, None)
    method.after_step(output)
    first, second = (queue for queue in method.queues if isinstance(queue, Queue))
    assert (first.position.item(), second.position.item()) == (2 * BATCH, BATCH)
    torch.testing.assert_close(first.values_KD[: 2 * BATCH], output.state["k_VBD"][[0, 2]].flatten(0, 1))


def test_gradient_and_momentum() -> None:
    method = moco(momentum=0.75, last_momentum=0.75)
    output = method(*batch())
    output.loss.backward()
    assert all(parameter.grad is None for parameter in method.key_networks.parameters())
    before = [parameter.clone() for parameter in method.key_networks.parameters()]
    with torch.no_grad():
        for parameter in (*method.encoder.parameters(), *method.projector.parameters()):
            parameter.add_(1)
    method.after_step(output)
    for old, new in zip(before, method.key_networks.parameters(), strict=True):
        torch.testing.assert_close(new, old + 0.25)


def test_the_first_queues_depend_on_the_seed_alone_and_are_saved() -> None:
    """So every process begins with the same, and a run that was stopped goes on with its own."""
    method, same = moco(), moco()
    assert all(map(torch.equal, queued(method), queued(same)))
    method.after_step(method(*batch()))
    views, _ = batch(2)
    assert method(views, None).loss != same(views, None).loss
    same.load_state_dict(method.state_dict())
    assert method(views, None).loss == same(views, None).loss


def test_defaults_are_the_references() -> None:
    method = build("moco-v2")
    assert isinstance(method, MoCoV2)
    assert [tuple(queue.shape) for queue in queued(method)] == [(32768, 256)] * 2
    assert [tuple(p.shape) for p in method.projector.parameters()] == [(2048, 256), (2048,), (256, 2048), (256,)]
    knobs = method.settings
    assert (knobs.temperature, knobs.momentum, knobs.last_momentum) == (0.2, 0.99, 0.999)


def test_a_batch_larger_than_the_queue_is_refused() -> None:
    method = moco(queue_size=BATCH - 1)
    with pytest.raises(UserError, match=f"a batch of {BATCH} does not fit a queue of {BATCH - 1}"):
        method.after_step(method(*batch()))
