from pathlib import Path

import pytest
from image_files import png, random_pixels

from contune.data import load_dataset
from contune.errors import UserError


def write_imagenet(root: Path, num_classes: int) -> list[str]:
    wnids = [f"n{number:08}" for number in range(num_classes)]
    content = png(random_pixels(0, 4, 4))
    for split, count in (("train", 2), ("val", 1)):
        for wnid in wnids:
            (root / split / wnid).mkdir(parents=True)
            for number in range(count):
                (root / split / wnid / f"{wnid}_{number}.png").write_bytes(content)
    return wnids


def test_a_folder_of_exactly_a_hundred_needs_no_list(tmp_path: Path) -> None:
    wnids = write_imagenet(tmp_path / "imagenet100", 100)
    for root in (tmp_path, tmp_path / "imagenet100"):
        dataset = load_dataset("imagenet100", root=str(root))
        assert dataset.test is not None
        assert dataset.class_names == tuple(wnids)
        assert (len(dataset.train), len(dataset.test), dataset.val) == (200, 100, None)
        assert (dataset.image_size, dataset.channels) == (224, 3)
        assert (dataset.mean, dataset.std) == ((0.5,) * 3, (0.25,) * 3)


def test_a_list_chooses_and_its_order_does_not_matter(tmp_path: Path) -> None:
    wnids = write_imagenet(tmp_path, 104)
    chosen = wnids[3:103]
    listed = tmp_path / "classes.txt"
    lines = [f"{wnid} a description" for wnid in reversed(chosen)]
    listed.write_text("# a hundred\n\n" + "\n".join(lines) + "  # the last\n")
    dataset = load_dataset("imagenet100", root=str(tmp_path), classes=str(listed))
    assert dataset.class_names == tuple(chosen)
    assert dataset.train.labels is not None
    assert dataset.train.labels.tolist() == [label for label in range(100) for _ in range(2)]
    assert Path(dataset.train.names[0]).parent.name == chosen[0]

    listed.write_text("\n".join([*chosen[:99], "n99999999"]))
    with pytest.raises(UserError, match=r"train' has no images of 1 of the 100 classes, such as 'n99999999'"):
        load_dataset("imagenet100", root=str(tmp_path), classes=str(listed))
    with pytest.raises(UserError, match=r"has 104 class folders and imagenet100 is 100; .*data\.classes"):
        load_dataset("imagenet100", root=str(tmp_path))


def test_lists_of_another_length(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "val").mkdir()
    listed = tmp_path / "classes.txt"
    listed.write_text("n1\n" * 100)
    with pytest.raises(UserError, match="names 100 classes, 1 of them different; imagenet100 needs 100"):
        load_dataset("imagenet100", root=str(tmp_path), classes=str(listed))
    with pytest.raises(UserError, match="'no such list' is not a file"):
        load_dataset("imagenet100", root=str(tmp_path), classes="no such list")


def test_a_class_without_test_images(tmp_path: Path) -> None:
    wnids = write_imagenet(tmp_path, 100)
    (tmp_path / "val" / wnids[40] / f"{wnids[40]}_0.png").unlink()
    with pytest.raises(UserError, match=rf"val' has no images of 1 of the 100 classes, such as '{wnids[40]}'"):
        load_dataset("imagenet100", root=str(tmp_path))


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none of .* has both train/ and val/ .*image-net\.org.*data\.path"):
        load_dataset("imagenet100", root=str(tmp_path))
