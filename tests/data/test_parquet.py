"""Parquet as the Hugging Face hub has it: images, labels and splits, and files that are damaged or of another kind."""

import json
import os
import random
import tempfile
import tracemalloc
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fuzzing import cases, damaged, for_all, seeds
from pictures import labels_of, png, random_pixels

from contune.data import load_dataset
from contune.data.parquet import parquet_splits
from contune.errors import UserError


def structs(seeds: Sequence[int], **shape: int) -> Any:
    rows = [{"bytes": png(random_pixels(seed, **shape)), "path": None} for seed in seeds]
    return pa.array(rows, type=pa.struct([("bytes", pa.binary()), ("path", pa.string())]))


def write(path: Path, names: tuple[str, ...] | None = None, row_group_size: int = 4, **columns: Any) -> Path:
    """A parquet file; `names` become the ClassLabel names of the column `label`."""
    table = pa.table(columns)
    if names is not None:
        features = {"label": {"_type": "ClassLabel", "names": list(names)}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=row_group_size)
    return path


def pixels_of(seeds: Sequence[int]) -> np.ndarray:
    return np.stack([random_pixels(seed) for seed in seeds])


def test_hub_folder_comes_back_exactly(tmp_path: Path) -> None:
    names = ("cat", "dog", "eel")
    for number, rows in enumerate((range(6), range(6, 11))):
        write(
            tmp_path / "data" / f"train-0000{number}-of-00002.parquet",
            names,
            image=structs(rows),
            label=[seed % 2 for seed in rows],
        )
    write(tmp_path / "data" / "test-00000-of-00001.parquet", names, image=structs([50, 51]), label=[2, 0])
    (tmp_path / "README.md").write_text("a data set card")
    dataset = load_dataset(str(tmp_path))
    assert dataset.test is not None
    assert dataset.class_names == names
    assert labels_of(dataset.train) == [seed % 2 for seed in range(11)]
    assert labels_of(dataset.test) == [2, 0]
    assert np.array_equal(dataset.train.resident(8, 3).numpy(), pixels_of(range(11)))
    assert np.array_equal(dataset.test.resident(8, 3).numpy(), pixels_of([50, 51]))
    assert dataset.train.names[7] == f"{tmp_path}/data/train-00001-of-00002.parquet#1"
    assert (dataset.image_size, dataset.channels) == (8, 3)


def test_validation_shards_and_split_folders(tmp_path: Path) -> None:
    write(tmp_path / "default" / "train" / "0000.parquet", image=structs(range(4)), label=[0, 1, 0, 1])
    write(tmp_path / "default" / "validation" / "0000.parquet", image=structs([7]), label=[1])
    write(tmp_path / ".cache" / "train-0.parquet", image=structs([9]), label=[1])
    write(tmp_path / "default" / "extra" / "0000.parquet", image=structs([8]), label=[1])
    splits = parquet_splits(tmp_path)
    assert splits.val is not None
    assert (len(splits.train), len(splits.val), splits.test) == (4, 1, None)
    dataset = load_dataset(str(tmp_path))
    assert dataset.test is not None
    assert (len(dataset.test), dataset.val) == (1, None)


def test_the_label_column(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", image=structs([1, 2]), label=[0, 1], coarse=["b", "a"])
    splits = parquet_splits(path, "coarse")
    assert (splits.class_names, labels_of(splits.train)) == (("a", "b"), [1, 0])
    with pytest.raises(UserError, match="coarse"):
        parquet_splits(path, "coarze")
    unlabelled = parquet_splits(write(tmp_path / "y.parquet", image=structs([1, 2]), caption=["a", "b"]))
    assert (unlabelled.train.labels, unlabelled.class_names) == (None, ())


@pytest.mark.parametrize(
    ("values", "class_names", "labels"),
    [
        (pa.array(["b", "a", "b"]), ("a", "b"), [1, 0, 1]),
        (pa.array([7, 3, 7]), ("3", "7"), [1, 0, 1]),
        (pa.array([200, 3, 200], type=pa.uint8()), ("3", "200"), [1, 0, 1]),
        (pa.array([True, False, True]), ("False", "True"), [1, 0, 1]),
        (pa.array(["b", "a", "b"]).dictionary_encode(), ("a", "b"), [1, 0, 1]),
    ],
)
def test_labels_without_names_are_numbered(
    tmp_path: Path, values: Any, class_names: tuple[str, ...], labels: list[int]
) -> None:
    splits = parquet_splits(write(tmp_path / "x.parquet", image=structs(range(3)), label=values))
    assert (splits.class_names, labels_of(splits.train)) == (class_names, labels)


def test_splits_share_one_numbering(tmp_path: Path) -> None:
    write(tmp_path / "train.parquet", image=structs([1, 2]), label=[10, 30])
    write(tmp_path / "test.parquet", image=structs([3, 4]), label=[30, 20])
    write(tmp_path / "validation.parquet", image=structs([5]), label=[-1])  # hidden
    splits = parquet_splits(tmp_path)
    assert splits.test is not None
    assert splits.class_names == ("10", "20", "30")
    assert labels_of(splits.test) == [2, 1]
    assert splits.val is not None
    assert splits.val.labels is None


def test_streamed_images_leave_nothing_in_the_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    images = parquet_splits(write(tmp_path / "a.parquet", image=structs(range(600)), label=[0] * 600)).train
    assert os.listdir(tmp_path / "temporary") == []
    part = images.subset([*range(500, 0, -1)])
    assert np.array_equal(part.resident(8, 3, workers=2).numpy(), pixels_of(range(500, 0, -1)))
    assert part.names[0] == f"{tmp_path}/a.parquet#500"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    with pytest.raises(UserError, match="TMPDIR"):
        parquet_splits(tmp_path / "a.parquet")


def test_a_long_label_among_short_ones_needs_little_memory(tmp_path: Path) -> None:
    labels = [*"ab" * 500, "x" * 50_000]
    path = write(tmp_path / "long.parquet", image=structs([0] * len(labels)), label=labels)
    tracemalloc.start()
    assert len(parquet_splits(path).class_names) == 3
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("columns", "word"),
    [
        ({"text": ["a"], "label": [0]}, "no column of encoded images"),
        ({"image": structs([1, 2]), "label": [0.5, 1.5]}, "a string in every row"),
        ({"image": structs([1, 2]), "label": [0, None]}, "in every row"),
        ({"image": structs([]), "label": pa.array([], type=pa.int64())}, "no image"),
        ({"image": [png(random_pixels(0)), b"not an image"], "label": [0, 1]}, r"bad\.parquet#1"),
        ({"image": pa.array([png(random_pixels(0)), None]), "label": [0, 1]}, r"bad\.parquet#1"),
    ],
)
def test_tables_that_are_no_data_set(tmp_path: Path, columns: dict[str, Any], word: str) -> None:
    path = write(tmp_path / "bad.parquet", **columns)
    with pytest.raises(UserError, match=word):
        parquet_splits(path).train.resident(8, 3)


def test_shards_that_do_not_belong_together(tmp_path: Path) -> None:
    write(tmp_path / "a" / "test-0.parquet", image=structs([1]), label=[0])
    with pytest.raises(UserError, match="no training shard"):
        parquet_splits(tmp_path / "a")
    write(tmp_path / "b" / "train-0.parquet", image=structs([1]), label=[0])
    write(tmp_path / "b" / "train-1.parquet", picture=structs([1]))
    with pytest.raises(UserError, match="in every row"):
        parquet_splits(tmp_path / "b")
    outside = write(tmp_path / "c.parquet", ("a", "b"), image=structs([1, 2]), label=[0, 2])
    with pytest.raises(UserError, match=r"label 2 .* outside"):
        parquet_splits(outside)


@cases
@pytest.mark.parametrize("broken", ["stop", "skip"])
def test_damaged_parquet(broken: str, num_cases: int, tmp_path: Path) -> None:
    images = [{"bytes": png(random_pixels(seed)), "path": f"{seed}.png"} for seed in range(20)]
    path = tmp_path / "train.parquet"
    pq.write_table(pa.table({"image": images, "label": [seed % 2 for seed in range(20)]}), path)
    whole = path.read_bytes()

    def check(seed: int) -> None:
        path.write_bytes(damaged(whole, random.Random(seed)))
        with suppress(UserError):
            data = load_dataset(str(path), broken=broken)
            assert data.train.resident(8, 3).shape[1:] == (3, 8, 8)

    for_all(num_cases, seeds, check)
