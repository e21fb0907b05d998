"""DINO: its loss on its own two networks, its teacher, its centre, and what of them is frozen, scheduled and saved."""

import pytest
import torch
import torch.nn.functional as F
from test_every_method import BATCH, SIZE, batch, build
from torch import Tensor, nn

from contune.errors import UserError
from contune.losses.distillation import dino_loss, dino_targets
from contune.methods.dino import DINO
from contune.train.collapse import COLLAPSED_RANK, spread

SMALL = {"projector_hidden": 32, "projector_dim": 16, "num_prototypes": 24}


def small(**knobs: object) -> DINO:
    method = build("dino", **(SMALL | knobs))
    assert isinstance(method, DINO)
    return method


def outputs(networks: nn.Module, views: list[Tensor]) -> Tensor:
    """(V, B, K), view by view."""
    encoder, projector, prototypes = networks.children()
    return torch.stack([prototypes(projector(encoder(view))) for view in views])


def student(method: DINO) -> nn.ModuleList:
    return nn.ModuleList([method.encoder, method.projector, method.prototypes])


def heads(method: DINO) -> list[nn.Module]:
    """The student's and the teacher's."""
    _, teachers, _ = method.teacher.children()
    return [method.projector, teachers]


def step(method: DINO, optimizer: torch.optim.Optimizer, views: list[Tensor]) -> float:
    output = method(views, None)
    optimizer.zero_grad()
    output.loss.backward()
    optimizer.step()
    method.after_step(output)
    loss: float = output.loss.item()
    return loss


def test_its_head_begins_without_what_is_the_same_for_all_images() -> None:
    method = small()
    for layer in (each for each in method.projector if isinstance(each, nn.Linear)):
        assert layer.bias.eq(0).all()
        assert 0.015 < layer.weight.std() < 0.025
    ours, theirs = (head.state_dict() for head in heads(method))
    assert all(torch.equal(theirs[name], tensor) for name, tensor in ours.items())


@pytest.mark.parametrize(("num_views", "num_global"), [(2, 2), (4, 2), (4, 3)])
def test_it_is_its_loss_on_what_student_and_teacher_say(num_views: int, num_global: int) -> None:
    method = small(global_views=num_global, temperature=0.2, teacher_temperature=0.05)
    with torch.no_grad():
        for parameter in method.teacher.parameters():
            parameter.mul_(1.1)
        method.centre_K.normal_(std=0.1, generator=torch.Generator().manual_seed(3))
    views, labels_B = batch(num_views)
    expected = dino_loss(
        outputs(student(method), views),
        outputs(method.teacher, views[:num_global]),
        method.centre_K,
        student_temperature=0.2,
        teacher_temperature=0.05,
    )
    torch.testing.assert_close(method(views, labels_B).loss, expected, rtol=1e-5, atol=1e-6)


def test_small_crops_are_the_students_alone() -> None:
    views, _ = batch(2)
    crops = [torch.randn(BATCH, 1, SIZE // 2, SIZE // 2, generator=torch.Generator().manual_seed(n)) for n in range(3)]
    method = small()
    seen: list[tuple[int, ...]] = []
    encoder = next(iter(method.teacher.children()))
    encoder.register_forward_hook(lambda module, arguments, result: seen.append(tuple(arguments[0].shape)))
    output = method([*views, *crops], None)
    output.loss.backward()
    assert output.features_ND.shape == (5 * BATCH, 256)
    assert output.loss.isfinite()
    assert seen == [(2 * BATCH, 1, SIZE, SIZE)]


def test_the_reference_values_are_the_defaults() -> None:
    method = DINO(nn.Identity(), 256, 3, DINO.Settings())
    layers = [layer for layer in method.projector if isinstance(layer, nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in layers] == [(256, 2048), (2048, 2048), (2048, 256)]
    assert [type(layer) for layer in list(method.projector)[1::2]] == [nn.GELU, nn.GELU]
    assert method.prototypes.weight.shape == (4096, 256)
    knobs = method.settings
    assert (knobs.temperature, knobs.teacher_temperature, knobs.centre_momentum) == (0.1, 0.07, 0.9)
    assert (knobs.momentum, knobs.last_momentum, knobs.frozen_epochs) == (0.9995, 1.0, 1.0)


def test_the_teacher_follows_on_a_cosine_and_takes_no_gradient() -> None:
    method = small(momentum=0.9, last_momentum=1.0, frozen_epochs=0)
    views, _ = batch()
    optimizer = torch.optim.SGD([p for p in method.parameters() if p.requires_grad], lr=0.1)
    for share, kept in ((0.0, 0.9), (0.5, 0.95), (1.0, 1.0)):
        method.set_time(10 * share, 10)
        before = [parameter.clone() for parameter in method.teacher.parameters()]
        step(method, optimizer, views)
        for old, own, theirs in zip(before, method.teacher.parameters(), student(method).parameters(), strict=True):
            torch.testing.assert_close(own, kept * old + (1 - kept) * theirs, rtol=1e-5, atol=1e-6)
    assert all(parameter.grad is None for parameter in method.teacher.parameters())


def test_prototypes_stay_for_an_epoch_and_then_move() -> None:
    method = small()
    optimizer = torch.optim.SGD([p for p in method.parameters() if p.requires_grad], lr=0.1, momentum=0.9)
    first = method.prototypes.weight.clone()
    for epoch in (0.0, 0.5, 0.99):
        method.set_time(epoch, 10)
        step(method, optimizer, batch()[0])
        assert torch.equal(method.prototypes.weight, first)
    method.set_time(1.0, 10)
    step(method, optimizer, batch()[0])
    assert not torch.equal(method.prototypes.weight, first)


def test_the_centre_goes_to_the_teachers_mean_and_evens_its_targets_out() -> None:
    """A teacher that stands still is answered by a centre that ends where its outputs are."""
    method = small(momentum=1.0, centre_momentum=0.5)
    views, _ = batch()
    mean_K = outputs(method.teacher, views).mean(dim=(0, 1)).detach()
    for num_steps in (1, 2, 3):
        method.after_step(method(views, None))
        torch.testing.assert_close(method.centre_K, (1 - 0.5**num_steps) * mean_K, rtol=1e-4, atol=1e-6)


def test_the_teachers_temperature_rises_to_its_own_where_that_is_asked_for() -> None:
    method = small(teacher_warmup_epochs=10, first_teacher_temperature=0.02, teacher_temperature=0.07)
    views, _ = batch()
    for epoch, temperature in ((0.0, 0.02), (5.0, 0.045), (10.0, 0.07), (30.0, 0.07)):
        method.set_time(epoch, 100)
        plain = small(teacher_temperature=temperature)
        torch.testing.assert_close(method(views, None).loss, plain(views, None).loss)


def test_too_few_views_are_a_sentence() -> None:
    with pytest.raises(UserError, match=r"the first 2 being global ones, and got 1; set augment\.views=2 or more"):
        small()(batch(1)[0], None)
    with pytest.raises(UserError, match=r"the first 3 being global ones, and got 2; set augment\.views=3 or more"):
        small(global_views=3)(batch(2)[0], None)


def test_under_autocast_scores_and_loss_are_float32() -> None:
    method = small()
    views, _ = batch()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = method(views, None)
    assert (output.loss.dtype, output.state["teacher_K"].dtype) == (torch.float32, torch.float32)
    torch.testing.assert_close(output.loss, method(views, None).loss, rtol=0.02, atol=0.0)


def test_a_saved_method_goes_on_exactly() -> None:
    views, _ = batch()
    losses = []
    for interrupted in (False, True):
        method = small(momentum=0.9, frozen_epochs=3)
        for number in range(6):
            if interrupted and number == 3:
                state = method.state_dict()
                method = small(momentum=0.9, frozen_epochs=3)
                with torch.no_grad():
                    method.prototypes.weight.zero_()
                method.load_state_dict(state)
            method.set_time(number, 6)
            optimizer = torch.optim.SGD([p for p in method.parameters() if p.requires_grad], lr=0.1)
            losses.append(step(method, optimizer, views))
    assert losses[:6] == losses[6:]


def told_apart(*, common: float = 0.0) -> tuple[float, Tensor]:
    """After training on noisy patterns: by how many nats the targets tell images apart, and the features.

    `common`: the size of biases that the head begins with, which are the same for all images.
    """
    sizes = {"projector_hidden": 256, "projector_dim": 64, "num_prototypes": 64}
    method = small(momentum=0.97, teacher_temperature=0.04, **sizes)
    with torch.no_grad():
        for head in heads(method):
            *_, last = head.children()
            assert isinstance(last, nn.Linear)
            last.bias.normal_(std=common, generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.AdamW([p for p in method.parameters() if p.requires_grad], lr=1e-3)
    views, _ = batch()
    for number in range(60):
        method.set_time(number / 6, 10)
        step(method, optimizer, views)
    with torch.no_grad():
        targets_TBK = dino_targets(outputs(method.teacher, views), method.centre_K, temperature=0.04)
    each, mean = (torch.special.entr(p).sum(dim=-1).mean() for p in (targets_TBK, targets_TBK.mean(dim=(0, 1))))
    return (mean - each).item(), method(views, None).features_ND


def test_training_on_noisy_patterns_tells_them_apart() -> None:
    nats, features_ND = told_apart()
    assert nats > 0.5
    assert spread(features_ND, 2)["effective_rank"] > COLLAPSED_RANK
    labels_N = batch()[1].repeat(2)
    similarity_NN = F.normalize(features_ND - features_ND.mean(dim=0), dim=1) @ features_ND.T
    assert (labels_N[similarity_NN.fill_diagonal_(-torch.inf).argmax(dim=1)] == labels_N).float().mean() > 0.9


def test_biases_alike_for_all_images_would_make_the_outputs_uniform() -> None:
    """Why the head begins without them."""
    assert told_apart(common=0.1)[0] < 0.01
