"""Made-up runs for a comparison: settings, results and curves that no run ever had."""

import html
import re
from typing import Any

from contune.analysis.comparison.page import comparison_page
from contune.analysis.comparison.runs import Run
from contune.config import Config

PROTOCOLS = {"linear_protocol": "the fast probe", "knn_protocol": "kNN"}


def made_up(
    name: str, *overrides: str, seed: int = 0, linear: float | None = 90.0, knn: float = 80.0, **changes: Any
) -> Run:
    """`linear=None`: a run that has not ended."""
    config = Config().override([*overrides, f"run.seed={seed}"])
    metrics = [
        {"step": step, "epoch": step / 4, "lr": 0.1, "loss": 3 / step + seed / 10, "positive_gradient": 0.1 / step}
        for step in range(1, 30)
    ]
    result = {"linear_top1": linear, "knn_top1": knn, "split": "test", "seconds": 60.0, **PROTOCOLS, **changes}
    return Run(name, config.to_dict(), None if linear is None else result, metrics)


def seeds(name: str, *overrides: str, linear: tuple[float, ...]) -> list[Run]:
    return [made_up(f"{name}/seed{seed}", *overrides, seed=seed, linear=top1) for seed, top1 in enumerate(linear)]


def text_of(runs: list[Run], **more: object) -> str:
    """What a person reads, a space between any two cells."""
    body = comparison_page(runs, **more).partition("<body>")[2]  # type: ignore[arg-type]
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", body)))
