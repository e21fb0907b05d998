"""Optimizers: their groups and one step of each by hand; learning rates at steps whose value is known."""

from functools import partial
from math import cos, pi

import pytest
import torch
from timm.optim import Lars as TimmLars
from torch import nn

from contune.methods.tcl import TCL
from contune.training.optim import build_optimizer, learning_rate, load_moments, set_learning_rate


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2))


def test_lars_is_timms_over_several_steps() -> None:
    ours, theirs = network(), network()
    optimizer = build_optimizer(ours, "lars", lr=0.4, momentum=0.9, weight_decay=1e-2)
    matrices, vectors = ([p for p in theirs.parameters() if (p.dim() > 1) == many] for many in (True, False))
    reference = TimmLars(
        [{"params": matrices, "weight_decay": 1e-2}, {"params": vectors, "weight_decay": 0.0}],
        lr=0.4,
        momentum=0.9,
        trust_coeff=0.02,
        trust_clip=True,
    )
    for step in range(5):
        x = torch.randn(8, 1, 4, 4, generator=torch.Generator().manual_seed(step))
        for module, stepper in ((ours, optimizer), (theirs, reference)):
            set_learning_rate(stepper, 0.4 / (1 + step))
            stepper.zero_grad()
            module(x).square().sum().backward()
            stepper.step()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_a_constant_rate_stays() -> None:
    class TwoRates(TCL):
        constant_rate = ("projector.",)

    method = TwoRates(nn.Linear(4, 4), 4, 2, TCL.Settings())
    for name, num_groups in (("sgd", 2), ("adam", 2), ("lars", 4)):
        optimizer = build_optimizer(
            method, name, constant=method.constant_rate, lr=0.4, momentum=0.9, weight_decay=1e-4
        )
        set_learning_rate(optimizer, 0.1)
        rates = [group["lr"] for group in optimizer.param_groups]
        assert rates == [0.1] * (num_groups // 2) + [0.4] * (num_groups // 2)


@pytest.mark.parametrize(("name", "kind"), [("sgd", torch.optim.SGD), ("adamw", torch.optim.AdamW)])
def test_sgd_and_adamw_decay_everything_that_is_trained(name: str, kind: type[torch.optim.Optimizer]) -> None:
    module = network()
    next(module.parameters()).requires_grad_(False)
    optimizer = build_optimizer(module, name, lr=0.1, momentum=0.8, weight_decay=0.01)
    (group,) = optimizer.param_groups
    assert isinstance(optimizer, kind)
    assert len(group["params"]) == len(list(module.parameters())) - 1
    assert (group["lr"], group["weight_decay"]) == (0.1, 0.01)
    if name == "sgd":
        assert group["momentum"] == 0.8


@pytest.mark.parametrize("name", ["sgd", "adamw", "lars"])
def test_rates_and_flags_of_a_checkpoint_are_left_where_they_were(name: str) -> None:
    """A CPU's rate is a number; a captured step on a GPU would take it for a constant."""
    module = network()
    before, after = (build_optimizer(module, name, lr=lr, momentum=0.9, weight_decay=1e-4) for lr in (0.4, 0.2))
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    before.step()
    for group in after.param_groups:
        group["lr"] = torch.tensor(0.2)
    load_moments(after, before.state_dict())
    assert [float(group["lr"]) for group in after.param_groups] == [pytest.approx(0.2)] * len(after.param_groups)
    assert all(isinstance(group["lr"], torch.Tensor) for group in after.param_groups)
    for parameter in module.parameters():
        for key, value in before.state[parameter].items():
            torch.testing.assert_close(after.state[parameter][key], value)


cosine = partial(learning_rate, schedule="cosine", lr=2.0, steps_per_epoch=10, epochs=4)
by_epoch = partial(learning_rate, schedule="cosine-epoch", lr=2.0, steps_per_epoch=10, epochs=4)
constant = partial(learning_rate, schedule="constant", lr=2.0, steps_per_epoch=10, epochs=4)


def test_cosine_falls_at_every_step() -> None:
    assert [cosine(step) for step in (0, 10, 20, 39)] == pytest.approx(
        [2.0, 1 + cos(pi / 4), 1.0, 1 + cos(pi * 39 / 40)]
    )
    assert all(cosine(step) > cosine(step + 1) > 0 for step in range(38))
    assert [cosine(step, final_lr=0.1) for step in (0, 20, 40)] == pytest.approx([2.0, 1.1, 0.2])


def test_cosine_epoch_steps_once_an_epoch_and_one_late() -> None:
    assert [by_epoch(10 * epoch) for epoch in range(4)] == pytest.approx([2.0, 2.0, 1 + cos(pi / 4), 1.0])
    assert all(by_epoch(10 * epoch + 9) == by_epoch(10 * epoch) for epoch in range(4))


def test_warm_up_rises_evenly_to_the_full_rate() -> None:
    rates = [cosine(step, warmup_epochs=1) for step in range(11)]
    assert rates == pytest.approx([2.0 * (step + 1) / 11 for step in range(11)])
    assert cosine(25, warmup_epochs=1) == pytest.approx(1.0), "half of what is left after the warm-up"
    assert (cosine(0, warmup_epochs=0.5), cosine(5, warmup_epochs=0.5)) == pytest.approx((2 / 6, 2.0))
    assert {constant(step) for step in range(40)} == {2.0}
    assert (constant(0, warmup_epochs=1), constant(10, warmup_epochs=1)) == pytest.approx((2 / 11, 2.0))
    assert cosine(20, warmup_epochs=4) == 2.0, "a warm-up as long as the run takes half of it"
