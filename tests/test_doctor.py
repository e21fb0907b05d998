"""`contune doctor`: what it finds and what it advises."""

import math
from pathlib import Path

import pytest
import torch
from command_line import contune
from pictures import write_flat, write_picture

from contune import doctor
from contune.config import Config
from contune.doctor import Finding, examine, expected_positives
from contune.recipes import RECIPES


def findings(*overrides: str) -> list[Finding]:
    return list(examine(RECIPES["digits"]().override(list(overrides))))


def advice(*overrides: str) -> str:
    return "\n".join(finding.text for finding in findings(*overrides) if finding.mark == "!")


def test_a_healthy_recipe_gets_a_line_on_each_part() -> None:
    outcome = contune("doctor")
    lines = outcome.out.splitlines()
    assert outcome.code == 0
    assert all(line.startswith("✓ ") for line in lines)
    starts = ["machine: ", "data: ", "batch: ", "an untrained", "positives: ", "encoder: ", "memory: ", "time: "]
    assert [start for line, start in zip(lines, starts, strict=True) if not line[2:].startswith(start)] == []
    assert "digits, 898 train, 899 test; 10 classes; 8 px" in outcome.out
    assert "64 images × 2 views = 128 embeddings" in outcome.out
    assert f"about ln 127 = {math.log(127):.2f}" in outcome.out
    assert "1.2 M parameters, 256 features" in outcome.out


def test_what_stops_a_run_is_the_last_finding_and_exit_code_1() -> None:
    outcome = contune("doctor", "optim.batch_images=64", "augment.policy=digits rotation=999")
    assert outcome.code == 1
    assert outcome.out.splitlines()[-1].startswith("✗ rotation=999.0 is out of range")
    assert "is more than the 898 training images" in findings("optim.batch_images=9999")[-1].text
    assert findings("augment.views=1", "method.supervised=false")[-1] == Finding(
        "✗", "an anchor has no positives: without labels it takes augment.views=2 or more"
    )


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("optim.lr=30",), "optim.lr=30 is far from the paper's ratio of 0.2 at 256 embeddings, which is 0.1 here"),
        (("optim.batch_images=4",), "few anchors meet another image of their class"),
        (("model.stem=imagenet",), "model.stem=imagenet shrinks 8-pixel images fourfold at once"),
        (("model.stem=cifar", "data.image_size=96"), "model.stem=cifar keeps 96-pixel maps at full size"),
    ],
)
def test_advice(overrides: tuple[str, ...], words: str) -> None:
    assert words in advice(*overrides)
    assert words not in advice()


def test_unbalanced_classes_and_no_test_split(tmp_path: Path) -> None:
    for label, num in (("common", 66), ("rare", 3)):
        for number in range(num):
            write_picture(tmp_path / label / f"{number}.png", seed=number)
    images = ("data.name=images", f"data.path={tmp_path}", "data.image_size=8", "data.test_fraction=0")
    text = advice(*images)
    assert "classes have from 3 (rare) to 66 images; data.sampler=balanced gives each class its share" in text
    assert "there is no test split, so nothing will be measured; set data.test_fraction=0.2" in text
    assert "data.sampler=balanced" not in advice(*images, "data.sampler=balanced", "data.images_per_class=32")


def test_its_advice_to_balance_works_as_it_stands_however_few_the_classes(tmp_path: Path) -> None:
    for label, num in (("common", 66), ("rare", 3), ("single", 1)):
        for number in range(num):
            write_picture(tmp_path / label / f"{number}.png", seed=number)
    images = ("data.name=images", f"data.path={tmp_path}", "data.image_size=8", "data.test_fraction=0")
    assert "classes have from 1 (single) to 66 images; data.sampler=balanced gives" in advice(*images)
    found = findings(*images, "data.sampler=balanced")
    assert not any(finding.is_bad for finding in found)
    texts = [finding.text for finding in found]
    assert "balanced: 3 classes in a batch, 21 or 22 images of each" in texts
    assert "positives: 41.7 for each anchor on average" in texts


def test_a_large_k1_in_a_short_run() -> None:
    words = (
        "method.k1=5000 is much for 280 steps, which may end near the untrained loss; method.k1=500 suits short runs"
    )
    assert words in advice("method.k1=5000")
    assert "is much for 14 steps" in advice("method.k1=5000", "optim.epochs=1")
    for enough in (("method.k1=5000", "optim.epochs=80"), ("method.k1=1400",), ("method.name=supcon",)):
        assert "is much for" not in advice(*enough)
    assert "is much for" not in advice("optim.epochs=1"), "the recipe's own k1 is for short runs"
    assert "is much for" not in advice("method.k1=5000", "optim.epochs=0")


def test_the_machine_comes_first_whatever_is_wrong(tmp_path: Path) -> None:
    write_flat(tmp_path, 2)
    sorted(tmp_path.iterdir())[0].write_text("text")
    for overrides in (
        ("data.name=images", f"data.path={tmp_path}", "data.image_size=8"),
        ("data.name=images", f"data.path={tmp_path / 'nowhere'}"),
        ("run.device=gpu",),
    ):
        first, last = findings(*overrides)
        assert first.text.startswith("machine: ")
        assert "; contune " in first.text
        assert last.is_bad


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
    assert "positives: 1.0 for each anchor on average" in [finding.text for finding in findings(*small)]
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


def test_images_without_labels(tmp_path: Path) -> None:
    write_flat(tmp_path, 80)
    config = RECIPES["images-ssl"]().override(
        [f"data.path={tmp_path}", "data.image_size=8", "optim.batch_images=32", "model.encoder=resnet-mini"]
    )
    found = list(examine(config))
    assert not any(finding.is_bad for finding in found)
    assert "positives: 2.0 for each anchor on average" in [finding.text for finding in found]


def test_a_batch_of_one_view_is_a_finding_and_no_crash() -> None:
    found = findings("optim.batch_images=1", "augment.views=1")
    assert "batch: 1 image × 1 view = 1 embedding, which is what the paper counts" in [each.text for each in found]
    assert "an anchor has no positives" in found[-1].text


def test_cross_entropy_has_no_positives_to_count() -> None:
    assert not any("positives" in finding.text for finding in findings("method.name=cross-entropy"))


def test_expected_positives_by_hand() -> None:
    labels_N = torch.tensor([0, 0, 1, 1])
    config = Config().override(["optim.batch_images=3", "augment.views=3"])

    def balanced(batch: int) -> Config:
        own = ["augment.views=3", f"optim.batch_images={batch}", "data.sampler=balanced", "data.images_per_class=2"]
        return Config().override(own)

    assert expected_positives(config, labels_N) == pytest.approx(2 + 3 * 2 * 1 / 3)
    assert expected_positives(config, torch.arange(9)) == 2
    assert expected_positives(config, None) == 2
    assert expected_positives(balanced(8), labels_N) == 3 * 4 - 1
    assert expected_positives(balanced(9), labels_N) == pytest.approx(3 * (4 * 4 + 5 * 5) / 9 - 1)
    assert expected_positives(config.override(["method.name=simclr"]), labels_N) == 2


def test_little_disk_little_memory_and_long_runs_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 2**30})
    monkeypatch.setattr("contune.doctor.shutil.disk_usage", lambda path: usage)
    monkeypatch.setattr(doctor, "_memory_bytes", lambda device: 2**20)
    monkeypatch.setattr(doctor, "_seconds_per_view", lambda setup, method: 3600 / (128 * 14 * 20))
    found = [f"{finding.mark} {finding.text}" for finding in findings()]
    assert "! only 1.0 GiB of disk are free here; checkpoints may not fit" in found
    assert any(line.startswith("! memory: ") and line.endswith("lower optim.batch_images") for line in found)
    assert "✓ time: about 1.0 h for 280 steps, going by a trial of 16 images" in found


def test_a_wrong_normalisation_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "eval_transform", lambda images, size, mean, std: images.float())
    assert "where 0 and 1 are meant" in advice()
