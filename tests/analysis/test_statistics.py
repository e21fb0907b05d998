"""Means over seeds and differences between them, against tables and scipy's own test."""

import pytest
from scipy.stats import ttest_rel  # type: ignore[import-untyped]

from contune.report.statistics import Spread, paired


def test_the_interval_is_that_of_a_table_of_students_t() -> None:
    spread = Spread.of([95.0, 96.0, 97.0])
    assert spread.mean == 96.0
    assert spread.half == pytest.approx(4.303 / 3**0.5, rel=1e-4)
    assert str(spread) == "96.00 ± 2.48"


def test_a_single_value_has_no_interval() -> None:
    assert Spread.of([95.0]) == Spread(95.0, None)
    assert str(Spread.of([95.0])) == "95.00"


def test_pairs_agree_with_scipy() -> None:
    a, b = [91.2, 90.4, 92.8, 91.9], [90.1, 90.6, 91.0, 91.3]
    difference = paired(a, b)
    reference = ttest_rel(a, b)
    interval = reference.confidence_interval()
    assert difference.p == pytest.approx(reference.pvalue)
    assert difference.mean - (difference.half or 0) == pytest.approx(interval.low)
    assert difference.mean + (difference.half or 0) == pytest.approx(interval.high)
    assert difference.num == 4


def test_what_pairs_share_does_not_count() -> None:
    """Seeds that are far apart hide a difference that each of them shows."""
    assert (paired([10.1, 50.2, 90.0], [9.0, 49.0, 89.0]).p or 1) < 0.01


def test_one_pair_is_a_difference_without_a_verdict() -> None:
    difference = paired([91.0], [90.0])
    assert (difference.mean, difference.half, difference.p, difference.num) == (1.0, None, None, 1)
    assert str(difference) == "+1.00"


@pytest.mark.parametrize(("a", "p"), [([1.0, 2.0], 1.0), ([2.0, 3.0], 0.0)])
def test_differences_without_spread(a: list[float], p: float) -> None:
    difference = paired(a, [1.0, 2.0])
    assert difference.half == 0
    assert difference.p == p


def test_both_sides_need_the_same_number() -> None:
    with pytest.raises(ValueError, match="shorter"):
        paired([1.0, 2.0], [1.0])
