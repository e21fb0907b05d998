"""Labels from CSV files: layouts, columns, splits, several labels per image, bad rows, and a run from one."""

import csv
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from command_line import contune, read_json
from pictures import labels_of, png, random_pixels, write_picture

from contune.data import load_dataset
from contune.data.datasets import open_splits
from contune.errors import UserError


def write_table(path: Path, *lines: str) -> Path:
    """A CSV, and the files that its rows begin with."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    for number, line in enumerate(lines[1:]):
        if name := line.partition(",")[0]:
            write_picture(path.parent / name, seed=number)
    return path


@pytest.mark.parametrize("column", ["file_name", "path", "File", "filename", "image"])
def test_a_csv_and_a_folder_with_metadata(column: str, tmp_path: Path) -> None:
    rows = ("a/1.png,cat", "2.png,dog", "a/3.png,cat")
    table = write_table(tmp_path / "metadata.csv", f"\ufeff{column},label", *rows)
    for path in (tmp_path, table):
        splits = open_splits(str(path))
        assert splits.class_names == ("cat", "dog")
        assert labels_of(splits.train) == [0, 1, 0]
        assert list(splits.train.names) == [str(tmp_path / name) for name in ("a/1.png", "2.png", "a/3.png")]
    assert splits.train.decode(0, 12, 3).shape == (3, 12, 12)


def test_splits_by_a_column_or_by_folders(tmp_path: Path) -> None:
    head = "file_name,kind,split"
    table = write_table(tmp_path / "list.csv", head, "1.png,10,train", "2.png,9,Test", "3.png,9,dev", "4.png,9,train")
    splits = open_splits(str(table), label_column="kind")
    assert splits.class_names == ("9", "10"), "numbers are sorted as such"
    assert [labels_of(part) for part in (splits.train, splits.test, splits.val)] == [[1, 0], [0], [0]]
    assert open_splits(str(table)).train.labels is None, "no column has a usual name"
    for split, kind in (("train", "cat"), ("test", "dog")):
        write_table(tmp_path / "both" / split / "metadata.csv", "file_name,label", f"x.png,{kind}")
    splits = open_splits(str(tmp_path / "both"))
    assert (labels_of(splits.train), labels_of(splits.test)) == ([0], [1])


def test_several_labels_per_image(tmp_path: Path) -> None:
    table = write_table(tmp_path / "x.csv", "file,make,year", "1.png,Audi,2012", "2.png,BMW,2012", "3.png,Audi,1999")
    splits = open_splits(str(table), label_column="make,year")
    assert splits.class_names == ("make=Audi", "make=BMW", "year=1999", "year=2012")
    assert labels_of(splits.train) == [[1, 0, 0, 1], [0, 1, 0, 1], [1, 0, 1, 0]]
    table = write_table(tmp_path / "y.csv", "file,labels", "1.png,sea; sun", "2.png,sun|sea|sea", "3.png,sun")
    splits = open_splits(str(table))
    assert splits.class_names == ("sea", "sun")
    assert labels_of(splits.train) == [[1, 1], [1, 1], [0, 1]]
    rows = {"image": [png(random_pixels(number)) for number in range(3)], "labels": [[2, 5], [5], []]}
    pq.write_table(pa.table(rows), tmp_path / "z.parquet")
    splits = open_splits(str(tmp_path / "z.parquet"))
    assert splits.class_names == ("2", "5")
    assert labels_of(splits.train) == [[1, 1], [0, 1], [0, 0]]


@pytest.mark.parametrize(
    ("lines", "column", "word"),
    [
        (("name,label", "1.png,a"), None, "no column file_name"),
        (("file_name,label",), None, "no training image"),
        (("file_name,label", ",a"), None, "missing"),
        (("file_name,label", "1.png,a", "1.png,b"), None, "2 times"),
        (("file_name,label", "1.png,a", "2.png,"), None, "1 image without a label"),
        (("file_name,label", "1.png,a", "2.png"), None, "without a label"),
        (("file_name,label", "1.png,a,b"), None, "more cells"),
        (("file_name,a,b", "1.png,x,", "2.png,x,y"), "a,b", "without a label"),
        (("file_name,label", "1.png,a"), "labl", "did you mean .*label"),
        (("file_name,label,split", "1.png,a,train", "2.png,b,holdout"), None, "holdout"),
        (("file_name,label,split", "1.png,a,test"), None, "no training image"),
        (("file_name,label", '1.png,"a'), None, "not a CSV"),
    ],
)
def test_bad_tables(lines: tuple[str, ...], column: str | None, word: str, tmp_path: Path) -> None:
    table = write_table(tmp_path / "x.csv", *lines)
    with pytest.raises(UserError, match=word):
        load_dataset(str(table), label_column=column)


def test_missing_files_and_other_encodings(tmp_path: Path) -> None:
    table = write_table(tmp_path / "x.csv", "file_name,label", "1.png,a", "2.png,b", "3.png,b")
    for name in ("2.png", "3.png"):
        (tmp_path / name).unlink()
    with pytest.raises(UserError, match=r"2 of 3 images .* missing, such as .*2\.png"):
        load_dataset(str(table))
    table.write_bytes("file_name,label\n1.png,Käse\n".encode("latin-1"))
    with pytest.raises(UserError, match="UTF-8"):
        load_dataset(str(table))


def test_a_run_with_several_label_columns(tmp_path: Path) -> None:
    """Images are dark or bright, by one column, and of even or odd number, which nothing can learn, by the other."""
    lines, photos = ["file_name,light,parity,split"], tmp_path / "photos"
    for number in range(48):
        bright = number % 3 == 0
        write_picture(photos / f"{number}.png", seed=number, tint=150 * bright)
        split = "test" if number % 4 == 3 else "train"
        lines.append(f"{number}.png,{'bright' if bright else 'dark'},{('even', 'odd')[number // 2 % 2]},{split}")
    (photos / "metadata.csv").write_text("\n".join(lines) + "\n")
    columns = ("--label-column", "light,parity")
    assert contune("check", photos, *columns).code == 0
    settings = [f"data.path={photos}", "data.label_column=light,parity", "data.image_size=8", "optim.batch_images=8"]
    settings += ["model.encoder=resnet-mini", "run.loggers=none", "eval.start=false", "eval.online=true"]
    outcome = contune("doctor", "images", *settings)
    assert outcome.code == 0, outcome.out
    run = tmp_path / "run"
    outcome = contune("train", "images", *settings, "optim.epochs=2", "--out", run)
    assert outcome.code == 0, outcome.err
    assert "mAP %" in outcome.out
    result = read_json(run / "result.json")
    assert result["measures"][0]["per_class"]["light=bright"] == 100
    assert result["linear_map"] == result["measures"][0]["map"] > 60
    assert "mAP" in (run / "report.html").read_text()

    for kind in ("csv", "json", "parquet"):
        outcome = contune("predict", run, photos, *columns, "--out", tmp_path / f"p.{kind}")
        assert outcome.code == 0, outcome.err
        assert "accuracy     mAP " in outcome.out
    names = ["light=bright", "light=dark", "parity=even", "parity=odd"]
    listed = json.loads((tmp_path / "p.json").read_text())
    with (tmp_path / "p.csv").open(newline="") as file:
        from_csv = list(csv.DictReader(file))
    for row, in_csv, in_parquet in zip(
        listed, from_csv, pq.read_table(tmp_path / "p.parquet").to_pylist(), strict=True
    ):
        likely = {name: p for name, p in row["probabilities"].items() if p >= 0.5}
        assert list(row["probabilities"]) == names
        assert dict(zip(row["class"], row["probability"], strict=True)) == pytest.approx(likely)
        assert in_csv["class"].split("; ") == row["class"] == in_parquet["class"]
        assert list(map(float, in_csv["probability"].split("; "))) == pytest.approx(row["probability"])
        assert in_csv["label"].startswith("light=")
    right = [(row["label"].startswith("light=bright")) == ("light=bright" in row["class"]) for row in listed]
    assert sum(right) == 48


def test_unseen_classes_leave_every_split(tmp_path: Path) -> None:
    rows = [f"{number}.png,{number % 4},{'test' if number % 5 == 0 else 'train'}" for number in range(40)]
    table = write_table(tmp_path / "x.csv", "file_name,label,split", *rows)
    dataset = load_dataset(str(table), unseen_classes=0.5, val_fraction=0.2)
    assert dataset.class_names == ("0", "1")
    assert dataset.unseen is not None
    assert sorted(labels_of(dataset.unseen)) == [2] * 10 + [3] * 10
    parts = [labels_of(part) for part in (dataset.train, dataset.test, dataset.val)]
    assert set().union(*parts) == {0, 1}
    assert list(map(len, parts)) == [13, 4, 3]
    digits = load_dataset("digits", unseen_classes=0.3)
    assert isinstance(digits.unseen and digits.unseen.images, torch.Tensor)
    for path, options in ((str(table), {"label_column": "label,split"}), ("digits", {"unseen_classes": 0.9})):
        with pytest.raises(UserError, match="unseen_classes"):
            load_dataset(path, **{"unseen_classes": 0.5, **options})  # type: ignore[arg-type]  # text and numbers
