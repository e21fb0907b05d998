import gc
import json
import pickle
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import PLAIN, contune
from image_files import png, random_pixels

from contune.data import arrow_column, load_dataset
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
    for number, seeds in enumerate((range(6), range(6, 11))):
        write(
            tmp_path / "data" / f"train-0000{number}-of-00002.parquet",
            names,
            image=structs(seeds),
            label=[seed % 2 for seed in seeds],
        )
    write(tmp_path / "data" / "test-00000-of-00001.parquet", names, image=structs([50, 51]), label=[2, 0])
    (tmp_path / "README.md").write_text("a data set card")
    dataset = load_dataset(str(tmp_path))
    assert dataset.test is not None
    assert dataset.train.labels is not None
    assert dataset.test.labels is not None
    assert dataset.class_names == names
    assert dataset.train.labels.tolist() == [seed % 2 for seed in range(11)]
    assert dataset.test.labels.tolist() == [2, 0]
    assert np.array_equal(dataset.train.resident(8, 3).numpy(), pixels_of(range(11)))
    assert np.array_equal(dataset.test.resident(8, 3).numpy(), pixels_of([50, 51]))
    assert dataset.train.names[7] == f"{tmp_path}/data/train-00001-of-00002.parquet#1"
    assert (dataset.image_size, dataset.channels) == (8, 3)


def test_one_file_is_split(tmp_path: Path) -> None:
    path = write(tmp_path / "test-all.parquet", img=structs(range(20)), label=[0, 1] * 10)
    dataset = load_dataset(str(path), test_fraction=0.2, val_fraction=0.25)
    assert dataset.test is not None
    assert dataset.val is not None
    assert [len(part) for part in (dataset.train, dataset.val, dataset.test)] == [12, 4, 4]
    assert np.array_equal(
        dataset.test.resident(8, 3).numpy(),
        pixels_of([int(name.split("#")[1]) for name in dataset.test.names]),
    )


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


def test_shards_without_a_split_in_their_names_are_training_data(tmp_path: Path) -> None:
    write(tmp_path / "part-1.parquet", image=structs([1]), label=[1])
    write(tmp_path / "part-0.parquet", image=structs([0]), label=[0])
    splits = parquet_splits(tmp_path)
    assert np.array_equal(splits.train.resident(8, 3).numpy(), pixels_of([0, 1]))


def test_a_plain_binary_column(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", payload=[png(random_pixels(s)) for s in (3, 4)], y=[0, 1])
    splits = parquet_splits(path)
    assert np.array_equal(splits.train.resident(8, 3).numpy(), pixels_of([3, 4]))
    assert splits.class_names == ("0", "1")


def test_usual_names_win_over_other_binary_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", thumbnail=structs([1]), hash=[b"abc"], pixel_values=structs([2]))
    assert np.array_equal(parquet_splits(path).train.resident(8, 3).numpy(), pixels_of([2]))
    path = write(tmp_path / "y.parquet", hash=[b"abc"], thumbnail=structs([1]))
    assert np.array_equal(parquet_splits(path).train.resident(8, 3).numpy(), pixels_of([1]))


def test_without_a_label_column_nothing_is_labelled(tmp_path: Path) -> None:
    splits = parquet_splits(write(tmp_path / "x.parquet", image=structs([1, 2]), caption=["a", "b"]))
    assert splits.train.labels is None
    assert splits.class_names == ()


def test_the_label_column_can_be_chosen(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", image=structs([1, 2]), label=[0, 1], coarse=["b", "a"])
    splits = parquet_splits(path, "coarse")
    assert splits.train.labels is not None
    assert (splits.class_names, splits.train.labels.tolist()) == (("a", "b"), [1, 0])
    with pytest.raises(UserError, match=r"unknown label column of .* 'coarze'; did you mean coarse"):
        parquet_splits(path, "coarze")


def test_columns_that_may_be_labels_are_named(tmp_path: Path) -> None:
    path = write(
        tmp_path / "x.parquet",
        image=structs(range(20)),
        kind=["a", "b"] * 10,
        weight=[0.5] * 20,
        thumbnail=[b""] * 20,
        breed=pa.array(["x", "y"] * 10).dictionary_encode(),
    )
    assert parquet_splits(path).maybe_labels == ("kind", "breed")
    assert parquet_splits(path, "kind").maybe_labels == ()
    way = "where one of its columns kind, breed holds the labels, add"
    images = (f"data.path={path}", "data.image_size=8", "model.encoder=resnet-mini", "optim.batch_images=4",
              "optim.epochs=0", *PLAIN, "--out", tmp_path / "run")  # fmt: skip
    outcome = contune("train", "images", *images)
    assert outcome.code == 2
    assert (
        f"method tcl learns from labels and {path} has no column of a usual name; {way} data.label_col" in outcome.err
    )
    assert f"! no label column of a usual name; {way} --label-column kind" in contune("check", path).out
    assert (
        f"no label column of a usual name, so nothing will be measured; {way}"
        in contune("doctor", "images-ssl", *images[:4]).out
    )
    unlabelled = contune("train", "images-ssl", *images)
    assert f"no labels; {way} data.label_column=kind" in unlabelled.out
    assert f"{way} data.label_column=kind and train again" in contune("eval", tmp_path / "run").out
    assert "was trained on; give others" in contune("eval", tmp_path / "run", "data.label_column=kind").err


def test_a_class_label_of_any_name_is_found(tmp_path: Path) -> None:
    table = pa.table({"image": structs([1, 2]), "breed": [1, 0]})
    features = {"image": {"_type": "Image"}, "breed": {"_type": "ClassLabel", "names": ["pug", "vizsla"]}}
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(table, tmp_path / "x.parquet")
    assert parquet_splits(tmp_path / "x.parquet").class_names == ("pug", "vizsla")


@pytest.mark.parametrize(
    ("values", "class_names", "labels"),
    [
        (pa.array(["b", "a", "b"]), ("a", "b"), [1, 0, 1]),
        (pa.array([7, 3, 7]), ("3", "7"), [1, 0, 1]),
        (pa.array([200, 3, 200], type=pa.uint8()), ("3", "200"), [1, 0, 1]),
        (pa.array([True, False, True]), ("0", "1"), [1, 0, 1]),
        (pa.array(["b", "a", "b"]).dictionary_encode(), ("a", "b"), [1, 0, 1]),
    ],
)
def test_labels_without_names_are_numbered(
    tmp_path: Path, values: Any, class_names: tuple[str, ...], labels: list[int]
) -> None:
    splits = parquet_splits(write(tmp_path / "x.parquet", image=structs(range(3)), label=values))
    assert splits.train.labels is not None
    assert (splits.class_names, splits.train.labels.tolist()) == (class_names, labels)


def test_splits_share_one_numbering(tmp_path: Path) -> None:
    write(tmp_path / "train.parquet", image=structs([1, 2]), label=[10, 30])
    write(tmp_path / "test.parquet", image=structs([3, 4]), label=[30, 20])
    splits = parquet_splits(tmp_path)
    assert splits.test is not None
    assert splits.test.labels is not None
    assert splits.class_names == ("10", "20", "30")
    assert splits.test.labels.tolist() == [2, 1]


def test_hidden_test_labels_are_no_labels(tmp_path: Path) -> None:
    names = ("a", "b")
    write(tmp_path / "train-0.parquet", names, image=structs([1, 2]), label=[0, 1])
    write(tmp_path / "test-0.parquet", names, image=structs([3, 4]), label=[-1, -1])
    splits = parquet_splits(tmp_path)
    assert splits.test is not None
    assert splits.test.labels is None
    assert splits.class_names == names


def test_broken_metadata_counts_as_none(tmp_path: Path) -> None:
    table = pa.table({"image": structs([1, 2]), "label": [0, 1]})
    pq.write_table(table.replace_schema_metadata({"huggingface": "{not json"}), tmp_path / "x.parquet")
    assert parquet_splits(tmp_path / "x.parquet").class_names == ("0", "1")


def test_images_travel_to_another_process(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", image=structs(range(9)), label=[0, 1, 2] * 3)
    part = pickle.loads(pickle.dumps(parquet_splits(path).train.subset([8, 3])))
    assert np.array_equal(part.resident(8, 3).numpy(), pixels_of([8, 3]))
    assert list(part.names) == [f"{path}#8", f"{path}#3"]


def test_a_large_column_is_shared_through_a_file_that_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_column, "LARGEST_COPY", 0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    images = parquet_splits(write(tmp_path / "a.parquet", image=structs(range(10)), label=[0] * 10)).train
    sent = [pickle.dumps(images.subset(part)) for part in ([8, 3], [1], [0, 9])]
    assert len(list((tmp_path / "temporary").iterdir())) == 1
    assert max(map(len, sent)) < 2000, "no pixels in it"
    parts = [pickle.loads(part) for part in sent]
    del images
    gc.collect()
    assert list((tmp_path / "temporary").iterdir()) == []
    for part, seeds in zip(parts, ([8, 3], [1], [0, 9]), strict=True):
        assert np.array_equal(part.resident(8, 3).numpy(), pixels_of(seeds))


def test_no_room_for_that_file_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_column, "LARGEST_COPY", 0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    images = parquet_splits(write(tmp_path / "a.parquet", image=structs(range(3)), label=[0] * 3)).train
    with pytest.raises(UserError, match=r"absent cannot hold it .*; set TMPDIR to a larger disk, or data\.workers=0"):
        pickle.dumps(images)


def bad(tmp_path: Path, **columns: Any) -> Path:
    return write(tmp_path / "bad.parquet", **columns)


def test_no_image_column(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no column of encoded images, only text, label; one must be binary"):
        parquet_splits(bad(tmp_path, text=["a"], label=[0]))


@pytest.mark.parametrize("values", [pa.array([0.5, 1.5]), pa.array([[0], [1, 2]])])
def test_labels_of_another_type(tmp_path: Path, values: Any) -> None:
    with pytest.raises(UserError, match=r"labels in column 'label' .* are of type .*data\.label_column"):
        parquet_splits(bad(tmp_path, image=structs([1, 2]), label=values))


def test_missing_labels(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"column 'label' .* has 1 rows without a label"):
        parquet_splits(bad(tmp_path, image=structs([1, 2]), label=[0, None]))


def test_labels_outside_the_names(tmp_path: Path) -> None:
    path = write(tmp_path / "bad.parquet", ("a", "b"), image=structs([1, 2]), label=[0, 2])
    with pytest.raises(UserError, match=r"label 2 in column 'label' .* outside the 2 class names .* 0 to 1"):
        parquet_splits(path)


def test_images_that_are_only_paths(tmp_path: Path) -> None:
    rows = [{"bytes": None, "path": "a.jpg"}, {"bytes": b"x", "path": None}]
    column = pa.array(rows, type=pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
    with pytest.raises(UserError, match="1 rows without image bytes in column 'image'"):
        parquet_splits(bad(tmp_path, image=column))


def test_no_rows(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no row"):
        parquet_splits(bad(tmp_path, image=structs([]), label=pa.array([], type=pa.int64())))


def test_no_training_shard(tmp_path: Path) -> None:
    write(tmp_path / "test-0.parquet", image=structs([1]), label=[0])
    with pytest.raises(UserError, match=r"holds no training shard, only such as 'test-0\.parquet'"):
        parquet_splits(tmp_path)


def test_shards_of_two_data_sets(tmp_path: Path) -> None:
    write(tmp_path / "train-0.parquet", image=structs([1]), label=[0])
    write(tmp_path / "train-1.parquet", picture=structs([1]), label=[0])
    with pytest.raises(UserError, match=r"different columns \(picture, label; image, label\)"):
        parquet_splits(tmp_path)


@pytest.mark.parametrize("keep", [0, 100])
def test_truncated_file(tmp_path: Path, keep: int) -> None:
    path = bad(tmp_path, image=structs(range(4)), label=[0, 1, 0, 1])
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(UserError, match=r"bad\.parquet' is not a whole parquet file; fetch it again"):
        parquet_splits(path)


def test_a_whole_footer_over_damaged_pages(tmp_path: Path) -> None:
    path = bad(tmp_path, image=structs(range(4)), label=[0, 1, 0, 1])
    content = bytearray(path.read_bytes())
    content[4:200] = bytes(196)
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"bad\.parquet' is not a whole parquet file; fetch it again"):
        parquet_splits(path)


def test_a_damaged_image_is_named_with_its_row(tmp_path: Path) -> None:
    path = bad(tmp_path, image=[png(random_pixels(0)), b"not an image"], label=[0, 1])
    with pytest.raises(UserError, match=r"bad\.parquet#1' is not an image"):
        parquet_splits(path).train.resident(8, 3)
