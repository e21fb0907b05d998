"""The Triton kernels against float64 on the whole matrix; without a GPU they run through Triton's interpreter."""

import pytest
import torch
from loss_cases import DEVICE, Case, all_pairs, answer, assert_close, float32_tolerance, well_conditioned

from contune.kernels import fused, small

GRID = all_pairs(
    num=(2, 63, 100, 257),
    dim=(8, 64, 100, 128, 300),
    classes=("one", "two", "half", "all"),
    temperature=(0.01, 0.1, 1.0),
    k1=(0.5, 5000.0, 1e6),
    k2=(0.5, 1.0, 1.5),
    variant=("out", "in"),
    reduction=("none", "sum", "mean"),
    normalize=(True, False),
    layout=("plain", "turned", "gaps"),
    candidates=(0, 77),
    asking=("both", "anchors", "candidates"),
)
SUPCON = [
    Case(63, 8, "two", 0.01, 0.0, 1.0, "out"),
    Case(100, 300, "half", 0.1, 0.0, 1.0, "in"),
    Case(130, 64, "two", 0.1, 0.0, 1.0, "in", normalize=False),
    Case(257, 100, "half", 1.0, 0.0, 1.0, "out"),
]
LARGE = [
    Case(1, 64),
    Case(1271, 8, "half", 0.1, 5000.0, 1.5, candidates=63),
    Case(63, 100, "half", 0.1, 5000.0, 1.5, candidates=1271),
    Case(100, 2048, "two", 0.1, 5000.0, 1.0, reduction="sum"),
]
SHIFTED = [
    Case(130, 64, "half", 0.01, 5000.0, 1.5, "out", normalize=False),
    Case(130, 64, "half", 0.01, 0.0, 1.0, "in", normalize=False),
    Case(70, 64, "half", 0.01, 5000.0, 1.0, "in", candidates=130),
]
ROADS = [
    Case(130, 32, "two", 0.1, 5000.0, 1.5),
    Case(130, 32, "half", 0.1, 0.0, 1.0, "in", reduction="mean"),
    Case(70, 32, "half", 0.1, 5000.0, 1.0, candidates=130),
    Case(130, 300, "half", 0.1, 5000.0, 1.0),
    *SHIFTED,
]


@pytest.fixture(params=["at once", "as given", "sorted"])
def order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of every size the way small ones go, or middling or large ones."""
    monkeypatch.setattr(fused, "SORT_FROM", 1 if request.param == "sorted" else 10**9)
    if request.param != "at once":
        monkeypatch.setattr(small, "LARGEST_BATCH", 0)


def assert_float32(case: Case) -> None:
    expected = answer(case, "dense", rounded=torch.float32)
    actual = answer(case, "fused", torch.float32, precision="high", device=DEVICE)
    assert_close(actual, expected, float32_tolerance(case.temperature))


@pytest.mark.parametrize("case", [case for case in [*GRID, *SUPCON, *LARGE] if well_conditioned(case)], ids=str)
def test_high_precision_is_float64_to_1e_5(case: Case) -> None:
    assert_float32(case)


def assert_fast(case: Case) -> None:
    expected = answer(case, "dense", rounded=torch.float32)
    assert_close(answer(case, "fused", torch.float32, precision="fast", device=DEVICE), expected, 2e-3)


@pytest.mark.usefixtures("order")
@pytest.mark.parametrize("case", [case for case in GRID + SUPCON + LARGE if case.temperature == 0.1], ids=str)
def test_fast_is_float64_to_2e_3(case: Case) -> None:
    assert_fast(case)


def test_a_batch_of_many_odd_blocks() -> None:
    assert_fast(Case(663, 8, "half", 0.1, 5000.0, 1.5, reduction="mean"))


@pytest.mark.usefixtures("order")
@pytest.mark.parametrize("processors", [1, 4, 1000])
@pytest.mark.parametrize("case", ROADS, ids=str)
def test_splits_of_the_columns_and_sorting_change_nothing(
    case: Case, processors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "num_processors", lambda _: processors)
    assert_float32(case)


@pytest.mark.usefixtures("order")
@pytest.mark.parametrize(
    "case",
    [Case(140, 260, "half", variant=variant, candidates=m) for variant in ("out", "in") for m in (0, 130)],
    ids=str,
)
def test_long_embeddings_go_in_several_pieces(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "COEFFICIENT_BYTES", 1)
    assert_float32(case)
