"""The run folder, the files it is made of, and the device that a run uses."""

import errno
import json
import os
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from contune import device
from contune.config import Config
from contune.device import autocast_dtype, choose_device
from contune.errors import UserError
from contune.files import atomic_file, check_like, check_new_folder, check_out, folder_lock, write_atomic
from contune.run import RunFolder

RESULTS = Path(__file__).parent.parent / "results"


def test_published_results_are_complete() -> None:
    contents = [json.loads(path.read_text()) for path in RESULTS.rglob("*.json")]
    results = [content for content in contents if isinstance(content, dict) and "measures" in content]
    assert len(results) > 20
    assert all(result.keys() >= {"config", "versions", "git_revision", "finished"} for result in results)


def test_a_folder_is_for_one_run_and_one_process(tmp_path: Path) -> None:
    folder, config = RunFolder(tmp_path / "run"), Config()
    folder.check(config)
    with folder_lock(folder.path):
        config.save(folder.config_file)
        folder.check(Config().override(["run.log_every=3"]))
        with pytest.raises(UserError, match="another optim"):
            folder.check(Config().override(["optim.lr=0.3"]))
        with pytest.raises(UserError, match="another process"), folder_lock(folder.path):
            pass
    with folder_lock(folder.path):
        assert folder.config() == config


def test_runs_of_several_seeds(tmp_path: Path) -> None:
    for seed in (10, 2):
        (tmp_path / f"seed{seed}").mkdir(parents=True)
        Config().save(tmp_path / f"seed{seed}" / "config.json")
    assert [run.path.name for run in RunFolder(tmp_path).runs()] == ["seed2", "seed10"]
    assert [run.path for run in RunFolder(tmp_path / "seed2").runs()] == [tmp_path / "seed2"]
    with pytest.raises(UserError, match="seed2"):
        RunFolder(tmp_path).config()
    with pytest.raises(UserError, match="contune train"):
        RunFolder(tmp_path / "nowhere").config()


def test_a_file_is_written_completely_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomic(path, "old")
    with suppress(RuntimeError), atomic_file(path) as part:
        part.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="No space left"):
        write_atomic(path, "new")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "old"
    with pytest.raises(UserError, match="cannot write"):
        write_atomic(path / "folder" / "file", "new")


def test_which_paths_may_be_written(tmp_path: Path) -> None:
    inputs, table = tmp_path / "photos", tmp_path / "table.parquet"
    inputs.mkdir()
    table.write_text("x")
    (tmp_path / "link").symlink_to(inputs)
    check_out(tmp_path / "new.parquet", str(inputs), endings=[".parquet"])
    check_out(inputs / "check.json", inputs, endings=[".json"])
    for out, read in (
        (tmp_path / "new.txt", inputs),
        (inputs, inputs),
        (inputs / "deep" / "new.parquet", inputs),
        (tmp_path / "link" / "new.parquet", inputs),
    ):
        with pytest.raises(UserError, match="--out"):
            check_out(out, read, endings=[".parquet"])
    check_like(tmp_path / "new", "x")
    check_like(table, "x")
    with pytest.raises(UserError, match="exists"):
        check_like(table, "x", "y")
    check_new_folder(inputs)
    for folder in (tmp_path, table):
        with pytest.raises(UserError, match="--out"):
            check_new_folder(folder)


def test_devices_and_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.cuda.is_available():
        assert choose_device("auto") == torch.device("cpu")
        for name in ("cuda", "meta", "hpu", "nothing"):
            with pytest.raises(UserError, match="use run"):
                choose_device(name)
    assert autocast_dtype("auto", torch.device("cpu")) is None
    assert autocast_dtype("bf16", torch.device("cpu")) is torch.bfloat16
    monkeypatch.setattr(device, "available_cores", lambda: 6)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert device.core_share() == 1
    assert device.free_bytes(torch.device("cpu")) > 2**20


def test_each_process_takes_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[torch.device] = []
    monkeypatch.setenv("LOCAL_RANK", "3")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *shape, device: empty(shape))
    assert [choose_device(name).index for name in ("auto", "cuda", "cuda:1")] == [3, 3, 1]
    assert [device.index for device in chosen] == [3, 3, 1]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [choose_device(name).index for name in ("auto", "cuda")] == [1, 1], "processes share GPUs"
