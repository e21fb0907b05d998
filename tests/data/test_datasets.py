from pathlib import Path

import pytest
from image_files import random_pixels, write_png

from contune.data import DATASETS, load_dataset
from contune.errors import UserError


def test_the_named_sets() -> None:
    assert list(DATASETS) == ["digits", "cifar10", "cifar100", "fmnist", "imagenet100"]


def test_a_misspelt_name() -> None:
    with pytest.raises(UserError, match=r"unknown dataset 'cifar1oo'; did you mean .*cifar100.*file or folder"):
        load_dataset("cifar1oo")


def test_a_path_that_is_not_there() -> None:
    with pytest.raises(UserError, match=r"^there is no file or folder at '/no/such/photos'$"):
        load_dataset("/no/such/photos")
    with pytest.raises(UserError, match=r"^there is no file or folder at 'fotos/', seen from /"):
        load_dataset("fotos/")


def test_an_archive(tmp_path: Path) -> None:
    (tmp_path / "photos.zip").write_bytes(b"PK")
    with pytest.raises(UserError, match=r"photos\.zip' is neither a folder of images nor a \.parquet file"):
        load_dataset(str(tmp_path / "photos.zip"))


def test_a_name_wins_over_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        write_png(tmp_path / "digits" / name / "1.png", random_pixels(0))
    assert load_dataset("digits").class_names == tuple("0123456789")
    assert load_dataset("./digits").class_names == ("a", "b")


def test_options_of_other_sources_are_refused(tmp_path: Path) -> None:
    write_png(tmp_path / "a" / "1.png", random_pixels(0))
    with pytest.raises(UserError, match="a class list is for imagenet100, and the data set is 'digits'"):
        load_dataset("digits", classes="list.txt")
    with pytest.raises(UserError, match="a root is for named data sets"):
        load_dataset(str(tmp_path), root="elsewhere")
    with pytest.raises(UserError, match="a label column is for parquet"):
        load_dataset(str(tmp_path), label_column="label")


def test_validation_of_a_named_set_leaves_test_alone() -> None:
    plain, held = load_dataset("digits"), load_dataset("digits", val_fraction=0.1, split_seed=4)
    assert plain.test is not None
    assert held.test is not None
    assert held.val is not None
    assert plain.val is None
    assert list(plain.test.names) == list(held.test.names)
    assert sorted([*held.train.names, *held.val.names]) == sorted(plain.train.names)
    assert len(held.val) == 90


def test_a_link_to_itself_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(UserError, match="loop"):
        load_dataset(str(tmp_path / "loop"))


def test_a_way_with_broken_images_that_there_is_not() -> None:
    with pytest.raises(UserError, match="unknown way with broken images 'ignore'; choose from skip, stop"):
        load_dataset("digits", broken="ignore")
