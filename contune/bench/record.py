"""What a benchmark leaves behind: one JSON file with every row and everything needed to run it again."""

import json
import os
import platform
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from contune.device import hardware_name
from contune.errors import UserError
from contune.files import check_like, check_out, make_folder_of, write_whole
from contune.train.log import git_revision, versions

RESULTS = Path("benchmarks") / "results"


def default_path(name: str, device: torch.device) -> Path:
    return RESULTS / f"{name}-{device.type}-{datetime.now(UTC):%Y%m%d-%H%M}.json"


def circumstances(device: torch.device) -> dict[str, Any]:
    return {
        "command": "contune " + shlex.join(sys.argv[1:]),
        "device": device.type,
        "hardware": hardware_name(device),
        "processor": _processor(),
        "torch_threads": torch.get_num_threads(),
        "float32_matmul": torch.get_float32_matmul_precision(),
        "versions": versions() | ({"cuda": torch.version.cuda} if torch.version.cuda else {}),
        "git_revision": git_revision(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def make_ready(path: Path, bench: str) -> None:
    """Before anything is measured, so that nothing is measured in vain, and nothing of others written over."""
    if path.is_dir():
        raise UserError(f"{path} is a folder; name a file with --out, such as {path / 'bench.json'}")
    check_out(path, ending=".json")
    check_like(path, lambda there: json.loads(there.read_text()).get("bench") == bench)
    drawing = path.with_suffix(".png")
    if drawing.exists() and not path.exists():
        raise UserError(f"{drawing}, where the drawing goes, is there already; remove it, or give another --out")
    make_folder_of(path)
    if not os.access(path.parent, os.W_OK):
        raise UserError(f"{path.parent} cannot be written to; give another file with --out")


def write(result: dict[str, Any], path: Path) -> None:
    write_whole(path, json.dumps(result, indent=2, allow_nan=False) + "\n")


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
