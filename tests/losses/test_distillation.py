"""DINO's loss against nested loops, hand-computed cases, and what its centre and temperature are for."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from contune.errors import UserError
from contune.losses.clusters import swapped_prediction_loss
from contune.losses.distillation import dino_loss, dino_targets, other_views_loss

B, K = 5, 7


def outputs(num_views: int, seed: int, num_images: int = B, size: int = K) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_views, num_images, size, generator=generator, dtype=torch.float64)


def nested_dino(student: Tensor, teacher: Tensor, centre: Tensor, tau_s: float, tau_t: float) -> Tensor:
    losses = []
    for t in range(len(teacher)):
        for v in range(len(student)):
            if v == t:
                continue
            for b in range(student.shape[1]):
                weights = [torch.exp((teacher[t, b, k] - centre[k]) / tau_t) for k in range(len(centre))]
                total = torch.stack([torch.exp(student[v, b, k] / tau_s) for k in range(len(centre))]).sum()
                terms = [
                    weights[k] / sum(weights) * (student[v, b, k] / tau_s - total.log()) for k in range(len(centre))
                ]
                losses.append(-torch.stack(terms).sum())
    return torch.stack(losses).mean()


@pytest.mark.parametrize(("num_global", "num_views"), [(2, 2), (2, 5), (3, 3), (1, 2)])
def test_against_nested_loops(num_global: int, num_views: int) -> None:
    student = outputs(num_views, seed=0).requires_grad_()
    teacher, centre = outputs(num_global, seed=1), outputs(1, seed=2)[0, 0]
    actual = dino_loss(student, teacher, centre, student_temperature=0.3, teacher_temperature=0.2)
    expected = nested_dino(student, teacher, centre, 0.3, 0.2)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(
        *(torch.autograd.grad(3 * loss, student)[0] for loss in (actual, expected)), rtol=1e-9, atol=1e-12
    )


def test_by_hand_on_two_outputs() -> None:
    """A teacher that is sure of its first output; the student gives it 3/4 in one view and 1/4 in the other."""
    teacher = torch.tensor([[[1.0, 0.0]], [[1.0, 0.0]]])
    student = torch.tensor([[[math.log(3.0), 0.0]], [[0.0, math.log(3.0)]]])
    loss = dino_loss(student, teacher, torch.zeros(2), student_temperature=1.0, teacher_temperature=0.01)
    assert loss.item() == pytest.approx(-(math.log(3 / 4) + math.log(1 / 4)) / 2)


def test_a_teacher_that_says_the_same_of_everything_is_cancelled_by_its_centre() -> None:
    """The centre's fixed point: it is then the teacher's output itself, and the target says nothing."""
    constant = 10 * outputs(1, seed=3)[0, 0]
    teacher = constant.expand(2, B, K)
    torch.testing.assert_close(
        dino_targets(teacher, constant, temperature=0.04), torch.full((2, B, K), 1 / K, dtype=torch.float64)
    )
    assert dino_targets(teacher, torch.zeros(K), temperature=0.04).amax() > 0.95


def test_a_collapsed_batch_costs_the_logarithm_of_the_number_of_outputs() -> None:
    """All images alike, for student and teacher: sharpened without a centre it would cost nothing at all."""
    constant = outputs(1, seed=3)[0, 0].expand(2, B, K)
    uniform = torch.zeros(2, B, K, dtype=torch.float64)
    assert dino_loss(uniform, constant, constant[0, 0]).item() == pytest.approx(math.log(K))
    assert dino_loss(uniform, uniform, torch.zeros(K)).item() == pytest.approx(math.log(K))
    assert dino_loss(100 * constant, 100 * constant, torch.zeros(K)).item() == pytest.approx(0.0, abs=1e-6)


def test_invariances() -> None:
    student, teacher, centre = outputs(4, seed=0), outputs(2, seed=1), outputs(1, seed=2)[0, 0]
    loss = dino_loss(student, teacher, centre)
    images, kinds = (torch.randperm(n, generator=torch.Generator().manual_seed(4)) for n in (B, K))
    for same in (
        dino_loss(student[:, images], teacher[:, images], centre),
        dino_loss(student[..., kinds], teacher[..., kinds], centre[kinds]),
        dino_loss(student[[1, 0, 3, 2]], teacher.flip(0), centre),
        dino_loss(student, teacher + 2.5, centre + 2.5),
        dino_loss(student + outputs(4, seed=5)[..., :1], teacher, centre),
        dino_loss(student, teacher, centre, teacher_temperature=torch.tensor(0.04)),
    ):
        torch.testing.assert_close(same, loss, rtol=1e-7, atol=1e-9)


def test_no_gradient_reaches_the_teacher() -> None:
    student, teacher = (outputs(2, seed).requires_grad_() for seed in (0, 1))
    dino_loss(student, teacher, torch.zeros(K)).backward()
    assert student.grad is not None
    assert teacher.grad is None


def test_low_precision_is_computed_in_float32() -> None:
    student, teacher = (outputs(2, seed).bfloat16() for seed in (0, 1))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = dino_loss(student, teacher, torch.zeros(K))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(dino_loss(student.double(), teacher.double(), torch.zeros(K)).item(), rel=1e-5)


def test_large_outputs_stay_finite() -> None:
    student = (1e4 * outputs(2, seed=0).float()).requires_grad_()
    loss = dino_loss(student, 1e4 * outputs(2, seed=1).float(), torch.zeros(K))
    loss.backward()
    assert loss.isfinite()
    assert student.grad is not None
    assert student.grad.isfinite().all()


@pytest.mark.parametrize("shapes", [((2, B, K), (1, B, K)), ((3, B, K), (2, B, K)), ((2, B, K), (2, B, K + 1))])
def test_views_that_do_not_belong_together(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    targets, logits = (torch.zeros(shape) for shape in shapes)
    with pytest.raises(UserError, match="the views of an image predict one another") as error:
        other_views_loss(targets, logits)
    assert all(str(shape) in str(error.value) for shape in shapes)


@pytest.mark.parametrize(("loss", "rest"), [(dino_loss, (torch.zeros(K),)), (swapped_prediction_loss, ())])
def test_views_that_are_not_stacked(loss: Callable[..., Tensor], rest: tuple[Tensor, ...]) -> None:
    """The way out that the sentence names gives the loss."""
    views = list(outputs(2, seed=0))
    with pytest.raises(UserError, match=r"_VBK must be a tensor, got a list; torch\.stack\(\w+_VBK\) makes one"):
        loss(views, views, *rest)
    with pytest.raises(UserError, match=r"_VBK must be \(views, images, outputs\), got shape \(10, 7\).*torch\.stack"):
        loss(torch.cat(views), torch.cat(views), *rest)
    with pytest.raises(UserError, match=r"_TBK must be \(views, images, outputs\), got shape \(5, 7\)"):
        loss(torch.stack(views), views[0], *rest)
    assert loss(torch.stack(views), torch.stack(views), *rest).isfinite()


def test_wrong_temperatures() -> None:
    student = teacher = torch.zeros(2, B, K)
    for name in ("student_temperature", "teacher_temperature"):
        with pytest.raises(UserError, match=f"{name} must be above 0 and finite, got 0"):
            dino_loss(student, teacher, torch.zeros(K), **{name: 0.0})
