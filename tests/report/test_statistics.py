"""Intervals against scipy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats  # type: ignore[import-untyped]  # has no stubs

from contune.report.statistics import Spread, wilson_interval

ACCURACIES = st.lists(st.floats(0, 100), min_size=2, max_size=12)


@given(ACCURACIES)
def test_the_interval_is_students(values: list[float]) -> None:
    found = Spread.of(values)
    assert found.half is not None
    low, high = found.mean - found.half, found.mean + found.half
    if np.std(values) > 1e-6:
        expected = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
        assert (low, high) == pytest.approx(expected, rel=1e-6, abs=1e-6)


@given(ACCURACIES, st.data())
def test_the_paired_test_is_scipys(a: list[float], data: st.DataObject) -> None:
    b = data.draw(st.lists(st.floats(0, 100), min_size=len(a), max_size=len(a)))
    found = Spread.of(np.subtract(a, b).tolist())
    if np.std(np.subtract(a, b)) > 1e-6:
        expected = stats.ttest_rel(a, b)
        interval = expected.confidence_interval(0.95)
        assert (found.mean - (found.half or 0), found.mean + (found.half or 0)) == pytest.approx(interval, rel=1e-5)


def test_few_and_equal_values() -> None:
    assert (Spread.of([5.0]), str(Spread.of([5.0]))) == (Spread(5.0, None), "5.00")
    assert [str(Spread.of(values)) for values in ([5.0, 6.0], [5.0, 5.0, 5.0])] == ["5.50", "5.00 ± 0.00"]


@pytest.mark.parametrize(("hits", "num"), [(0, 10), (10, 10), (48, 60), (999, 1000)])
def test_the_interval_of_a_share_is_wilsons(hits: int, num: int) -> None:
    expected = stats.binomtest(hits, num).proportion_ci(0.95, method="wilson")
    assert wilson_interval(100 * hits / num, num) == pytest.approx((100 * expected.low, 100 * expected.high), abs=0.01)
