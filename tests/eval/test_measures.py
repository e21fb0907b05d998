"""The registry of measures, and the one that a run is judged by."""

import pytest

from contune.eval.measures import CLASSIFIER, KNN, LINEAR, TOP1, judged_by


def result(*keys: str) -> dict[str, list[dict[str, str]]]:
    return {"measures": [{"name": key} for key in keys]}


@pytest.mark.parametrize(
    ("keys", "column", "expected"),
    [
        (("linear-fast", "knn", "linear"), TOP1, "linear"),
        (("linear-fast", "classifier", "linear"), TOP1, "classifier"),
        (("linear-fast", "classifier", "linear"), LINEAR, "linear"),
        (("linear-fast", "knn"), CLASSIFIER, None),
        ((), TOP1, None),
    ],
)
def test_the_measure_of_a_column(keys: tuple[str, ...], column: str, expected: str | None) -> None:
    found = judged_by(result(*keys), column)
    assert (None if found is None else found["name"]) == expected


def test_several_labels_are_judged_by_mean_average_precision() -> None:
    found = judged_by({"measures": [{"name": "knn", "top1": 90.0, "map": 40.0}]}, KNN)
    assert found is not None
    assert found["top1"] == 40
