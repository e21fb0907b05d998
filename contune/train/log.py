"""What training writes down as it goes: metrics.jsonl, and TensorBoard events of the same."""

import json
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from contune import distributed

METRICS = "metrics.jsonl"


class MetricsLog:
    """Appends a JSON object a line, in the main process. On resuming, what lies beyond the checkpoint is dropped."""

    def __init__(self, folder: Path, *, resume_step: int, tensorboard: bool) -> None:
        self.file: TextIO | None = None
        self.events: Any = None
        if not distributed.is_main():
            return
        kept = [line for line in read_metrics(folder) if line["step"] <= resume_step]
        part = folder / (METRICS + ".part")
        part.write_text("".join(json.dumps(line) + "\n" for line in kept))
        part.replace(folder / METRICS)
        self.file = (folder / METRICS).open("a")
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter  # imported late: it takes a second

            self.events = SummaryWriter(str(folder), purge_step=resume_step + 1)

    def write(self, step: int, values: dict[str, float]) -> None:
        if self.file is not None:
            self.file.write(json.dumps({"step": step, **values}) + "\n")
            self.file.flush()
        if self.events is not None:
            for name, value in values.items():
                self.events.add_scalar(name, value, step)

    def __enter__(self) -> "MetricsLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.file is not None:
            self.file.close()
        if self.events is not None:
            self.events.close()


def read_metrics(folder: Path) -> list[dict[str, float]]:
    """The lines so far; a last line that a killed process left half written is passed over."""
    path = folder / METRICS
    lines: list[dict[str, float]] = []
    if path.exists():
        for text in path.read_text().splitlines():
            try:
                lines.append(json.loads(text))
            except json.JSONDecodeError:
                break
    return lines
