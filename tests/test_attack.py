"""Holes that an attack on an early version found. Each test ends in a crash, a hang or a wrong result there."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import PLAIN, Outcome, contune, train
from PIL import Image
from small_run import png

ON_IMAGES = ("model.encoder=resnet-mini", "data.image_size=8", "optim.epochs=0", "optim.batch_images=8", *PLAIN)


def table(path: Path, labels: Sequence[Any], names: Sequence[str] | None = None) -> Path:
    """A parquet file with an image for each label; `names` are the class names in its metadata."""
    rows = pa.table({"image": [png(number % 50) for number in range(len(labels))], "label": labels})
    if names is not None:
        features = {"label": {"_type": "ClassLabel", "names": list(names)}}
        rows = rows.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(rows, path)
    return path


HOLD = """
import sys, time
from multiprocessing import active_children
import torch
from contune.data.images import map_in_workers
from contune.data.parquet import read_shards
images, _ = read_shards([sys.argv[1]], None)
one = lambda number: (torch.from_numpy(images.decode(0, 8, 3)), bytes(10**6))
results = map_in_workers(one, range(100), workers=2)
next(results)
print(*(child.pid for child in active_children()), flush=True)
time.sleep(100)
"""


def test_a_killed_process_leaves_no_workers_and_no_files(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Although nobody reads the results, which are larger than a pipe."""
    temporary, tmp_path = (tmp_path_factory.mktemp(name) for name in "tx")  # the path of a socket must be short
    command = [sys.executable, "-c", HOLD, str(table(tmp_path / "x.parquet", [0] * 100))]
    with subprocess.Popen(
        command, env={**os.environ, "TMPDIR": str(temporary)}, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        workers = [Path("/proc", pid) for pid in process.stdout.readline().split()]
        assert len(workers) == 2
        time.sleep(0.5)  # they fill the pipe
        process.send_signal(signal.SIGKILL)
    until = time.monotonic() + 10
    while any(worker.exists() for worker in workers) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(worker.exists() for worker in workers)
    assert not list(temporary.iterdir())


def test_two_classes_of_one_name_and_many_without_images(tmp_path: Path) -> None:
    names = [*(f"n{number}" for number in range(50_000)), "crane", "dog", "crane"]
    path = table(tmp_path / "x.parquet", [50_000, 50_001, 50_002] * 12, names)
    result = train(tmp_path / "run", "images", f"data.path={path}", *ON_IMAGES)
    assert len(result["measures"][0]["per_class"]) == 3
    assert contune("predict", tmp_path / "run", path, "--out", tmp_path / "p.json").code == 0
    for row in json.loads((tmp_path / "p.json").read_text()):
        assert sum(row["probabilities"].values()) == pytest.approx(1, abs=1e-4)
        assert row["probabilities"][row["class"]] == pytest.approx(row["probability"])


def repeated_columns(path: Path, *names: str) -> None:
    columns = {"image": [png(number) for number in range(20)], "label": [number % 2 for number in range(20)]}
    pq.write_table(pa.Table.from_arrays([pa.array(columns[name]) for name in names], names=list(names)), path)


def write_strange_files(place: Path) -> None:
    table(place / "uint64.parquet", pa.array([2**63 + number % 2 for number in range(20)], pa.uint64()))
    repeated_columns(place / "labels.parquet", "image", "label", "label")
    repeated_columns(place / "images.parquet", "image", "image", "label")
    Image.fromarray(np.zeros((8, 8, 3), dtype=np.uint8), "LAB").save(place / "lab.tif")
    Image.fromarray(np.arange(64, dtype=np.uint16).reshape(8, 8) * 900).save(place / "wide.tif")
    (place / "loop.png").symlink_to("loop.png")
    (place / "photos").mkdir()
    (place / "photos" / "loop.png").symlink_to("loop.png")
    for number in range(3):
        (place / "photos" / f"{number}.png").write_bytes(png(number))


LONG = "x" * 300
STRANGE = [
    *(f"{command} {name}.parquet" for command in ("check", "embed run") for name in ("uint64", "labels", "images")),
    "train images data.path=uint64.parquet model.encoder=resnet-mini data.image_size=8 optim.epochs=0 --out new",
    *(f"{command} run {name} --broken stop" for command in ("embed", "predict") for name in ("lab.tif", "wide.tif")),
    f"train optim.epochs=0 --out {LONG}",
    f"train images data.path={LONG}",
    f"embed run {LONG}",
    f"eval {LONG}",
    f"check {LONG}",
    f"report {LONG}",
    f"embed run photos --out {LONG}.parquet",
    f"export run --to timm --out {LONG}",
    "embed run photos",
    "embed run loop.png",
    "check loop.png",
    "train images data.path=~nosuchuser",
    "eval run run.device=meta",
    "eval run eval.linear=paper eval.linear_epochs=1 eval.linear_lr=1e300",
]


def test_strange_input_ends_in_a_sentence(
    digits_run: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_strange_files(tmp_path)
    shutil.copytree(digits_run[0], tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    outcomes: dict[str, Outcome | BaseException] = {}
    for words in STRANGE:
        try:
            outcomes[words] = contune(*words.split())
        except Exception as error:
            outcomes[words] = error
    monkeypatch.setenv("RANK", "x")
    outcomes["RANK=x"] = contune("train", "digits")
    for words, outcome in outcomes.items():
        assert isinstance(outcome, Outcome), words
        assert outcome.code <= 2, words
        assert "Traceback" not in outcome.out + outcome.err
        assert outcome.err.count("\n") <= 2, words
        assert not outcome.code or "contune: " in outcome.err or words.startswith("check"), words
