"""A run folder: what is in it, and the one place that names its files. Everything downstream reads only these."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import NoneType
from typing import Any

from contune.config import Config
from contune.errors import UserError
from contune.files import check_unused, folder_lock, make_folder_of, write_whole
from contune.models.saved import ENCODER_FILE

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
        with folder_lock(self.path):
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


_NAME = re.compile(r"(.+-)?seed(\d+)")


def seed_folder(folder: Path, seed: int) -> Path:
    return folder / f"seed{seed}"


def seed_folders(folder: Path) -> list[Path]:
    """Those that are there, by name and in the order of the seeds."""
    found = {(name[1] or "", int(name[2])): path for path in folder.glob("*/") if (name := _NAME.fullmatch(path.name))}
    return [found[key] for key in sorted(found)]


def one_of_them(folder: Path) -> str:
    """The way out for a person who names the folder where one run is meant; empty where it is no such folder."""
    inside = seed_folders(folder)
    return f"its runs are folders inside it, so name one of them, such as {inside[0]}" if inside else ""


Wanted = type | tuple[type, ...] | dict[str, Any] | list[Any]
"""A type, or several; sections with what is wanted of each; a list of what is wanted of every entry."""

_NUMBER = (int, float)
_MEASURE: Wanted = {
    "name": str,
    "top1": _NUMBER,
    "top5": (int, float, NoneType),
    "per_class": dict,
    "protocol": str,
    "split": str,
    "num_images": int,
}
_CONFIG: Wanted = {"augment": dict, "method": dict, "optim": dict}
RESULT: Wanted = {
    "method": str,
    "data": str,
    "encoder": str,
    "split": str,
    "epochs": int,
    "seed": int,
    "seconds": _NUMBER,
    "views_per_second": _NUMBER,
    "measures": [_MEASURE],
    "config": _CONFIG,
    "hardware": str,
    "versions": dict,
    "git_revision": (str, NoneType),
    "finished": str,
}
MAY_HAVE: dict[str, Wanted] = {
    "linear_top1": _NUMBER,
    "knn_top1": _NUMBER,
    "classifier_top1": _NUMBER,
    "stages": dict,
    "resumed_at": int,
    "last_logged": dict,
    "curves": dict,
}
"""Not in every result, but of these types where they are."""
GIVEN_UP: Wanted = {"stopped_at": int, "measures": [_MEASURE], "config": _CONFIG}
"""Of a trial that `contune tune` did not bring to its end."""


def gaps(values: dict[str, Any]) -> list[str]:
    """What a result is without, as dotted names: not there at all, or not of its type."""
    found = _gaps(values, GIVEN_UP if "stopped_at" in values else RESULT, "")
    return found + _gaps(values, {key: wanted for key, wanted in MAY_HAVE.items() if key in values}, "")


def _gaps(value: Any, wanted: Wanted, at: str) -> list[str]:
    if isinstance(wanted, dict) and isinstance(value, dict):
        return [
            gap
            for key, inner in wanted.items()
            for gap in (_gaps(value[key], inner, _joined(at, key)) if key in value else [_joined(at, key)])
        ]
    if isinstance(wanted, list) and isinstance(value, list):
        return [gap for number, entry in enumerate(value) for gap in _gaps(entry, wanted[0], f"{at}[{number}]")]
    fits = isinstance(wanted, type | tuple) and isinstance(value, wanted)
    return [] if fits else [at]


def _joined(at: str, key: str) -> str:
    return f"{at}.{key}" if at else key
