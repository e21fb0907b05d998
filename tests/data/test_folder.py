"""Image folders: which files, classes and splits are read, in which order."""

import os
from pathlib import Path

import numpy as np
import pytest
from pictures import as_image, labels_of, random_pixels, write_png

from contune.data import load_dataset
from contune.data.folder import folder_splits
from contune.errors import UserError


def write_classes(folder: Path, **counts: int) -> dict[str, np.ndarray]:
    """`counts[name]` pictures in each class folder; what was written, by path."""
    seeds = iter(range(sum(counts.values())))
    return {
        str(path): write_png(path, random_pixels(next(seeds)))
        for name, count in counts.items()
        for path in (folder / name / f"{number:03}.png" for number in range(count))
    }


def test_class_folders_come_back_sorted_and_exact(tmp_path: Path) -> None:
    written = write_classes(tmp_path, dog=3, cat=2, bird=4)
    splits = folder_splits(tmp_path)
    assert splits.class_names == ("bird", "cat", "dog")
    assert labels_of(splits.train) == [0] * 4 + [1] * 2 + [2] * 3
    assert list(splits.train.names) == sorted(written)
    x_NCHW = splits.train.resident(8, 3).numpy()
    assert all(np.array_equal(x, written[name]) for x, name in zip(x_NCHW, splits.train.names, strict=True))


@pytest.mark.parametrize("held", ["test", "val", "validation"])
def test_split_folders(tmp_path: Path, held: str) -> None:
    write_classes(tmp_path / "train", a=3, b=2)
    write_classes(tmp_path / held, b=2)
    dataset = load_dataset(str(tmp_path))
    assert (len(dataset.train), labels_of(dataset.test), dataset.val) == (5, [1, 1], None)


def test_a_class_of_trains_is_a_class(tmp_path: Path) -> None:
    write_classes(tmp_path, train=2, plane=2, car=2)
    assert folder_splits(tmp_path).class_names == ("car", "plane", "train")


def test_deep_files_odd_suffixes_and_hidden_ones(tmp_path: Path) -> None:
    write_png(tmp_path / "a" / "deep" / "deeper" / "1.PNG", random_pixels(0))
    write_png(tmp_path / "b" / "2.png", random_pixels(1))
    as_image(random_pixels(2)).save(tmp_path / "b" / "3.JPeG")
    write_png(tmp_path / "b" / ".hidden.png", random_pixels(3))
    write_png(tmp_path / ".cache" / "4.png", random_pixels(4))
    (tmp_path / "b" / "notes.txt").write_text("not an image")
    names = [Path(name).name for name in folder_splits(tmp_path).train.names]
    assert names == ["1.PNG", "2.png", "3.JPeG"]


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    write_png(tmp_path / "elsewhere" / "1.png", random_pixels(0))
    root = tmp_path / "root"
    write_png(root / "a" / "2.png", random_pixels(1))
    os.symlink(tmp_path / "elsewhere", root / "b")
    os.symlink(root, root / "a" / "again")
    os.symlink(root / "b", root / "a" / "to_b")
    os.symlink(root / "a", tmp_path / "elsewhere" / "to_a")
    os.symlink("nowhere", root / "a" / "dead.png")
    os.symlink("loop.png", root / "a" / "loop.png")
    os.mkfifo(root / "a" / "pipe.png")
    splits = folder_splits(root)
    assert splits.class_names == ("a", "b")
    names = [Path(name).relative_to(root).as_posix() for name in splits.train.names]
    assert "a/pipe.png" not in names
    assert names == sorted(names)
    assert {"a/2.png", "a/dead.png", "a/loop.png", "a/to_b/1.png", "b/1.png", "b/to_a/2.png"} <= set(names)
    assert len(names) < 12
    with pytest.raises(UserError, match=r"dead\.png' cannot be read"):
        splits.train.resident(8, 3)


@pytest.mark.parametrize(
    ("files", "empty", "word"),
    [
        ((), "", "holds no image"),
        ((), "a", "holds no image"),
        (("a/1.png", "b/1.png"), "c", "c' has no training image"),
        (("a/1.png", "b/1.png", "stray.png"), "", "stray.png"),
        (("train/a/1.png", "train/b/1.png", "test/z/1.png"), "", "z' has no training image"),
        (("train/a/1.png", "train/b/1.png"), "test", "test' holds no image"),
        (("test/a/1.png", "test/b/1.png"), "", "no 'train'"),
    ],
)
def test_folders_that_are_no_data_set(tmp_path: Path, files: tuple[str, ...], empty: str, word: str) -> None:
    for file in files:
        write_png(tmp_path / file, random_pixels(0))
    (tmp_path / empty).mkdir(parents=True, exist_ok=True)
    with pytest.raises(UserError, match=word):
        load_dataset(str(tmp_path))
