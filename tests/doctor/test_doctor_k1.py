"""A k1 that is much for a short run, by the share of positives."""

import pytest
from examined import advice

MUCH = "is much for"


def test_a_large_k1_in_a_short_run() -> None:
    assert (
        "method.k1=5000 is much for 280 steps where 11 % of a batch are positives of an anchor, "
        "so the run may end near the untrained loss; take method.k1=1000 or less, "
        "or let contune tune --how advise find a value"
    ) in advice("method.k1=5000")
    assert "is much for 14 steps" in advice("method.k1=5000", "optim.epochs=1")
    for enough in (("method.k1=5000", "optim.epochs=80"), ("method.k1=1000",), ("method.name=supcon",)):
        assert MUCH not in advice(*enough)
    assert MUCH not in advice("optim.epochs=1"), "the recipe's own k1 is for short runs"
    assert MUCH not in advice("method.k1=5000", "optim.epochs=0")


@pytest.mark.parametrize(
    ("overrides", "most"),
    [
        (("data.sampler=balanced", "data.images_per_class=32"), 200),
        (("data.sampler=balanced", "data.images_per_class=16"), 500),
        (("method.supervised=false",), 10_000),
        (("method.k2=3",), 3000),
    ],
)
def test_it_depends_on_the_share_of_positives(overrides: tuple[str, ...], most: int) -> None:
    assert f"take method.k1={most:g} or less" in advice(*overrides, f"method.k1={10 * most}")
    assert MUCH not in advice(*overrides, f"method.k1={most}")
