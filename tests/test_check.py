"""`contune check`: what it counts, what it calls wrong, and what only deserves a look."""

from pathlib import Path

from command_line import contune, read_json
from pictures import as_image, random_pixels, write_png
from PIL import Image

from contune.check import check, findings


def marks(folder: Path) -> str:
    return "\n".join(f"{finding.mark} {finding.text}" for finding in findings(check(str(folder))))


def write_splits(folder: Path) -> None:
    """Two classes, four training and two test images each, all different."""
    for part, num in (("train", 4), ("test", 2)):
        for label in range(2):
            for number in range(num):
                seed = 100 * num + 10 * label + number
                write_png(folder / part / f"class{label}" / f"{number}.png", random_pixels(seed, 12, 16))


def test_a_healthy_set(tmp_path: Path) -> None:
    write_splits(tmp_path)
    for _ in range(2):  # a report replaces its like
        outcome = contune("check", tmp_path, "--out", tmp_path / "check.json", "--workers", "1")
        assert outcome.code == 0
    assert outcome.out.splitlines()[1].split() == ["train", "8", "0", "2", "4", "16", "×", "12", "PNG", "8"]
    assert outcome.out.count("✓") == 2
    assert "✗" not in outcome.out
    assert read_json(tmp_path / "check.json")["path"] == str(tmp_path)


def test_copies(tmp_path: Path) -> None:
    write_splits(tmp_path)
    train, test = tmp_path / "train" / "class0", tmp_path / "test" / "class0"
    (test / "same.png").write_bytes((train / "1.png").read_bytes())
    Image.open(train / "2.png").save(test / "again.bmp")
    assert [len(copies.names) for copies in check(str(tmp_path)).copies] == [2, 2]
    assert "✗ held-out images that are also in another split: 2" in marks(tmp_path)
    assert "classes" not in marks(tmp_path)
    for name in ("class0/copy.png", "class1/copy.png"):
        (tmp_path / "train" / name).write_bytes((train / "3.png").read_bytes())
    assert "✗ images in several classes: 1" in marks(tmp_path)
    assert "! copies of another image in the same split: 2" in marks(tmp_path)


def test_odd_images_and_files_are_counted(tmp_path: Path) -> None:
    write_splits(tmp_path)
    train = tmp_path / "train" / "class0"
    Image.new("RGB", (16, 16), "white").save(train / "blank.png")
    as_image(random_pixels(0, 4, 400)).save(train / "strip.png")
    write_png(train / "gray.png", random_pixels(1, 16, 16, channels=1))
    (train / "notes.txt").write_text("which is which")
    (train / "phone.heic").write_bytes(b"\0")
    text = marks(tmp_path)
    for word in (
        "single color: 1",
        "8 pixels high or wide: 1",
        "2 (.txt 1, .heic 1)",
    ):
        assert word in text
    assert "✗" not in text
    assert check(str(tmp_path)).splits[0].table_row[5] == "16–400 × 4–16"


def test_classes_out_of_balance_and_broken_files(tmp_path: Path) -> None:
    for number in range(12):
        write_png(tmp_path / "many" / f"{number}.png", random_pixels(number))
    write_png(tmp_path / "one" / "1.png", random_pixels(50))
    assert "! classes have from 1 to 12 train images" in marks(tmp_path)
    (tmp_path / "one" / "1.png").write_bytes(b"")
    assert "✗ classes without a training image that decodes: 1, such as 'one'" in marks(tmp_path)
    assert "✗ 1 of 13 images cannot be decoded (is not an image in a known format: 1)" in marks(tmp_path)
