"""CIFAR: the official archives as torchvision reads them, and parquet."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pictures import labels_of, png, random_pixels

from contune.data import load_dataset
from contune.device import torchvision
from contune.errors import UserError

PER_FILE = 3
FILES = {
    "cifar10": ([*(f"data_batch_{number}" for number in range(1, 6))], "test_batch", "batches.meta", ""),
    "cifar100": (["train"], "test", "meta", "fine_"),
}


def write_archive(name: str, root: Path) -> Path:
    """The files of the archive with a few random images each."""
    folder = root / str(getattr(torchvision.datasets, name.upper()).base_folder)
    folder.mkdir(parents=True)
    train, test, meta, prefix = FILES[name]
    for seed, file in enumerate([test, *train]):
        rng = np.random.default_rng(seed)
        data, labels = rng.integers(0, 256, (PER_FILE, 3072), np.uint8), rng.integers(0, 10, PER_FILE).tolist()
        (folder / file).write_bytes(pickle.dumps({"data": data, f"{prefix}labels": labels}))
    (folder / meta).write_bytes(pickle.dumps({f"{prefix}label_names": list("abcdefghij")}))
    return folder


@pytest.mark.parametrize("inside", ["", "."])
@pytest.mark.parametrize("name", FILES)
def test_archives(name: str, inside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = getattr(torchvision.datasets, name.upper())
    monkeypatch.setattr(reader, "_check_integrity", lambda self: True)  # these files have other checksums
    monkeypatch.setattr(reader, "meta", reader.meta | {"md5": None})
    folder = write_archive(name, tmp_path)
    dataset = load_dataset(name, root=str(folder if inside else tmp_path))
    train, test, _, prefix = FILES[name]
    for split, files in ((dataset.train, train), (dataset.test, [test])):
        assert split is not None
        written = [pickle.loads((folder / file).read_bytes()) for file in files]
        x_NCHW = np.concatenate([part["data"] for part in written]).reshape(-1, 3, 32, 32)
        assert np.array_equal(split.resident(32, 3).numpy(), x_NCHW)
        assert labels_of(split) == [label for part in written for label in part[f"{prefix}labels"]]
    assert dataset.class_names == tuple("abcdefghij")
    assert (dataset.image_size, dataset.channels, dataset.val) == (32, 3, None)


class Call:
    """Its pickle is a call."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("made by the pickle",)


class Pointers:
    """Its pickle is an array of Python objects, at addresses that the file chooses."""

    def __reduce__(self) -> Any:
        return np.ndarray, ((10,), "O", bytes(range(1, 81)))


@pytest.mark.parametrize("content", [Call(), {"data": Pointers(), "labels": [0] * 10}], ids=["call", "pointers"])
def test_other_files_are_refused_and_never_unpickled(
    content: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (write_archive("cifar10", tmp_path) / "data_batch_1").write_bytes(pickle.dumps(content))
    with pytest.raises(UserError, match="damaged"):
        load_dataset("cifar10", root=str(tmp_path))
    assert not (tmp_path / "made by the pickle").exists()


def write_shards(folder: Path, num_classes: int) -> None:
    folder.mkdir(parents=True)
    images = [{"bytes": png(random_pixels(n % 5, 32, 32)), "path": ""} for n in range(num_classes)]
    for split in ("train", "test"):
        table = pa.table({"img": images, "fine_label": list(range(num_classes))})
        pq.write_table(table, folder / f"{split}-00000-of-00001.parquet")


@pytest.mark.parametrize("inside", ["cifar100", "."])
def test_parquet_under_the_name(tmp_path: Path, inside: str) -> None:
    write_shards(tmp_path / "cifar10", 10)  # of another data set
    with pytest.raises(UserError, match=r"torchvision\.datasets\.CIFAR100"):
        load_dataset("cifar100", root=str(tmp_path))
    write_shards(tmp_path / "root" / inside, 100)
    dataset = load_dataset("cifar100", root=str(tmp_path / "root"))
    assert dataset.test is not None
    assert (len(dataset.train), len(dataset.test), dataset.image_size) == (100, 100, 32)
    assert dataset.mean == (0.5071, 0.4867, 0.4408)
    assert np.array_equal(dataset.train.decode(7, 32, 3), random_pixels(2, 32, 32))
