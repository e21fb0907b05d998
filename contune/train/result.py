"""result.json: what a run measured and under which circumstances."""

import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import contune
from contune.device import hardware_name, timm, torchvision
from contune.eval.scores import Measure
from contune.train.setup import Setup


def build_result(setup: Setup, measures: list[Measure], *, seconds: float, views_per_second: float) -> dict[str, Any]:
    """`linear_top1` is the paper's probe where it was run, else the fast one; each number has its protocol."""
    by_name = {measure.name: measure for measure in measures}
    linear = by_name.get("linear") or by_name.get("linear-fast")
    config = setup.config
    result: dict[str, Any] = {
        "method": config.method.name,
        "data": config.data.name,
        "encoder": config.model.encoder,
    }
    for key, found in (
        ("linear", linear),
        ("knn", by_name.get("knn")),
        ("classifier", by_name.get("classifier")),
    ):
        if found is not None:
            result |= {
                f"{key}_top1": found.top1,
                f"{key}_top5": found.top5,
                f"{key}_protocol": found.protocol,
            }
    return result | {
        "split": config.eval.split,
        "epochs": config.optim.epochs,
        "seed": config.run.seed,
        "seconds": round(seconds, 2),
        "views_per_second": round(views_per_second, 1),
        "measures": [measure.to_dict() for measure in measures],
        "command": "contune " + shlex.join(sys.argv[1:]),
        "config": config.to_dict(),
        "hardware": hardware_name(setup.device),
        "versions": versions(),
        "git_revision": git_revision(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def versions() -> dict[str, str]:
    return {
        "contune": contune.__version__,
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
        "timm": timm.__version__,
        "python": platform.python_version(),
    }


def git_revision() -> str | None:
    """The commit this code is checked out at, with a + where it was changed since.

    CONTUNE_REVISION says it of a copy without its history (in a container, say); an installed one has None.
    """
    said = os.environ.get("CONTUNE_REVISION")
    if said:
        return said
    where = str(Path(contune.__file__).parent)
    try:
        # Else the history is another project's, which has contune in its .venv.
        _git(where, "ls-files", "--error-unmatch", "__init__.py")
        return _git(where, "describe", "--always", "--dirty=+", "--abbrev=12")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(where: str, *command: str) -> str:
    done = subprocess.run(["git", "-C", where, *command], capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()
