"""Images that come, go or are split otherwise after training: a run goes on with none of them, and measures none."""

import shutil
from pathlib import Path

import pytest
from command_line import contune, train
from pictures import write_classes, write_picture

from contune.data import load_dataset
from contune.train.trained_on import FILE, describe

SMALL = (
    "model.encoder=resnet-mini",
    "data.image_size=12",
    "optim.batch_images=4",
    "run.report=false",
    "eval.linear=fast",
)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return write_classes(tmp_path / "photos")


@pytest.fixture
def run(photos: Path, tmp_path: Path) -> Path:
    train(tmp_path / "run", "images", f"data.path={photos}", "optim.epochs=0", *SMALL)
    return tmp_path / "run"


def test_what_is_held_out_is_measured_as_long_as_the_images_are_the_same(run: Path, photos: Path) -> None:
    assert contune("eval", run).code == 0
    write_picture(photos / "class1" / "new.png", seed=5)
    refused = contune("eval", run)
    assert refused.code == 2
    assert "is not split as it was when" in refused.err
    assert "(19 images to train on then, 20 now)" in refused.err
    assert contune("report", run).code == 2


def test_another_fraction_is_of_other_images(run: Path) -> None:
    refused = contune("eval", run, "data.test_fraction=0.5")
    assert "(19 images to train on then, 12 now), so images that would be measured now may have been trained on" in (
        refused.err
    )
    assert "may have been trained on" in contune("eval", run, "data.val_fraction=0.2", "eval.split=val").err


def test_other_images_and_a_set_with_a_split_of_its_own_are_free(run: Path, photos: Path, tmp_path: Path) -> None:
    assert contune("eval", run, f"data.path={write_classes(tmp_path / 'others', each=9)}").code == 0
    (run / FILE).unlink()
    write_picture(photos / "class1" / "new.png", seed=5)
    assert contune("eval", run).code == 0, "a run of before there was this file"


def test_a_part_that_was_set_aside_for_choices_is_measured(photos: Path, tmp_path: Path) -> None:
    train(tmp_path / "run", "images", f"data.path={photos}", "data.val_fraction=0.2", "optim.epochs=0", *SMALL)
    outcome = contune("eval", tmp_path / "run", "eval.split=val")
    assert outcome.code == 0, outcome.err
    assert "val" in outcome.out.splitlines()[0]


def test_a_run_does_not_go_on_with_others(photos: Path, tmp_path: Path) -> None:
    arguments = ("train", "images", f"data.path={photos}", "optim.epochs=1", *SMALL, "--out", tmp_path / "run")
    assert contune(*arguments).code == 0
    (tmp_path / "run" / "result.json").unlink()
    (photos / "class0" / "0.png").unlink()
    refused = contune(*arguments)
    assert refused.code == 2
    assert "has changed since the run in" in refused.err
    write_picture(photos / "class0" / "0.png", seed=0)
    assert contune(*arguments).code == 0


def test_a_folder_may_be_moved(photos: Path, tmp_path: Path) -> None:
    before = describe(load_dataset(str(photos)).train)
    shutil.move(photos, tmp_path / "elsewhere")
    assert describe(load_dataset(str(tmp_path / "elsewhere")).train) == before
