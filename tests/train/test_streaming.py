"""Training on images that stream: the crops of a step are the same whoever cuts them, and whenever."""

from pathlib import Path

import pytest
import torch
from command_line import PLAIN, contune, read_lines, train
from pictures import write_picture
from safetensors.torch import load_file
from test_two_processes import in_two

from contune.train.log import MetricsLog

STEPS = 3 * 4


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for number in range(40):
        path = folder / f"class{number % 2}" / f"{number}.png"
        write_picture(path, seed=number, size=12 + number % 5, tint=number % 2 * 100)
    return folder


def run(photos: Path) -> tuple[str, ...]:
    return (
        "images", f"data.path={photos}", "data.resident_gib=0", "data.image_size=8", "model.encoder=resnet-mini",
        "augment.policy=simaugment", "optim.batch_images=8", "optim.epochs=3", "optim.lr=1e-3", "model.norm=group",
        "run.log_every=1", "run.checkpoint_seconds=0", "eval.linear=none",
    )  # fmt: skip


@pytest.fixture(scope="module")
def whole(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run, its images decoded by the main process."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    train(folder, *run(photos), "data.workers=0")
    assert [line["step"] for line in read_lines(folder)] == list(range(1, STEPS + 1))
    return folder


def assert_same_end(folder: Path, whole: Path) -> None:
    assert read_lines(folder) == read_lines(whole)
    weights, expected = (load_file(path / "encoder.safetensors") for path in (folder, whole))
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


def test_stopped_in_mid_epoch_and_gone_on_with_by_workers(photos: Path, whole: Path, tmp_path: Path) -> None:
    write = MetricsLog.write

    def write_until_6(self: MetricsLog, step: int, values: dict[str, float]) -> None:
        if step == 6:
            raise KeyboardInterrupt
        write(self, step, values)

    folder = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MetricsLog, "write", write_until_6)
        assert contune("train", *run(photos), "data.workers=1", *PLAIN, "--out", folder).code == 130
    assert len(read_lines(folder)) == 5
    train(folder, *run(photos), "data.workers=2")
    assert_same_end(folder, whole)


@pytest.mark.slow
def test_two_processes_see_the_crops_of_one(photos: Path, whole: Path, tmp_path: Path) -> None:
    code, printed = in_two("train", *run(photos), "data.workers=0", *PLAIN, "--out", tmp_path / "run")
    assert code == 0, printed
    for line, other in zip(read_lines(whole), read_lines(tmp_path / "run"), strict=True):
        # What each process measures on its own views is another number.
        for lines in (line, other):
            for name in ("feature_std", "effective_rank", "uniformity"):
                del lines[name]
        assert other == pytest.approx(line, rel=1e-5, abs=1e-5), line["step"]


def test_another_place_for_crops_is_another_run(photos: Path, whole: Path) -> None:
    outcome = contune("train", *run(photos), "data.resident_gib=1", *PLAIN, "--out", whole)
    assert outcome.code == 2
    assert "holds a run with another data.resident_gib" in outcome.err


def test_crops_of_pictures_that_have_the_size_already_are_the_resident_ones_but_for_rounding(tmp_path: Path) -> None:
    for number in range(16):
        write_picture(tmp_path / "photos" / f"{number}.png", seed=number, size=8, tint=number % 2 * 100)
    arguments = (*run(tmp_path / "photos"), "method.name=simclr", "data.test_fraction=0", "optim.epochs=1")
    for name, gib in (("streamed", 0), ("resident", 1)):
        train(tmp_path / name, *arguments, f"data.resident_gib={gib}", "data.workers=0")
    streamed, resident = (read_lines(tmp_path / name) for name in ("streamed", "resident"))
    assert [line["loss"] for line in streamed] == pytest.approx([line["loss"] for line in resident], rel=2e-3)


def test_the_papers_probe_takes_cropped_views_too(photos: Path, tmp_path: Path) -> None:
    arguments = (*run(photos), "eval.linear=paper", "eval.linear_epochs=2", "optim.epochs=1")
    results = [train(tmp_path / str(workers), *arguments, f"data.workers={workers}") for workers in (0, 1)]
    assert results[0]["linear_top1"] == results[1]["linear_top1"]
    assert "augmented by simaugment" in results[0]["linear_protocol"]
