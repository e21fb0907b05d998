import gzip
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from image_files import png, random_pixels

from contune.data import fashion, load_dataset
from contune.errors import UserError


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_fashion(folder: Path, *, zipped: bool) -> dict[str, np.ndarray]:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    arrays = {}
    for prefix, num in (("train", 5), ("t10k", 3)):
        arrays[f"{prefix}-images-idx3-ubyte"] = rng.integers(0, 256, (num, 28, 28), dtype=np.uint8)
        arrays[f"{prefix}-labels-idx1-ubyte"] = rng.integers(0, 10, num, dtype=np.uint8)
    for name, array in arrays.items():
        path, content = folder / name, idx(array)
        if zipped:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            path.write_bytes(content)
    return arrays


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("inside", ["FashionMNIST/raw", "fashion-mnist", "."])
def test_idx_files_come_back_exactly(tmp_path: Path, inside: str, zipped: bool) -> None:
    arrays = write_fashion(tmp_path / inside, zipped=zipped)
    dataset = load_dataset("fmnist", root=str(tmp_path))
    assert dataset.test is not None
    for split, prefix in ((dataset.train, "train"), (dataset.test, "t10k")):
        assert split.labels is not None
        assert np.array_equal(split.resident(28, 1)[:, 0].numpy(), arrays[f"{prefix}-images-idx3-ubyte"])
        assert np.array_equal(split.labels.numpy(), arrays[f"{prefix}-labels-idx1-ubyte"])
    assert (dataset.image_size, dataset.channels, dataset.mean, dataset.std) == (28, 1, (0.5,), (0.5,))
    assert dataset.class_names[9] == "Ankle boot"


def test_debian_folder_is_found_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CONTUNE_DATA", raising=False)
    monkeypatch.setattr(fashion, "DEBIAN_FOLDER", tmp_path / "debian")
    write_fashion(tmp_path / "debian", zipped=True)
    assert len(load_dataset("fmnist").train) == 5


def test_parquet_under_the_name(tmp_path: Path) -> None:
    pictures = [random_pixels(number, 28, 28, 1) for number in range(10)]
    table = pa.table({"image": [{"bytes": png(x)} for x in pictures], "label": list(range(10))})
    pq.write_table(table, tmp_path / "train-0.parquet")
    dataset = load_dataset("fmnist", root=str(tmp_path), test_fraction=0.0)
    assert np.array_equal(dataset.train.resident(28, 1).numpy(), np.stack(pictures))
    assert (dataset.mean, dataset.channels) == ((0.5,), 1)


def test_missing_set_names_debian_too(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no .*FashionMNIST/raw.*dataset-fashion-mnist.*FashionMNIST\("):
        load_dataset("fmnist", root=str(tmp_path))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is not an idx file of bytes"),
        (b"\0\0\x0d\x01" + bytes(8), "is not an idx file of bytes"),
        (idx(np.zeros((5, 28, 28), dtype=np.uint8))[:-1], r"announces \[5, 28, 28\] bytes and holds 3919"),
        (idx(np.zeros((5, 28, 28), dtype=np.uint8))[:9], "is not an idx file of bytes"),
        (idx(np.zeros((4, 28, 28), dtype=np.uint8)), r"shapes \(4, 28, 28\) and \(5,\), which do not belong"),
    ],
)
def test_damaged_idx(tmp_path: Path, content: bytes, sentence: str) -> None:
    write_fashion(tmp_path, zipped=False)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(content)
    with pytest.raises(UserError, match=sentence):
        load_dataset("fmnist", root=str(tmp_path))


@pytest.mark.parametrize("keep", [5, 200])
def test_damaged_gzip(tmp_path: Path, keep: int) -> None:
    write_fashion(tmp_path, zipped=True)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(UserError, match="is not a whole gzip file"):
        load_dataset("fmnist", root=str(tmp_path))


def test_missing_labels_file(tmp_path: Path) -> None:
    write_fashion(tmp_path, zipped=True)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(UserError, match="lacks t10k-images or t10k-labels; fetch all four files"):
        load_dataset("fmnist", root=str(tmp_path))
