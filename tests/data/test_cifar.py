"""CIFAR from its own archives: as torchvision reads them, but without running what a pickle says."""

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


def dump(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(content, protocol=2))


def batch(key: str, seed: int, num_classes: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    data = rng.integers(0, 256, (PER_FILE, 3072), dtype=np.uint8)
    return {"data": data, key: rng.integers(0, num_classes, PER_FILE).tolist(), "filenames": ["x"] * PER_FILE}


def write_cifar10(root: Path) -> Path:
    folder = root / "cifar-10-batches-py"
    for number in range(1, 6):
        dump(folder / f"data_batch_{number}", batch("labels", number, 10))
    dump(folder / "test_batch", batch("labels", 0, 10))
    dump(folder / "batches.meta", {"label_names": [f"class {n}" for n in range(10)], "num_vis": 3072})
    return folder


def write_cifar100(root: Path) -> Path:
    folder = root / "cifar-100-python"
    dump(folder / "train", batch("fine_labels", 1, 100))
    dump(folder / "test", batch("fine_labels", 0, 100))
    dump(folder / "meta", {"fine_label_names": [f"class {n}" for n in range(100)]})
    return folder


@pytest.mark.parametrize(
    ("name", "write", "reader"),
    [
        ("cifar10", write_cifar10, torchvision.datasets.CIFAR10),
        ("cifar100", write_cifar100, torchvision.datasets.CIFAR100),
    ],
)
def test_reads_what_torchvision_reads(tmp_path: Path, name: str, write: Any, reader: Any) -> None:
    class WithoutChecksums(reader):  # type: ignore[misc]  # torchvision has no types
        meta = reader.meta | {"md5": None}

        def _check_integrity(self) -> bool:
            return True

    write(tmp_path)
    dataset = load_dataset(name, root=str(tmp_path))
    assert dataset.test is not None
    for ours, is_train in ((dataset.train, True), (dataset.test, False)):
        theirs = WithoutChecksums(tmp_path, train=is_train)
        assert labels_of(ours) == theirs.targets
        assert np.array_equal(ours.resident(32, 3).numpy(), theirs.data.transpose(0, 3, 1, 2))
        assert dataset.class_names == tuple(theirs.classes)
    assert (dataset.image_size, dataset.channels, dataset.val) == (32, 3, None)


def write_shards(folder: Path, num_classes: int) -> None:
    folder.mkdir(parents=True)
    images = [{"bytes": png(random_pixels(n % 5, 32, 32)), "path": ""} for n in range(num_classes)]
    for split in ("train", "test"):
        table = pa.table({"img": images, "fine_label": list(range(num_classes))})
        pq.write_table(table, folder / f"{split}-00000-of-00001.parquet")


@pytest.mark.parametrize("inside", ["cifar100", "."])
def test_parquet_under_the_name(tmp_path: Path, inside: str) -> None:
    write_shards(tmp_path / "root" / inside, 100)
    dataset = load_dataset("cifar100", root=str(tmp_path / "root"))
    assert dataset.test is not None
    assert (len(dataset.train), len(dataset.test), dataset.image_size) == (100, 100, 32)
    assert dataset.mean == (0.5071, 0.4867, 0.4408)
    assert np.array_equal(dataset.train.images.decode(7, 32, 3), random_pixels(2, 32, 32))


def test_python_2_wrote_the_official_files(tmp_path: Path) -> None:
    """There the content of an array is a string of 8-bit characters, not a call of `codecs.encode`."""
    folder = write_cifar10(tmp_path)
    expected = load_dataset("cifar10", root=str(tmp_path)).train.resident(32, 3)
    for path in folder.glob("data_batch_*"):
        content = path.read_bytes()
        data = pickle.loads(content)["data"].tobytes()
        as_text = data.decode("latin1").encode("utf-8")
        start, end = content.rindex(b"h\x05X"), content.index(b"R", content.index(as_text) + len(as_text)) + 1
        path.write_bytes(content[:start] + b"T" + len(data).to_bytes(4, "little") + data + content[end:])
    assert np.array_equal(load_dataset("cifar10", root=str(tmp_path)).train.resident(32, 3), expected)


class Call:
    """Pickled as a call of `function`."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize(
    "content",
    [
        Call(os.mkdir, "made by the pickle"),
        Call(np.ndarray, (10,), "O", b"\xff" * 80),
        Call(np.load, "x"),
        {"data": np.zeros((1, 3072), dtype=object), "labels": [0]},
        {"data": np.zeros((1, 3072), dtype=np.float32), "labels": [0]},
        {"data": np.zeros((1, 3072), dtype=np.uint8)},
        {"data": [[0] * 3072], "labels": [0]},
        {"data": np.zeros((1, 100), dtype=np.uint8), "labels": [0]},
        {"data": np.zeros((1, 3072), dtype=np.uint8), "labels": [None]},
        ["data", "labels"],
    ],
)
def test_other_pickles_are_refused(content: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dump(write_cifar10(tmp_path) / "data_batch_1", content)
    with pytest.raises(UserError, match="CIFAR"):
        load_dataset("cifar10", root=str(tmp_path))
    assert not (tmp_path / "made by the pickle").exists()


def test_missing_and_damaged_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"torchvision\.datasets\.CIFAR100"):
        load_dataset("cifar100", root=str(tmp_path))
    path = write_cifar10(tmp_path) / "data_batch_3"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(UserError, match="data_batch_3"):
        load_dataset("cifar10", root=str(tmp_path))
    path.unlink()
    with pytest.raises(UserError, match="data_batch_3"):
        load_dataset("cifar10", root=str(tmp_path))
    write_shards(tmp_path / "cifar100", 7)
    with pytest.raises(UserError, match="has 7 classes"):
        load_dataset("cifar100", root=str(tmp_path))
