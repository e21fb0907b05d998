"""Learning rates at steps whose value is known."""

from functools import partial
from math import cos, pi

import pytest

from contune.train.schedule import learning_rate

cosine = partial(learning_rate, schedule="cosine", lr=2.0, steps_per_epoch=10, epochs=4)
by_epoch = partial(learning_rate, schedule="cosine-epoch", lr=2.0, steps_per_epoch=10, epochs=4)


def test_cosine_falls_at_every_step_from_all_to_nothing() -> None:
    assert cosine(0) == 2.0
    assert cosine(10) == pytest.approx(1 + cos(pi / 4))
    assert cosine(20) == pytest.approx(1.0)
    assert cosine(39) == pytest.approx(1 + cos(pi * 39 / 40))
    assert all(cosine(step) > cosine(step + 1) > 0 for step in range(38))


def test_cosine_ends_at_a_share_of_the_rate() -> None:
    assert cosine(40, final_lr=0.1) == pytest.approx(0.2)
    assert cosine(20, final_lr=0.1) == pytest.approx(1.1)
    assert cosine(0, final_lr=0.1) == 2.0


def test_warm_up_rises_evenly_to_the_full_rate() -> None:
    rates = [cosine(step, warmup_epochs=1) for step in range(11)]
    assert rates == pytest.approx([2.0 * (step + 1) / 11 for step in range(11)])
    assert cosine(25, warmup_epochs=1) == pytest.approx(1.0), "half of what is left after the warm-up"


def test_a_warm_up_need_not_be_whole_epochs() -> None:
    assert cosine(0, warmup_epochs=0.5) == pytest.approx(2 / 6)
    assert cosine(5, warmup_epochs=0.5) == pytest.approx(2.0)


def test_cosine_epoch_steps_once_an_epoch_and_one_late() -> None:
    by_hand = [2.0, 2.0, 1 + cos(pi / 4), 1.0]
    assert [by_epoch(10 * epoch) for epoch in range(4)] == pytest.approx(by_hand)
    assert all(by_epoch(10 * epoch + 9) == by_epoch(10 * epoch) for epoch in range(4))


def test_constant_stays_after_the_warm_up() -> None:
    constant = partial(learning_rate, schedule="constant", lr=2.0, steps_per_epoch=10, epochs=4)
    assert {constant(step) for step in range(40)} == {2.0}
    assert constant(0, warmup_epochs=1) == pytest.approx(2 / 11)
    assert constant(10, warmup_epochs=1) == 2.0


def test_warm_up_as_long_as_the_run_divides_by_nothing() -> None:
    assert cosine(39, warmup_epochs=4) == pytest.approx(2 * 40 / 41)
    assert cosine(40, warmup_epochs=4) == 2.0
