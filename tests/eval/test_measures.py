"""The registry of measures, and the one that a run is judged by."""

from pathlib import Path

import pytest

from contune.eval.measures import CLASSIFIER, FAST, KNN, LINEAR, TOP1, judged_by

RESULTS = Path(__file__).parents[2] / "results"


def result(*keys: str) -> dict[str, list[dict[str, str]]]:
    return {"measures": [{"name": key} for key in keys]}


@pytest.mark.parametrize(
    ("keys", "column", "expected"),
    [
        (("linear-fast", "knn", "linear"), TOP1, "linear"),
        (("linear-fast", "knn"), TOP1, "linear-fast"),
        (("linear-fast", "classifier", "linear"), TOP1, "classifier"),
        (("linear-fast", "classifier", "linear"), LINEAR, "linear"),
        (("linear-fast", "linear"), FAST, "linear-fast"),
        (("linear-fast", "knn"), KNN, "knn"),
        (("linear-fast", "knn"), CLASSIFIER, None),
        ((), TOP1, None),
    ],
)
def test_the_measure_of_a_column(keys: tuple[str, ...], column: str, expected: str | None) -> None:
    found = judged_by(result(*keys), column)
    assert (None if found is None else found["name"]) == expected
