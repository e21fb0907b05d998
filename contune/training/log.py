"""What a run writes down: metrics.jsonl, loggers such as TensorBoard, checkpoints, and result.json at its end."""

import io
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime
from importlib import import_module
from math import isfinite
from pathlib import Path
from typing import Any, TextIO
from uuid import uuid4
from zipfile import ZipFile

import torch

import contune
from contune import distributed
from contune.console import say
from contune.errors import UserError
from contune.eval.measures import CLASSIFIER, KNN, LINEAR, MAP, judged_by
from contune.files import atomic_file, sync, unwritable, write_atomic

METRICS = "metrics.jsonl"
CHECKPOINT, PREVIOUS = "checkpoint.pt", "checkpoint.previous.pt"
CURVES = (
    "loss", "positive_gradient", "negative_gradient", "supcon_positive_gradient", "supcon_negative_gradient",
    "theorem1_share",
)  # fmt: skip
"""What result.json keeps of metrics.jsonl."""
MAX_POINTS = 100
INCOMPLETE = "{} lacks lines of earlier steps, so the curves of the report are incomplete"


class MetricsLog(AbstractContextManager["MetricsLog"]):
    """Appends a JSON object a line, in the main process. On resuming, lines beyond the checkpoint are dropped.

    loggers: names of run.loggers, which get the same numbers, the config, and the accuracies at the end.
    """

    def __init__(
        self,
        folder: Path,
        *,
        resume_step: int,
        log_every: int,
        loggers: Sequence[str] = (),
        config: dict[str, Any] | None = None,
    ) -> None:
        self.file: TextIO | None = None
        self.loggers: list[Any] = []
        self.step = resume_step
        if not distributed.is_main():
            return
        for name in loggers:
            if name == "tensorboard":
                self.loggers.append(TensorBoard(folder, config or {}, resume_step))
            else:
                self.loggers.append(start_tracker(name, folder, config or {}))
        self.path = folder / METRICS
        kept = [line for line in read_metrics(folder) if line["step"] <= resume_step]
        if resume_step - (kept[-1]["step"] if kept else 0) >= log_every:
            say(INCOMPLETE.format(self.path))
        write_atomic(self.path, "".join(json.dumps(line) + "\n" for line in kept))
        self.file = self.path.open("a", encoding="utf-8")

    def write(self, step: int, values: dict[str, float]) -> None:
        self.step = step
        try:
            if self.file is not None:
                self.file.write(json.dumps({"step": step, **values}) + "\n")
                self.file.flush()
            for logger in self.loggers:
                logger.log(values, step=step)
        except OSError as error:
            raise unwritable(self.path, error) from error

    def write_scores(self, scores: Sequence[dict[str, Any]]) -> None:
        """The accuracies of the trained encoder, for the loggers only: metrics.jsonl is about training."""
        found = {f"{score['split']}/{score['name']}": score["top1"] for score in scores}
        for logger in self.loggers if found else ():
            logger.log(found, step=self.step)

    def __exit__(self, *error: object) -> None:
        for close in (*([self.file.close] if self.file else []), *(logger.finish for logger in self.loggers)):
            with suppress(OSError):  # a full disk has been reported before; the lines are flushed
                close()


class TensorBoard:
    """TensorBoard events, by the two methods that a run of wandb and of trackio has."""

    def __init__(self, folder: Path, config: dict[str, Any], resume_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # imported late: it takes a second

        self.events = SummaryWriter(str(folder), purge_step=resume_step + 1)
        self.events.add_text("config", f"```json\n{json.dumps(config, indent=2)}\n```", resume_step)

    def log(self, values: Mapping[str, float], *, step: int) -> None:
        for name, value in values.items():
            self.events.add_scalar(name, value, step)

    def finish(self) -> None:
        self.events.close()


def start_tracker(name: str, folder: Path, config: dict[str, Any]) -> Any:
    """A run of wandb or trackio. The folder keeps its id, so that a resumed run continues it."""
    file = folder / "tracker_id"
    if not file.exists():
        write_atomic(file, uuid4().hex[:8])
    own_id = file.read_text(encoding="utf-8")
    own = {"id": own_id, "dir": str(folder)} if name == "wandb" else {}  # trackio continues the run of the same name
    title = f"{folder.resolve().name}-{own_id}"
    try:
        return import_module(name).init(project="contune", name=title, config=config, resume="allow", **own)
    except Exception as error:  # its own, of its server or its login
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{name} does not start: {reason}. Log in to it, or leave it out of run.loggers") from error


def check_loggers(names: Sequence[str]) -> None:
    """A logger that is not installed ends a run before it begins."""
    for name in names:
        try:
            import_module(name)
        except ImportError:
            raise UserError(f"run.loggers={name} is not installed; pip install 'contune[{name}]'") from None


def read_metrics(folder: Path) -> list[dict[str, float]]:
    """The lines so far, up to the first damaged one: a killed process may leave half a line."""
    lines: list[dict[str, float]] = []
    with suppress(FileNotFoundError, ValueError, RecursionError):
        for text in (folder / METRICS).read_text(encoding="utf-8", errors="replace").splitlines():
            line = json.loads(text)
            if not isinstance(line, dict) or not isinstance(line.get("step"), int):
                break
            lines.append(line)
    return lines


def save_checkpoint(folder: Path, state: dict[str, Any]) -> None:
    """Written atomically, and the previous one is kept: whenever the process dies, one of the two files is complete."""
    current = folder / CHECKPOINT
    content = io.BytesIO()  # torch itself would hide the reason why a disk refuses to write
    torch.save(state, content)
    with atomic_file(current) as part:
        part.write_bytes(content.getbuffer())
        if current.exists():
            sync(part)  # before the rename: a moment later it is the only new one
            current.replace(folder / PREVIOUS)


def load_checkpoint(folder: Path, device: torch.device) -> dict[str, Any] | None:
    """The newest complete checkpoint, or None if the folder has none. Says so if the newest file is damaged."""
    names = [name for name in (CHECKPOINT, PREVIOUS) if (folder / name).exists()]
    for name in names:
        state = read_checkpoint(folder / name, device)
        if state is not None:
            if name != names[0]:
                say(f"{names[0]} in {folder} is damaged; resuming from the previous one, at step {state['step']}")
            return state
    if names:
        raise UserError(f"{' and '.join(names)} in {folder} cannot be read; remove the folder to start over")
    return None


def read_checkpoint(path: Path, device: torch.device) -> dict[str, Any] | None:
    """The content of a complete checkpoint; None for a damaged file or one that is no checkpoint.

    A checkpoint is a file of torch's, a zip archive, whose checksums tell a complete file from a damaged one. Nothing
    that it contains is run.
    """
    try:
        with ZipFile(path) as archive:
            if archive.testzip() is not None:
                return None
        state = torch.load(path, map_location=device, weights_only=True)
    except torch.OutOfMemoryError:
        raise
    except Exception:  # a malformed file makes zipfile and torch raise nearly anything
        return None
    return state if isinstance(state, dict) and "step" in state else None


def downsampled(
    lines: Sequence[Mapping[str, float]], keys: Sequence[str] = CURVES, max_points: int = MAX_POINTS
) -> dict[str, list[float | None]]:
    """Curves for result.json, so that figures can be redrawn without the run folder: {} if nothing was logged.

    Each point is the mean of neighboring lines of metrics.jsonl, with five digits; None without a finite value.
    """
    size = max(1, -(-len(lines) // max_points))
    curves: dict[str, list[float | None]] = {}
    names = set().union(*lines)
    for key in ("epoch", *keys) if names.intersection(keys) else ():
        if key in names:
            curves[key] = []
            for start in range(0, len(lines), size):
                values = [line[key] for line in lines[start : start + size] if key in line and isfinite(line[key])]
                curves[key].append(float(f"{sum(values) / len(values):.5g}") if values else None)
    return curves


def build_result(
    config: dict[str, dict[str, Any]],
    scores: Sequence[dict[str, Any]],
    retrieval: Sequence[dict[str, Any]] = (),
    *,
    hardware: str,
    seconds: float = 0.0,
    views_per_second: float = 0.0,
) -> dict[str, Any]:
    """The content of result.json. `linear_top1` is the paper's probe if it was run, else the fast one."""
    result: dict[str, Any] = {
        "method": config["method"]["name"],
        "data": config["data"]["name"],
        "encoder": config["model"]["encoder"],
    }
    for column in (LINEAR, KNN, CLASSIFIER):
        if score := judged_by({"measures": scores}, column):
            for key in ("top1", "top5", MAP, "protocol"):
                if key in score:
                    result[f"{column}_{key}"] = score[key]
    return result | {
        "split": config["eval"]["split"],
        "epochs": config["optim"]["epochs"],
        "seed": config["run"]["seed"],
        "seconds": round(seconds, 2),
        "views_per_second": round(views_per_second, 1),
        "measures": list(scores),
        "retrieval": list(retrieval),
        "command": "contune " + shlex.join(sys.argv[1:]),
        "config": config,
        "hardware": hardware,
        "versions": versions(),
        "git_revision": git_revision(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def versions() -> dict[str, str]:
    from contune.device import timm, torchvision  # imported late: they take a second

    return {
        "contune": contune.__version__,
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
        "timm": timm.__version__,
        "python": platform.python_version(),
    }


def git_revision() -> str | None:
    """The commit that this code is checked out at, with a + if it was changed since; None if it is installed.

    Set CONTUNE_REVISION for a copy without its history, in a container for example.
    """
    if revision := os.environ.get("CONTUNE_REVISION"):
        return revision
    git = ["git", "-C", str(Path(contune.__file__).parent)]
    # Without the first command the revision could be that of another project, which has contune in its .venv.
    commands = (["ls-files", "--error-unmatch", "__init__.py"], ["describe", "--always", "--dirty=+", "--abbrev=12"])
    try:
        for command in commands:
            done = subprocess.run([*git, *command], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
