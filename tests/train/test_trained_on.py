"""Images that come, go or move after training: a run goes on with no others, and is measured on none it has seen."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import contune, train
from pictures import write_classes, write_flat, write_picture

from contune.train.trained_on import FILE

SMALL = ("model.encoder=resnet-mini", "data.image_size=12", "optim.batch_images=4", "eval.linear=fast")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return write_classes(tmp_path / "photos")


@pytest.fixture
def run(photos: Path, tmp_path: Path) -> Path:
    train(tmp_path / "run", "images", f"data.path={photos}", "optim.epochs=0", *SMALL)
    return tmp_path / "run"


def measured_again(run: Path, *settings: str) -> str:
    """What is printed, or the sentence that refuses it."""
    outcome = contune("eval", run, *settings)
    assert (outcome.code == 0) != ("among those that" in outcome.err), outcome.err
    return outcome.out or outcome.err


def test_what_is_held_out_is_measured_as_long_as_it_has_not_been_trained_on(run: Path, photos: Path) -> None:
    assert "kNN" in measured_again(run)
    write_picture(photos / "class1" / "new.png", seed=5)
    assert "of the 5 images of" in measured_again(run)
    (photos / "class1" / "new.png").unlink()
    assert "kNN" in measured_again(run)
    assert "kNN" in measured_again(run, "data.val_fraction=0.2"), "the test split is the same"


def test_another_fraction_or_split_is_of_other_images(run: Path) -> None:
    assert " of the 12 images of" in measured_again(run, "data.test_fraction=0.5")
    assert "4 of the 4 images of" in measured_again(run, "data.val_fraction=0.2", "eval.split=val")


def test_a_part_that_was_set_aside_for_choices_is_measured(photos: Path, tmp_path: Path) -> None:
    train(tmp_path / "run", "images", f"data.path={photos}", "data.val_fraction=0.2", "optim.epochs=0", *SMALL)
    assert "val" in measured_again(tmp_path / "run", "eval.split=val").splitlines()[0]


def test_pictures_that_move_from_training_to_test_are_known(tmp_path: Path) -> None:
    """Those of one name in both are different pictures."""
    photos, run = tmp_path / "photos", tmp_path / "run"
    write_classes(photos / "train", each=6)
    write_classes(photos / "test", each=3)
    write_picture(photos / "test" / "class0" / "0.png", seed=77)
    train(run, "images", f"data.path={photos}", "optim.epochs=0", *SMALL)
    assert "kNN" in measured_again(run)
    (photos / "train" / "class1" / "5.png").rename(photos / "test" / "class1" / "5.png")
    assert "1 of the 7 images of" in measured_again(run)


def test_pictures_that_are_sorted_into_splits_later_are_known(run: Path, photos: Path) -> None:
    shutil.move(photos, photos.parent / "all")
    for number, path in enumerate(sorted((photos.parent / "all").glob("*/*"))):
        to = photos / ("test" if number % 3 == 0 else "train") / path.parent.name
        to.mkdir(parents=True, exist_ok=True)
        path.rename(to / path.name)
    assert "of the 8 images of" in measured_again(run)


def test_other_images_are_free(run: Path, photos: Path, tmp_path: Path) -> None:
    others = tmp_path / "others"
    for number in range(8):
        write_picture(others / f"class{number % 2}" / f"other{number}.png", seed=number)
    found = measured_again(run, f"data.path={others}")
    assert "kNN" in found
    assert "have the name" not in found
    (run / FILE).unlink()
    write_picture(photos / "class1" / "new.png", seed=5)
    assert "kNN" in measured_again(run), "a run of before there was this file"


def test_copies_at_another_place_are_measured_and_told(run: Path, photos: Path) -> None:
    copies = Path(shutil.copytree(photos, photos.parent / "copies"))
    (copies / "class0" / "0.png").unlink()
    found = contune("eval", run, f"data.path={copies}")
    assert "kNN" in found.out
    assert "have the name, class and size of images that" in " ".join((found.out + found.err).split())


def test_rows_of_another_parquet_cannot_be_told(tmp_path: Path) -> None:
    def rows(num: int) -> None:
        pictures = write_flat(tmp_path / "pictures", num).glob("*.png")
        images = [{"bytes": path.read_bytes()} for path in pictures]
        pq.write_table(pa.table({"image": images, "label": [0, 1] * (num // 2)}), tmp_path / "x.parquet")

    rows(24)
    settings = (f"data.path={tmp_path / 'x.parquet'}", "optim.epochs=0", "model.encoder=resnet-mini")
    train(tmp_path / "run", "images", *settings, "data.image_size=8", "optim.batch_images=4", "eval.linear=fast")
    assert "kNN" in measured_again(tmp_path / "run")
    rows(26)
    assert "another number of rows than when" in contune("eval", tmp_path / "run").err


def test_a_report_shows_nothing_of_images_that_were_not_measured(run: Path, photos: Path) -> None:
    assert contune("report", run).code == 0
    whole = (run / "report.html").read_text()
    write_picture(photos / "class1" / "new.png", seed=5)
    refused = contune("report", run)
    assert refused.code == 2
    assert "have changed since, and what is shown of them would not belong to its numbers" in refused.err
    assert (run / "report.html").read_text() == whole


def test_a_list_that_is_damaged_is_none(run: Path) -> None:
    listed = run / "trained_on.npz"
    listed.write_bytes(listed.read_bytes()[:-30])
    assert contune("eval", run).code == 0


def test_a_run_does_not_go_on_with_others(photos: Path, tmp_path: Path) -> None:
    arguments = (
        "train",
        "images",
        f"data.path={photos}",
        "optim.epochs=1",
        *SMALL,
        "run.report=false",
        "--out",
        tmp_path / "run",
    )
    assert contune(*arguments).code == 0
    (tmp_path / "run" / "result.json").unlink()
    (photos / "class0" / "0.png").unlink()
    refused = contune(*arguments)
    assert refused.code == 2
    assert "has changed since the run in" in refused.err
    write_picture(photos / "class0" / "0.png", seed=0)
    assert contune(*arguments).code == 0
