"""What training writes down as it goes: metrics.jsonl, and TensorBoard events of the same."""

import json
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from contune import distributed
from contune.files import unwritable, write_whole

METRICS = "metrics.jsonl"
USUAL_INTERVAL = 20
LINES_OF_A_CURVE = 50


def log_interval(asked: int | None, num_steps: int) -> int:
    """Steps between lines: as asked for, or as many as leave a short run enough lines to see how its loss went."""
    return asked or min(USUAL_INTERVAL, max(1, num_steps // LINES_OF_A_CURVE))


class MetricsLog:
    """Appends a JSON object a line, in the main process. On resuming, what lies beyond the checkpoint is dropped."""

    def __init__(self, folder: Path, *, resume_step: int, tensorboard: bool) -> None:
        self.file: TextIO | None = None
        self.events: Any = None
        if not distributed.is_main():
            return
        self.path = folder / METRICS
        kept = [line for line in read_metrics(folder) if line["step"] <= resume_step]
        write_whole(self.path, "".join(json.dumps(line) + "\n" for line in kept))
        self.file = self.path.open("a", encoding="utf-8")
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter  # imported late: it takes a second

            self.events = SummaryWriter(str(folder), purge_step=resume_step + 1)

    def write(self, step: int, values: dict[str, float]) -> None:
        try:
            if self.file is not None:
                self.file.write(json.dumps({"step": step, **values}) + "\n")
                self.file.flush()
            if self.events is not None:
                for name, value in values.items():
                    self.events.add_scalar(name, value, step)
        except OSError as error:
            raise unwritable(self.path, error) from error

    def __enter__(self) -> "MetricsLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for opened in (self.file, self.events):
            if opened is not None:
                with suppress(OSError):  # of a full disk, said before; the lines that count are flushed
                    opened.close()


def read_metrics(folder: Path) -> list[dict[str, float]]:
    """The lines so far; a last line that a killed process left half written is passed over, and what follows damage."""
    path = folder / METRICS
    lines: list[dict[str, float]] = []
    if path.exists():
        for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                line = json.loads(text)
            except (ValueError, RecursionError):
                break
            if not isinstance(line, dict) or not isinstance(line.get("step"), int):
                break
            lines.append(line)
    return lines
