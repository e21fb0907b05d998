"""DINO: its loss against nested loops, its teacher, its center, its schedule, and why its head starts small."""

import math

import pytest
import torch
from test_every_method import batch, build, step, trained
from torch import Tensor, nn

from contune.errors import UserError
from contune.methods.dino import DINO, dino_loss

B, K = 5, 7


def dino(**knobs: object) -> DINO:
    method = build("dino", **knobs)
    assert isinstance(method, DINO)
    return method


def random(num_views: int, seed: int) -> Tensor:
    return torch.randn(num_views, B, K, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def outputs(networks: nn.Module, views: list[Tensor]) -> Tensor:
    """(V, B, K), view by view."""
    encoder, projector, prototypes = networks.children()
    return torch.stack([prototypes(projector(encoder(view))) for view in views])


def nested_dino(student: Tensor, teacher: Tensor, centre: Tensor, tau_s: float, tau_t: float) -> Tensor:
    losses = []
    for t in range(len(teacher)):
        for v in set(range(len(student))) - {t}:
            for b in range(B):
                weights = torch.stack([torch.exp((teacher[t, b, k] - centre[k]) / tau_t) for k in range(K)])
                total = torch.stack([torch.exp(student[v, b, k] / tau_s) for k in range(K)]).sum()
                losses.append(-(weights / weights.sum() * (student[v, b] / tau_s - total.log())).sum())
    return torch.stack(losses).mean()


@pytest.mark.parametrize(("num_global", "num_views"), [(2, 2), (2, 5), (3, 3), (1, 2)])
def test_against_nested_loops(num_global: int, num_views: int) -> None:
    student, teacher, centre = random(num_views, 0).requires_grad_(), random(num_global, 1), random(1, 2)[0, 0]
    actual = dino_loss(student, teacher, centre, student_temperature=0.3, teacher_temperature=0.2)
    expected = nested_dino(student, teacher, centre, 0.3, 0.2)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
    gradients = (torch.autograd.grad(3 * loss, student)[0] for loss in (actual, expected))
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-12)


def test_by_hand_collapsed_and_extreme() -> None:
    teacher = torch.tensor([[[1.0, 0.0]], [[1.0, 0.0]]])
    student = torch.tensor([[[math.log(3.0), 0.0]], [[0.0, math.log(3.0)]]])
    loss = dino_loss(student, teacher, torch.zeros(2), student_temperature=1.0, teacher_temperature=0.01)
    assert loss.item() == pytest.approx(-(math.log(3 / 4) + math.log(1 / 4)) / 2)
    constant, uniform = random(1, 3)[0, 0].expand(2, B, K), torch.zeros(2, B, K, dtype=torch.float64)
    assert dino_loss(uniform, constant, constant[0, 0]).item() == pytest.approx(math.log(K)), "the center cancels it"
    assert dino_loss(100 * constant, 100 * constant, torch.zeros(K)).item() == pytest.approx(0.0, abs=1e-6)
    large = (1e4 * random(2, 0).float()).requires_grad_()
    assert torch.autograd.grad(dino_loss(large, large, torch.zeros(K)), large)[0].isfinite().all()


@pytest.mark.parametrize(("num_views", "num_global"), [(2, 2), (4, 3)])
def test_it_is_its_loss_on_the_outputs_of_student_and_teacher(num_views: int, num_global: int) -> None:
    method = dino(global_views=num_global, temperature=0.2, teacher_temperature=0.05)
    with torch.no_grad():
        for parameter in method.teacher.parameters():
            parameter.mul_(1.1)
        method.centre_K.normal_(std=0.1, generator=torch.Generator().manual_seed(3))
    views, _ = batch(num_views)
    student = nn.ModuleList([method.encoder, method.projector, method.prototypes])
    both = outputs(student, views), outputs(method.teacher, views[:num_global])
    expected = dino_loss(*both, method.centre_K, student_temperature=0.2, teacher_temperature=0.05)
    torch.testing.assert_close(method(views, None).loss, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(UserError, match=f"augment.views={num_global}"):
        method(views[: num_global - 1], None)


def test_schedules() -> None:
    """Prototypes stay for an epoch, the teacher's temperature rises, the center follows the teacher's mean."""
    method, views = dino(), batch()[0]
    first = method.prototypes.weight.clone()
    for epoch in (0.0, 0.99, 1.0):
        method.set_time(epoch, 10)
        step(method, torch.optim.SGD(trained(method), lr=0.1), views)
        assert torch.equal(method.prototypes.weight, first) == (epoch < 1)
    method = dino(teacher_warmup_epochs=10, first_teacher_temperature=0.02, teacher_temperature=0.07)
    for epoch, temperature in ((0.0, 0.02), (5.0, 0.045), (10.0, 0.07), (30.0, 0.07)):
        method.set_time(epoch, 100)
        torch.testing.assert_close(method(views, None).loss, dino(teacher_temperature=temperature)(views, None).loss)
    method = dino(momentum=1.0, centre_momentum=0.5)
    mean_K = outputs(method.teacher, views).mean(dim=(0, 1)).detach()
    for num_steps in (1, 2, 3):
        method.after_step(method(views, None))
        torch.testing.assert_close(method.centre_K, (1 - 0.5**num_steps) * mean_K, rtol=1e-4, atol=1e-6)
