"""A run folder: what is in it, and the one place that names its files. Everything downstream reads only these."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from contune.config import Config
from contune.errors import UserError
from contune.files import check_unused, make_folder_of, write_whole
from contune.held import held
from contune.models.saved import ENCODER_FILE
from contune.seed_folders import one_of_them, seed_folders
from contune.whole_result import gaps

MOST_GAPS = 4
"""That a sentence names."""


class RunFolder:
    """The folder that `contune train` fills and every other command reads."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config_file = self.path / "config.json"
        self.encoder_file = self.path / ENCODER_FILE
        self.result_file = self.path / "result.json"
        self.report_file = self.path / "report.html"

    def check(self, config: Config) -> None:
        """Whether this config may be run here: in a new or empty folder, or in one that holds the same run."""
        if self.config_file.exists():
            different = Config.load(self.config_file).differences(config)
            if different:
                raise UserError(
                    f"{self.path} holds a run with another {', '.join(different)}; "
                    "give another folder with --out, or remove this one"
                )
        else:
            check_unused(self.path, "run")

    @contextmanager
    def opened(self, config: Config) -> Iterator[None]:
        """Makes the folder, keeps other processes from training in it, and writes the config into it."""
        make_folder_of(self.config_file)
        with held(self.path):
            config.save(self.config_file)
            yield

    def config(self) -> Config:
        if not self.config_file.exists():
            way_out = one_of_them(self.path) or "`contune train` makes one"
            raise UserError(f"{self.path} is not a run folder: it has no config.json; {way_out}")
        return Config.load(self.config_file)

    def runs(self) -> "list[RunFolder]":
        """Where several are meant: those in it if `contune train --seeds` or `experiment` made it, else itself."""
        inside = [] if self.config_file.exists() else seed_folders(self.path)
        return [RunFolder(path) for path in inside] or [self]

    def result(self) -> dict[str, Any] | None:
        """What the finished run measured; None while it has not ended."""
        if not self.result_file.exists():
            return None
        try:
            values = json.loads(self.result_file.read_text(encoding="utf-8"))
        except (ValueError, RecursionError):  # no JSON, or no text at all
            values = None
        if not isinstance(values, dict):
            raise UserError(
                f"{self.result_file} is not a result that contune wrote; remove it to measure the run again"
            )
        found = gaps(values)
        if found:
            more = f" and {len(found) - MOST_GAPS} more" if len(found) > MOST_GAPS else ""
            raise UserError(
                f"{self.result_file} is not a result as contune writes it, without a usable "
                f"{', '.join(found[:MOST_GAPS])}{more}; remove it to measure the run again"
            )
        return values

    def write_result(self, result: dict[str, Any]) -> None:
        write_whole(self.result_file, json.dumps(result, indent=2) + "\n")


def as_run_folder(folder: str | Path | RunFolder) -> RunFolder:
    return folder if isinstance(folder, RunFolder) else RunFolder(folder)
