"""Results that no run ever had: a real one with other settings and numbers."""

import json
from pathlib import Path
from typing import Any

from contune.experiments.plan import Outcome, PlanRow

REAL = Path(__file__).parent.parent.parent / "results" / "losses-digits" / "tcl-k1-500-seed0.json"
PIXELS_LINEAR, PIXELS_KNN = 93.99, 94.99


def made_up_result(
    row: PlanRow, seed: int = 0, *, linear: float = 90.0, knn: float = 80.0, rank: float = 20.0, **changes: Any
) -> dict[str, Any]:
    config = row.config(changes.pop("overrides", ()), seed)
    result: dict[str, Any] = json.loads(REAL.read_text())
    numbers = {"linear-fast": linear, "knn": knn, "pixels-linear-fast": PIXELS_LINEAR, "pixels-knn": PIXELS_KNN}
    measures = [measure | {"top1": numbers[measure["name"]]} for measure in result["measures"]]
    if config.method.name == "cross-entropy":
        own = {"name": "classifier", "top1": changes.pop("classifier", linear), "protocol": "its own classifier"}
        measures.append(measures[0] | own)
    return (
        result
        | {"config": config.to_dict(), "seed": seed, "epochs": config.optim.epochs, "seconds": 30.0}
        | {"linear_top1": linear, "knn_top1": knn, "measures": measures, "last_logged": {"effective_rank": rank}}
        | {"file": f"{row.run_name(seed)}/result.json"}
        | changes
    )


def made_up_outcome(row: PlanRow, *linear: float, **changes: Any) -> Outcome:
    """A result for each accuracy, with seeds 0, 1, …"""
    return Outcome(row, tuple(made_up_result(row, seed, linear=x, **changes) for seed, x in enumerate(linear)))


def write_run(folder: Path, row: PlanRow, seed: int = 0, *, overrides: tuple[str, ...] = (), **numbers: Any) -> Path:
    """A run folder with a config and a result in it."""
    run = folder / row.run_name(seed)
    run.mkdir(parents=True)
    row.config(overrides, seed).save(run / "config.json")
    result = made_up_result(row, seed, overrides=overrides, **numbers)
    (run / "result.json").write_text(json.dumps(result))
    return run
