"""What a run writes down: metrics.jsonl, loggers such as TensorBoard, checkpoints, and result.json at its end."""

import io
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from importlib import import_module
from math import inf, isfinite
from pathlib import Path
from typing import Any
from uuid import uuid4
from zipfile import ZipFile

import torch

import contune
from contune import distributed
from contune.console import say
from contune.errors import UserError
from contune.files import atomic_file, sync, write_atomic

METRICS = "metrics.jsonl"
CHECKPOINT, PREVIOUS = "checkpoint.pt", "checkpoint.previous.pt"
CURVES = (
    "loss",
    "positive_gradient",
    "negative_gradient",
    "supcon_positive_gradient",
    "supcon_negative_gradient",
    "theorem1_share",
    "hard_theorem1_share",
)
"""What result.json keeps of metrics.jsonl."""
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
        log_every: float = inf,
        loggers: Sequence[str] = (),
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.path, self.step = folder / METRICS, resume_step
        self.events: Any = None
        self.trackers: list[Any] = []
        if not distributed.is_main():
            return
        for name in loggers:
            if name == "tensorboard":
                from torch.utils.tensorboard import SummaryWriter  # imported late: it takes a second

                self.events = SummaryWriter(str(folder), purge_step=resume_step + 1)
                self.events.add_text("config", f"```json\n{json.dumps(config, indent=2)}\n```", resume_step)
            else:
                self.trackers.append(start_tracker(name, folder, config))
        kept = [line for line in read_metrics(folder) if line["step"] <= resume_step]
        if resume_step - (kept[-1]["step"] if kept else 0) >= log_every:
            say(INCOMPLETE.format(self.path))
        write_atomic(self.path, "".join(json.dumps(line) + "\n" for line in kept))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self.step = step
        if distributed.is_main():
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"step": step, **values}) + "\n")
            self.tell_loggers(values)

    def tell_loggers(self, values: Mapping[str, float]) -> None:
        """Only the loggers: accuracies, for example, because metrics.jsonl is about training."""
        for name, value in values.items() if self.events else ():
            self.events.add_scalar(name, value, self.step)
        for tracker in self.trackers if values else ():
            tracker.log(values, step=self.step)

    def __exit__(self, *error: object) -> None:
        with suppress(OSError):  # a full disk has been reported before
            if self.events:
                self.events.close()
            for tracker in self.trackers:
                tracker.finish()


def start_tracker(name: str, folder: Path, config: Mapping[str, Any] | None) -> Any:
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
    paths = [path for path in (folder / CHECKPOINT, folder / PREVIOUS) if path.exists()]
    for path in paths:
        state = read_checkpoint(path, device)
        if state is not None:
            return state
        say(f"{path} is damaged")
    if paths:
        raise UserError(f"the checkpoints in {folder} cannot be read; remove the folder to start over")
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
    lines: Sequence[Mapping[str, float]], keys: Sequence[str] = CURVES, max_points: int = 100
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
    # Without the first command the revision could be that of another project, which has contune in its .venv.
    commands = (["ls-files", "--error-unmatch", "__init__.py"], ["describe", "--always", "--dirty=+", "--abbrev=12"])
    git = ["git", "-C", str(Path(contune.__file__).parent)]
    try:
        for command in commands:
            done = subprocess.run([*git, *command], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
