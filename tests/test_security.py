"""Files from strangers: nothing in them is executed, what they say is checked, and no name becomes markup."""

import io
import json
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import PLAIN, contune, train
from safetensors.torch import load_file, save_file

import contune as package
from contune.errors import UserError
from contune.hub import FILES
from contune.models import load_encoder

SOURCES = sorted(Path(package.__file__).parent.rglob("*.py"))
RUN = ("digits", "optim.epochs=0", "eval.linear=none")


def test_no_call_runs_what_a_file_says() -> None:
    rules = "S102,S301,S302,S307,S310,S506,S602,S604,S605"  # exec, pickle, marshal, eval, urlopen, yaml, shells
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", rules, str(SOURCES[0].parent)]
    done = subprocess.run(ruff, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    text = "".join(path.read_text(encoding="utf-8") for path in SOURCES)
    assert all("weights_only=True" in call for call in re.findall(r"torch\.load\([^)]*\)", text))
    assert not re.findall(r"allow_pickle=True|hf_hub_download|hub\.load", text)
    downloads = re.findall(r"snapshot_download\([^)]*\)", text)
    assert len(downloads) == 1
    assert "allow_patterns=FILES" in downloads[0]
    assert {Path(name).suffix for name in FILES} == {".json", ".safetensors"}
    assert "Unpickler" not in text


class Payload:
    """Its pickle is a call that creates a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.target,)


def payloads(target: Path) -> list[bytes]:
    as_zip, before_zip = io.BytesIO(), io.BytesIO()
    torch.save({"step": 1, "method": Payload(target)}, as_zip)
    torch.save({"step": 1, "method": Payload(target)}, before_zip, _use_new_zipfile_serialization=False)
    return [pickle.dumps(Payload(target)), as_zip.getvalue(), before_zip.getvalue()]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    train(folder, *RUN)
    return folder


def test_the_payload_works_where_pickles_are_trusted(tmp_path: Path) -> None:
    """Otherwise the next test would prove nothing."""
    torch.load(io.BytesIO(payloads(tmp_path / "harm")[1]), weights_only=False)
    assert (tmp_path / "harm").exists()


CODES = {"checkpoint.pt": 2, "encoder.safetensors": 0, "result.json": 2, "config.json": 2, "metrics.jsonl": 0}
"""Exit codes of `contune train` if this file of a run is a payload."""


@pytest.mark.parametrize(
    ("name", "number"), [("checkpoint.pt", 0), ("checkpoint.pt", 2), *((name, 1) for name in CODES)]
)
def test_no_file_of_a_run_is_executed(name: str, number: int, tmp_path: Path, finished: Path) -> None:
    target = tmp_path / "harm"
    folder = shutil.copytree(finished, tmp_path / "run")
    (folder / name).write_bytes(payloads(target)[number])
    if name == "checkpoint.pt":
        (folder / "result.json").unlink()
    again, evaluated = contune("train", *RUN, *PLAIN, "--out", folder), contune("eval", folder)
    assert not target.exists()
    assert again.code == CODES[name], again.err
    assert evaluated.code in (0, 2), evaluated.err


@pytest.mark.parametrize(
    "change",
    [
        {"encoder": "hf-hub:somebody/something"},
        {"encoder": "local-dir:/etc"},
        {"image_size": 10**9},
        {"image_size": "x"},
        {"channels": [1]},
        {"mean": [0.5] * 5},
        {"std": [0.0]},
        {"norm": {}},
        {"more": 1},
    ],
)
def test_what_an_encoder_says_of_itself_is_checked(change: dict[str, Any], tmp_path: Path, finished: Path) -> None:
    file, tensors = tmp_path / "encoder.safetensors", load_file(finished / "encoder.safetensors")
    spec = {"encoder": "resnet-mini", "stem": "auto", "norm": "batch", "image_size": 8, "channels": 1}
    own = {**spec, "mean": [0.5], "std": [0.5]}
    save_file(tensors, file, metadata={"contune": json.dumps(own)})
    load_encoder(file)
    for text in (json.dumps(own | change), "[]", "{", "3"):
        save_file(tensors, file, metadata={"contune": text})
        with pytest.raises(UserError):
            load_encoder(file)
