"""A run folder: its files, and the one place that names them. Everything downstream reads only these."""

import json
import re
from pathlib import Path
from typing import Any

from contune.config import Config
from contune.errors import UserError
from contune.files import check_new_folder, write_atomic
from contune.models.saved import ENCODER_FILE

_SEED_FOLDER = re.compile(r"(.+-)?seed(\d+)")
EXTENDABLE = ["optim.epochs"]
"""What may change when a run is trained further."""


class RunFolder:
    """The folder that `contune train` fills and every other command reads."""

    def __init__(self, path: "str | Path | RunFolder") -> None:
        self.path: Path = path.path if isinstance(path, RunFolder) else Path(path)
        self.config_file = self.path / "config.json"
        self.encoder_file = self.path / ENCODER_FILE
        self.result_file = self.path / "result.json"
        self.report_file = self.path / "report.html"

    def check(self, config: Config) -> None:
        """Whether this config may run here: in a new or empty folder, or in one that holds the same run."""
        if not self.config_file.exists():
            check_new_folder(self.path)
            return
        different = Config.load(self.config_file).differences(config)
        if different:
            more = f" (`contune train --continue {self.path}` trains it further)" if different == EXTENDABLE else ""
            raise UserError(
                f"{self.path} holds a run with another {', '.join(different)}; "
                f"choose another folder with --out, or remove this one{more}"
            )

    def config(self) -> Config:
        if not self.config_file.exists():
            fix = hint_at_seeds(self.path) or "`contune train` creates one"
            raise UserError(f"{self.path} is not a run folder: it has no config.json; {fix}")
        return Config.load(self.config_file)

    def runs(self) -> "list[RunFolder]":
        """The runs inside a folder that `contune train --seeds` or `experiment` created, else the run itself."""
        inside = [] if self.config_file.exists() else seed_folders(self.path)
        return [RunFolder(path) for path in inside] or [self]

    def result(self) -> dict[str, Any] | None:
        """The content of result.json; None if the run has not finished."""
        if not self.result_file.exists():
            return None
        try:
            values: dict[str, Any] = json.loads(self.result_file.read_text(encoding="utf-8"))
        except ValueError:
            raise UserError(f"{self.result_file} is damaged; remove it and train or evaluate again") from None
        return values

    def write_result(self, result: dict[str, Any]) -> None:
        write_atomic(self.result_file, json.dumps(result, indent=2) + "\n")


def seed_folders(folder: Path) -> list[Path]:
    """Run folders inside `folder`, as `contune train --seeds` and `experiment` name them, sorted by name and seed."""
    matches = {path: _SEED_FOLDER.fullmatch(path.name) for path in folder.glob("*/")}
    found = {(match[1] or "", int(match[2])): path for path, match in matches.items() if match}
    return [found[key] for key in sorted(found)]


def hint_at_seeds(folder: Path) -> str:
    """A hint for a command that needs one run and got a folder of several; else empty."""
    inside = seed_folders(folder)
    return f"it holds several runs; choose one, such as {inside[0]}" if inside else ""
