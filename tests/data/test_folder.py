import os
from pathlib import Path

import numpy as np
import pytest
import torch
from image_files import as_image, random_pixels, write_png

from contune.data import load_dataset
from contune.data.folder import folder_splits
from contune.data.walk import circular_links
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
    assert splits.train.labels is not None
    assert splits.train.labels.tolist() == [0] * 4 + [1] * 2 + [2] * 3
    assert list(splits.train.names) == sorted(written)
    x_NCHW = splits.train.resident(8, 3).numpy()
    assert all(np.array_equal(x, written[name]) for x, name in zip(x_NCHW, splits.train.names, strict=True))


def test_a_stratified_test_set_is_held_out(tmp_path: Path) -> None:
    write_classes(tmp_path, a=20, b=10)
    dataset = load_dataset(str(tmp_path), test_fraction=0.2, val_fraction=0.25)
    assert dataset.test is not None
    assert dataset.val is not None
    parts = [dataset.train, dataset.val, dataset.test]
    assert [torch.bincount(part.labels).tolist() for part in parts if part.labels is not None] == [
        [12, 6],
        [4, 2],
        [4, 2],
    ]
    assert len({name for part in parts for name in part.names}) == 30
    again = load_dataset(str(tmp_path), test_fraction=0.2, val_fraction=0.0)
    assert again.test is not None
    assert list(again.test.names) == list(dataset.test.names)
    assert again.val is None
    other = load_dataset(str(tmp_path), test_fraction=0.2, split_seed=1)
    assert other.test is not None
    assert list(other.test.names) != list(again.test.names)


def test_nothing_is_held_out_when_nothing_is_asked(tmp_path: Path) -> None:
    write_classes(tmp_path, a=3, b=3)
    dataset = load_dataset(str(tmp_path), test_fraction=0.0)
    assert dataset.test is None
    assert len(dataset.train) == 6


@pytest.mark.parametrize("held", ["test", "val", "validation"])
def test_split_folders(tmp_path: Path, held: str) -> None:
    write_classes(tmp_path / "train", a=3, b=2)
    write_classes(tmp_path / held, b=2)
    dataset = load_dataset(str(tmp_path))
    assert dataset.test is not None
    assert dataset.test.labels is not None
    assert (len(dataset.train), dataset.test.labels.tolist(), dataset.val) == (5, [1, 1], None)


def test_train_val_and_test_folders(tmp_path: Path) -> None:
    for number, part in enumerate(("train", "val", "test"), start=1):
        write_classes(tmp_path / part, a=number, b=number)
    dataset = load_dataset(str(tmp_path), val_fraction=0.5)
    assert dataset.val is not None
    assert dataset.test is not None
    assert [len(part) for part in (dataset.train, dataset.val, dataset.test)] == [2, 4, 6]


def test_validation_comes_out_of_train_and_leaves_test_alone(tmp_path: Path) -> None:
    write_classes(tmp_path / "train", a=10, b=10)
    test_files = write_classes(tmp_path / "test", a=3, b=3)
    dataset = load_dataset(str(tmp_path), val_fraction=0.2)
    assert dataset.val is not None
    assert dataset.test is not None
    assert (len(dataset.train), len(dataset.val)) == (16, 4)
    assert list(dataset.test.names) == sorted(test_files)


def test_a_class_of_trains_is_a_class(tmp_path: Path) -> None:
    write_classes(tmp_path, train=2, plane=2, car=2)
    assert folder_splits(tmp_path).class_names == ("car", "plane", "train")


def test_flat_files_have_no_labels(tmp_path: Path) -> None:
    for number in range(10):
        write_png(tmp_path / f"{number}.png", random_pixels(number))
    dataset = load_dataset(str(tmp_path), test_fraction=0.3)
    assert dataset.test is not None
    assert dataset.train.labels is None
    assert dataset.test.labels is None
    assert dataset.class_names == ()
    assert (len(dataset.train), len(dataset.test)) == (7, 3)


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
    os.symlink(root / "nowhere", root / "a" / "broken.png")
    splits = folder_splits(root)
    assert splits.class_names == ("a", "b")
    names = [Path(name).relative_to(root).as_posix() for name in splits.train.names]
    assert names == ["a/2.png", "a/broken.png", "b/1.png"]
    with pytest.raises(UserError, match=r"cannot read image '.*broken\.png': a link that leads nowhere"):
        splits.train.resident(8, 3)
    assert circular_links(root) == [str(root / "a" / "again")]


def test_one_class_is_still_a_data_set(tmp_path: Path) -> None:
    write_classes(tmp_path, only=5)
    dataset = load_dataset(str(tmp_path))
    assert dataset.class_names == ("only",)


def test_gray_and_colour_together_are_colour(tmp_path: Path) -> None:
    gray = write_png(tmp_path / "a" / "1.png", random_pixels(0, channels=1))
    write_png(tmp_path / "b" / "2.png", random_pixels(1))
    dataset = load_dataset(str(tmp_path), test_fraction=0.0)
    assert (dataset.channels, dataset.image_size) == (3, 8)
    assert np.array_equal(dataset.train.resident(8, 3)[0].numpy(), np.repeat(gray, 3, axis=0))


def test_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no image; put files there"):
        load_dataset(str(tmp_path))


def test_folders_without_any_image(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(UserError, match="holds no image; put files there"):
        load_dataset(str(tmp_path))


def test_one_empty_class_folder(tmp_path: Path) -> None:
    write_classes(tmp_path, a=1, b=1)
    (tmp_path / "c").mkdir()
    with pytest.raises(UserError, match=r"class folder '.*/c' holds no image; fill it or remove it"):
        load_dataset(str(tmp_path))


def test_images_beside_class_folders(tmp_path: Path) -> None:
    write_classes(tmp_path, a=1, b=1)
    write_png(tmp_path / "stray.png", random_pixels(0))
    with pytest.raises(UserError, match=r"both class folders and images outside them, such as 'stray.png'"):
        load_dataset(str(tmp_path))


def test_a_test_class_without_training_images(tmp_path: Path) -> None:
    write_classes(tmp_path / "train", a=1, b=1)
    write_classes(tmp_path / "test", a=1, z=1)
    with pytest.raises(UserError, match=r"test/z' has no counterpart in '.*train'"):
        load_dataset(str(tmp_path))


def test_an_empty_test_folder(tmp_path: Path) -> None:
    write_classes(tmp_path / "train", a=1, b=1)
    (tmp_path / "test").mkdir()
    with pytest.raises(UserError, match=r"test' holds no image; fill it or remove it"):
        load_dataset(str(tmp_path))


def test_a_test_folder_without_train(tmp_path: Path) -> None:
    write_classes(tmp_path / "test", a=1, b=1)
    with pytest.raises(UserError, match="has a 'test' folder but no 'train' beside it"):
        load_dataset(str(tmp_path))


def test_text_named_jpg_is_named_when_measured(tmp_path: Path) -> None:
    write_classes(tmp_path, a=2, b=2)
    (tmp_path / "a" / "fake.jpg").write_text("text")
    with pytest.raises(UserError, match=r"a/fake\.jpg' is not an image"):
        load_dataset(str(tmp_path), test_fraction=0.0)
