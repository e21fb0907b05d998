"""The chunked backend against float64 on the whole matrix: value and gradient, over odd sizes and every knob."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from loss_cases import Case, all_pairs, answer, assert_close, float32_tolerance, well_conditioned

from contune.kernels import chunked

GRID = all_pairs(
    num=(1, 2, 63, 100, 257),
    dim=(8, 64, 100, 128, 300),
    classes=("one", "two", "half", "all"),
    temperature=(0.01, 0.07, 0.1, 1.0),
    k1=(0.5, 5000.0, 1e6),
    k2=(0.5, 1.0, 1.5, 10.0),
    variant=("out", "in"),
    pairs=("labels", "mask", "weights"),
    reduction=("none", "sum", "mean"),
    normalize=(True, False),
    layout=("plain", "turned", "gaps"),
    candidates=(0, 77),
    asking=("both", "anchors", "candidates"),
)
SUPCON = [
    Case(num, dim, classes, temperature, 0.0, 1.0, variant, pairs)
    for num, dim, classes, temperature in (
        (63, 8, "two", 0.01),
        (100, 64, "two", 0.1),
        (257, 100, "half", 1.0),
        (100, 300, "half", 0.05),
    )
    for variant in ("out", "in")
    for pairs in ("labels", "weights")
]
LARGE = [
    Case(1271, 8, "half", 0.07, 5000.0, 1.5),
    Case(1271, 128, "two", 0.1, 1e6, 1.0, "in"),
    Case(1271, 100, "one", 0.1, 5000.0, 1.0, "out", "weights", "mean"),
    Case(1271, 64, "all", 0.1, candidates=63),
    Case(257, 2048, "two", 0.1, 5000.0, 1.5, "out", "labels", "mean"),
    Case(100, 2048, "half", 1.0, 0.0, 1.0, "in", "mask", "sum"),
]
CASES = [*GRID, *SUPCON, *LARGE]


@pytest.fixture(params=["whole", "blocks of 16"])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows at once, or as few as the backend takes."""
    if request.param == "blocks of 16":
        monkeypatch.setattr(chunked, "BLOCK_ELEMENTS", 1)


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_float64_is_the_whole_matrix_to_1e_10(case: Case) -> None:
    assert_close(answer(case, "chunked"), answer(case, "dense"), 1e-10)


@pytest.mark.parametrize("case", [case for case in CASES if well_conditioned(case)], ids=str)
def test_float32_is_float64_to_1e_5(case: Case) -> None:
    expected = answer(case, "dense", rounded=torch.float32)
    assert_close(answer(case, "chunked", torch.float32), expected, float32_tolerance(case.temperature))


@given(
    st.builds(
        Case,
        num=st.integers(1, 40),
        dim=st.integers(1, 12),
        classes=st.sampled_from(["one", "two", "half", "all"]),
        temperature=st.floats(0.01, 2.0),
        k1=st.just(0.0) | st.floats(1e-3, 1e6),
        k2=st.floats(1e-3, 20.0),
        variant=st.sampled_from(["out", "in"]),
        pairs=st.sampled_from(["labels", "mask", "weights"]),
        reduction=st.sampled_from(["none", "sum", "mean"]),
        normalize=st.booleans(),
        layout=st.sampled_from(["plain", "turned", "gaps"]),
        candidates=st.integers(0, 40),
        asking=st.sampled_from(["both", "anchors", "candidates"]),
    ),
    st.sampled_from([1, 2**19]),
)
def test_any_problem_is_the_whole_matrix(case: Case, elements: int) -> None:
    """Absolutely where the gradient vanishes, as it does for two embeddings of one class without k1."""
    expected = answer(case, "dense")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunked, "BLOCK_ELEMENTS", elements)
        actual = answer(case, "chunked")
    torch.testing.assert_close(actual.loss, expected.loss, rtol=1e-10, atol=1e-10)
    size = 1e-10 / case.temperature
    for one, other in zip(actual.grads, expected.grads, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=size * max(1.0, other.norm().item()))
