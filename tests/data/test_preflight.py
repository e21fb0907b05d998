"""`contune check`: what it counts, what it calls wrong, and what only worth a look."""

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import contune, read_json
from image_files import as_image, png, random_pixels, write_png
from PIL import Image

from contune.data import pool
from contune.data.preflight import Preflight, preflight
from contune.data.preflight_findings import as_json, findings, table_row


def marks(found: Preflight) -> str:
    return "\n".join(f"{finding.mark} {finding.text}" for finding in findings(found))


def write_splits(folder: Path) -> None:
    """Two classes, four training and two test images each, all different."""
    for part, num in (("train", 4), ("test", 2)):
        for label in range(2):
            for number in range(num):
                seed = 100 * num + 10 * label + number
                write_png(folder / part / f"class{label}" / f"{number}.png", random_pixels(seed, 12, 16))


def test_a_healthy_set(tmp_path: Path) -> None:
    write_splits(tmp_path)
    outcome = contune("check", tmp_path)
    assert outcome.code == 0
    assert outcome.out.splitlines()[1].split() == ["train", "8", "0", "2", "4", "16", "×", "12", "PNG", "8"]
    assert "✓ all 12 images decode" in outcome.out
    assert "✓ no picture is there twice" in outcome.out
    assert "!" not in outcome.out


def test_copies_across_splits_are_wrong_also_when_saved_anew(tmp_path: Path) -> None:
    write_splits(tmp_path)
    train = tmp_path / "train" / "class0"
    (tmp_path / "test" / "class0" / "same.png").write_bytes((train / "1.png").read_bytes())
    Image.open(train / "2.png").save(tmp_path / "test" / "class0" / "again.bmp")
    found = preflight(str(tmp_path))
    assert sorted((len(copies.names), copies.same_bytes) for copies in found.copies) == [(2, False), (2, True)]
    assert "✗ 2 held-out images are in another split too, such as " in marks(found)
    assert "classes" not in marks(found)


def test_a_copy_without_a_label_is_in_no_class(tmp_path: Path) -> None:
    write_splits(tmp_path)
    copied = (tmp_path / "train" / "class0" / "1.png").read_bytes()
    shutil.rmtree(tmp_path / "test")
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "same.png").write_bytes(copied)
    text = marks(preflight(str(tmp_path)))
    assert "held-out image is in another split too" in text
    assert "several classes" not in text


def test_copies_inside_a_split_and_under_two_labels(tmp_path: Path) -> None:
    write_splits(tmp_path)
    train = tmp_path / "train"
    for name in ("class0/copy.png", "class1/copy.png"):
        (train / name).write_bytes((train / "class0" / "1.png").read_bytes())
    text = marks(preflight(str(tmp_path)))
    assert "✗ 1 picture is in several classes, such as " in text
    assert "! 2 images are like another in the same split to the pixel" in text
    assert "held-out" not in text


def test_odd_ones_are_counted(tmp_path: Path) -> None:
    write_splits(tmp_path)
    train = tmp_path / "train" / "class0"
    Image.new("RGB", (16, 16), "white").save(train / "blank.png")
    as_image(random_pixels(0, 4, 400)).save(train / "strip.png")
    write_png(train / "gray.png", random_pixels(1, 16, 16, channels=1))
    (train / "notes.txt").write_text("which is which")
    (train / "phone.heic").write_bytes(b"\0")
    os.symlink(tmp_path / "train", train / "back")
    found = preflight(str(tmp_path))
    text = marks(found)
    assert "! 1 image has a single colour throughout, such as " in text
    assert "! 1 image is less than 8 pixels high or wide" in text
    assert "! 1 image is over 10 times as long as wide" in text
    assert "! 1 of 15 images is gray and the others coloured" in text
    assert "! 2 files are no images by their names and are left alone (1 .txt, 1 .heic)" in text
    assert "! 1 link leads back to a folder above, such as " in text
    assert "✗" not in text
    for each in ("blank", "strip", "gray"):
        (train / f"{each}2.png").write_bytes((train / f"{each}.png").read_bytes())
    (train / "phone.heic").unlink()
    os.symlink(tmp_path / "train", train / "back2")
    several = marks(preflight(str(tmp_path)))
    assert "! 2 images have a single colour throughout, such as " in several
    assert "! 2 images are less than 8 pixels high or wide" in several
    assert "! 2 images are over 10 times as long as wide" in several
    assert "! 2 of 18 images are gray and the others coloured" in several
    assert "! 1 file is no image by its name and is left alone (1 .txt)" in several
    assert "! 2 links lead back to a folder above, such as " in several
    assert table_row(found.splits[0])[5] == "16–400 × 4–16"


def test_classes_out_of_balance_and_without_a_whole_image(tmp_path: Path) -> None:
    for number in range(12):
        write_png(tmp_path / "many" / f"{number}.png", random_pixels(number))
    write_png(tmp_path / "one" / "1.png", random_pixels(50))
    assert "! classes have from 1 to 12 train images" in marks(preflight(str(tmp_path)))
    (tmp_path / "one" / "1.png").write_bytes(b"")
    assert "✗ class 'one' has no train image that decodes" in marks(preflight(str(tmp_path)))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "1.png").write_bytes(b"")
    assert "✗ 2 classes, such as 'one', have no train image that decodes" in marks(preflight(str(tmp_path)))


def test_what_is_broken_is_counted_by_its_reason(tmp_path: Path) -> None:
    write_splits(tmp_path)
    train = tmp_path / "train" / "class0"
    (train / "0.png").write_text("text")
    one = "✗ 1 of 12 images is broken (1 is not an image in a known format); mend or remove it, or train without it by"
    assert one in marks(preflight(str(tmp_path)))
    for number in (1, 2):
        path = train / f"{number}.png"
        path.write_bytes(path.read_bytes()[:-30])
    three = "✗ 3 of 12 images are broken (2 are damaged; 1 is not an image in a known format); mend or remove them"
    assert three in marks(preflight(str(tmp_path)))


def test_parquet_and_sets_by_name(tmp_path: Path) -> None:
    images = [png(random_pixels(seed)) for seed in range(5)] + [b"no image"]
    pq.write_table(pa.table({"image": images, "label": [0, 0, 1, 1, 1, 0]}), tmp_path / "set.parquet")
    found = preflight(str(tmp_path / "set.parquet"))
    assert found.splits[0].classes == {"0": 2, "1": 3}
    assert [broken.name for broken in found.splits[0].broken] == [f"{tmp_path}/set.parquet#5"]
    digits = preflight("digits")
    assert (digits.splits[0].num, digits.splits[0].num_gray, digits.splits[0].broken) == (898, 898, [])


def test_processes_find_what_threads_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(150):
        write_png(tmp_path / f"{number:03}.png", random_pixels(number % 140))
    (tmp_path / "077.png").write_text("text")
    by_threads = as_json(preflight(str(tmp_path), workers=2))
    monkeypatch.setattr(pool, "MANY", 10)
    assert as_json(preflight(str(tmp_path), workers=2)) == by_threads


def test_the_json_has_everything_and_strange_names(tmp_path: Path) -> None:
    for name in (b"a\xff\n[b].png", b"fine.png"):
        with open(os.path.join(os.fsencode(tmp_path), name), "wb") as file:
            file.write(b"text" if b"\xff" in name else png(random_pixels(0)))
    outcome = contune("check", tmp_path, "--out", tmp_path / "check.json")
    assert outcome.code == 1
    assert r"a\udcff\n[b].png" in outcome.out
    report = read_json(tmp_path / "check.json")
    assert os.fsencode(report["splits"][0]["broken"][0]["name"]).endswith(b"a\xff\n[b].png")
    assert report["splits"][0]["kinds"] == {"PNG": 1}
    assert [finding["mark"] for finding in report["findings"]] == ["✗", "✓"]


def test_a_folder_that_no_run_could_open_is_a_sentence(tmp_path: Path) -> None:
    outcome = contune("check", tmp_path)
    assert outcome.code == 2
    assert "holds no image; put files there" in outcome.err


@pytest.mark.parametrize(
    ("data", "out", "words"),
    [
        ("set.parquet", "set.parquet", "is written as .json; give a name that ends so"),
        ("photos", "photos/class0/new.png", "is written as .json"),
        ("photos", "link.png", "is written as .json"),
        ("data.json", "data.json", "data.json is what is read; give another file"),
        ("photos", "data.json", "data.json is there already and is not what this command writes; remove it"),
    ],
)
def test_what_is_checked_is_not_written_over(tmp_path: Path, data: str, out: str, words: str) -> None:
    write_splits(tmp_path / "photos")
    pq.write_table(pa.table({"image": [png(random_pixels(0))]}), tmp_path / "set.parquet")
    (tmp_path / "link.png").symlink_to(tmp_path / "photos" / "train" / "class0" / "0.png")
    (tmp_path / "data.json").write_text("{}")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    outcome = contune("check", tmp_path / data, "--out", tmp_path / out)
    assert outcome.code == 2
    assert words in outcome.err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_report_is_written_over_its_like(tmp_path: Path) -> None:
    write_splits(tmp_path)
    for _ in range(2):
        assert contune("check", tmp_path, "--out", tmp_path / "check.json").code == 0
    assert read_json(tmp_path / "check.json")["path"] == str(tmp_path)


@pytest.mark.parametrize("workers", ["-3", "0"])
def test_workers_that_are_none(tmp_path: Path, workers: str) -> None:
    write_splits(tmp_path)
    outcome = contune("check", tmp_path, "--workers", workers)
    assert outcome.code == 2
    assert f"{workers} workers decode nothing; take 1 or more" in outcome.err
