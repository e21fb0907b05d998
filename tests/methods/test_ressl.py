"""ReSSL: strong views for the student, the weak one for the teacher, and its queue."""

import pytest
import torch
import torch.nn.functional as F
from test_every_method import BATCH, batch, build

from contune.losses import relation_loss
from contune.methods.ressl import ReSSL

PLACES = 3 * BATCH


def ressl(**knobs: float) -> ReSSL:
    method = build("ressl", **({"projector_hidden": 24, "projector_dim": 16, "queue_size": PLACES} | knobs))
    assert isinstance(method, ReSSL)
    return method


@pytest.mark.parametrize("num_views", [2, 4])
def test_every_strong_view_is_compared_with_the_last_one(num_views: int) -> None:
    method = ressl(temperature=0.3, teacher_temperature=0.2)
    with torch.no_grad():
        for parameter in method.teacher.parameters():
            parameter.mul_(1.1)
    *strong, weak = batch(num_views)[0]
    encoder, projector = method.teacher.children()
    k_BD = projector(encoder(weak))
    losses = [
        relation_loss(
            method.projector(method.encoder(view)), k_BD, method.queue.values_KD, temperature=0.3, key_temperature=0.2
        )
        for view in strong
    ]
    output = method([*strong, weak], None)
    torch.testing.assert_close(output.loss, sum(losses) / torch.tensor(len(losses)))
    torch.testing.assert_close(output.features_ND[-BATCH:], encoder(weak))


def test_only_the_student_is_trained_and_the_teacher_follows() -> None:
    method = ressl(momentum=0.75, last_momentum=0.75)
    output = method(*batch())
    output.loss.backward()
    assert all(parameter.grad is None for parameter in method.teacher.parameters())
    before = [parameter.clone() for parameter in method.teacher.parameters()]
    with torch.no_grad():
        for parameter in (*method.encoder.parameters(), *method.projector.parameters()):
            parameter.add_(1)
    method.after_step(output)
    for old, new in zip(before, method.teacher.parameters(), strict=True):
        torch.testing.assert_close(new, old + 0.25)


def test_the_queue_holds_the_teachers_weak_views() -> None:
    method = ressl()
    views, _ = batch()
    encoder, projector = method.teacher.children()
    k_BD, random_KD = F.normalize(projector(encoder(views[-1])), dim=1), method.queue.values_KD.clone()
    method.after_step(method(views, None))
    torch.testing.assert_close(method.queue.values_KD[:BATCH], k_BD)
    assert torch.equal(method.queue.values_KD[BATCH:], random_KD[BATCH:])


def test_the_teacher_and_the_queue_are_saved() -> None:
    method, same = ressl(), ressl()
    views, _ = batch()
    method.after_step(method(views, None))
    same.load_state_dict(method.state_dict())
    assert method(views, None).loss == same(views, None).loss


def test_defaults_are_the_references() -> None:
    method = build("ressl")
    assert isinstance(method, ReSSL)
    assert method.queue.values_KD.shape == (65536, 256)
    assert [tuple(p.shape) for p in method.projector.parameters()] == [(4096, 256), (4096,), (256, 4096), (256,)]
    knobs = method.settings
    assert (knobs.temperature, knobs.teacher_temperature) == (0.1, 0.04)
    assert (knobs.momentum, knobs.last_momentum) == (0.99, 1.0)
