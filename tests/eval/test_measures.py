"""The registry of measures, and the one that a run is judged by."""

import json
from pathlib import Path

import pytest

from contune.eval.measures import CLASSIFIER, FAST, KNN, LINEAR, MEASURES, PIXELS, TOP1, judged_by

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


def test_raw_pixels_have_their_own_entries() -> None:
    found = judged_by(result("linear", "linear-fast", "pixels-linear-fast"), prefix=PIXELS)
    assert found == {"name": "pixels-linear-fast"}


def test_stored_results_have_measures_and_protocols_of_the_registry() -> None:
    """Results are compared by protocol, so its wording must not change unless the protocol does.

    The fast probe of these results had a fixed weight penalty.
    """
    for path in sorted(RESULTS.glob("*.json"))[:20]:
        stored = json.loads(path.read_text())
        knobs, policy = stored["config"]["eval"], stored["config"]["augment"]["policy"]
        values = {name: knobs[f"linear_{name}"] for name in ("epochs", "lr", "batch")}
        values |= {"k": knobs["knn_k"], "temperature": knobs["knn_temperature"]}
        for score in stored["measures"]:
            if score["name"].endswith("linear-fast"):
                continue
            assert score["protocol"] == MEASURES[score["name"]].protocol.format(policy=policy, **values), path
