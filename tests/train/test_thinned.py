"""The curves that result.json keeps."""

from math import inf, nan

import pytest

from contune.train.thinned import thinned


def test_few_lines_are_kept_as_they_are() -> None:
    lines = [{"step": 1, "epoch": 0.5, "loss": 4.0, "lr": 0.1}, {"step": 2, "epoch": 1.0, "loss": 3.0, "lr": 0.1}]
    assert thinned(lines) == {"epoch": [0.5, 1.0], "loss": [4.0, 3.0]}


@pytest.mark.parametrize(("num", "points"), [(100, 100), (101, 51), (1950, 98)])
def test_many_lines_become_means_of_neighbours(num: int, points: int) -> None:
    found = thinned([{"epoch": float(n), "loss": 2.0 * n} for n in range(num)])
    assert len(found["epoch"]) == len(found["loss"]) == points
    assert all(y == pytest.approx(2 * (x or 0), rel=1e-4) for x, y in zip(found["epoch"], found["loss"], strict=True))


def test_what_is_no_number_is_a_gap() -> None:
    lines = [{"epoch": 1.0, "loss": nan}, {"epoch": 2.0, "loss": inf}, {"epoch": 3.0, "loss": 1.0}, {"epoch": 4.0}]
    assert thinned(lines, most=2) == {"epoch": [1.5, 3.5], "loss": [None, 1.0]}


def test_nothing_logged_is_nothing() -> None:
    assert thinned([]) == {}
    assert thinned([{"epoch": 1.0, "lr": 0.1}]) == {}


def test_five_digits_are_enough() -> None:
    assert thinned([{"epoch": 1 / 3, "theorem1_share": 0.123456789}]) == {
        "epoch": [0.33333],
        "theorem1_share": [0.12346],
    }
