"""What the doctor says about the images."""

from pathlib import Path

import pytest
from examined import advice, findings, texts
from pictures import write_flat, write_picture

from contune.console import Finding


def test_unbalanced_classes_and_no_test_split(tmp_path: Path) -> None:
    for label, num in (("common", 66), ("rare", 3)):
        for number in range(num):
            write_picture(tmp_path / label / f"{number}.png", seed=number)
    images = ("data.name=images", f"data.path={tmp_path}", "data.image_size=8", "data.test_fraction=0")
    text = advice(*images)
    assert "classes have from 3 (rare) to 66 images; data.sampler=balanced gives each class its share" in text
    assert "there is no test split, so nothing will be measured; set data.test_fraction=0.2" in text
    for overrides in (("data.sampler=balanced", "data.images_per_class=32"), ("method.supervised=false",)):
        assert "data.sampler=balanced" not in advice(*images, *overrides)


def test_one_is_not_called_several(tmp_path: Path) -> None:
    write_picture(tmp_path / "only" / "0.png", seed=0)
    found = findings("data.name=images", f"data.path={tmp_path}", "data.image_size=8", "data.test_fraction=0")
    assert [finding.text for finding in found if "1 train; 1 class; 8 px" in finding.text]
    assert found[-1].text == "optim.batch_images=64 is more than the 1 training image; lower it"


def single_images(folder: Path, num: int) -> tuple[str, ...]:
    """A class for each image."""
    for number in range(num):
        write_picture(folder / str(number) / "0.png", seed=number)
    return ("data.name=images", f"data.path={folder}", "data.image_size=12")


def test_a_single_image_of_each_class(tmp_path: Path) -> None:
    images = single_images(tmp_path, 20)
    unmeasured = (
        "there is no test split, so nothing will be measured; every class has a single image, which training keeps, "
        "so add images, or a split of their own"
    )
    useless = (
        "every class has a single image, so the only positives of an anchor are its own views, and labels teach "
        "nothing; add images of each class, or train without labels by the recipe images-ssl"
    )
    too_large = findings(*images)  # said although the batch stops the examination
    assert [finding.text for finding in too_large if finding.mark == "!"] == [unmeasured, useless]
    assert "is more than the 20 training images" in too_large[-1].text
    small = (*images, "optim.batch_images=10", "optim.lr=0.02")
    assert advice(*small).splitlines() == [unmeasured, useless]
    assert "positives: 1.0 for each anchor on average" in texts(*small)
    assert findings(*small, "augment.views=1")[-1] == Finding(
        "✗", "an anchor has no positives: with one image of each class in a batch it takes augment.views=2 or more"
    )
    for overrides in (("method.name=cross-entropy",), ("method.supervised=false",)):
        assert advice(*small, *overrides).splitlines() == [unmeasured]


def test_the_way_to_a_split_is_one_that_works(tmp_path: Path) -> None:
    write_flat(tmp_path, 4)
    few = ("data.name=images", f"data.path={tmp_path}", "data.image_size=8", "data.test_fraction=0.1")
    assert "nothing will be measured; data.test_fraction=0.1 of 4 images is none, so raise it" in advice(*few)
    assert "needs a validation split; set data.val_fraction=0.2" in findings(*few, "eval.split=val")[-1].text
    none = findings(*few, "eval.split=val", "data.val_fraction=0.1")[-1].text
    assert none == "eval.split=val needs a validation split; data.val_fraction=0.1 of 4 images is none, so raise it"


def test_broken_images_stop_it_or_are_left_out(tmp_path: Path) -> None:
    write_flat(tmp_path, 80)
    broken = sorted(tmp_path.iterdir())[3]
    broken.write_text("text")
    images = ("data.name=images", f"data.path={tmp_path}", "data.image_size=8", "method.supervised=false")
    assert findings(*images)[-1].mark == "✗"
    assert findings(*images)[-1].text.endswith("save it again; data.broken=skip leaves such files out")
    skipping = findings(*images, "data.broken=skip", "optim.batch_images=32")
    assert not any(finding.is_bad for finding in skipping)
    assert f"1 broken image is left out, such as {str(broken)!r}" in [finding.text for finding in skipping]


def test_a_wrong_normalisation_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("contune.doctor.data.eval_transform", lambda images, size, mean, std: images.float())
    assert "where 0 and 1 are meant; see whether they are those of digits: the recipe images takes any" in advice()
