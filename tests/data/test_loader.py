"""Batches by index: resident or streamed, by any number of workers, from any step on, they are the same."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from command_line import PLAIN, contune, read_lines, train
from pictures import write_picture
from safetensors.torch import load_file
from torch import Tensor

from contune.data import load_dataset
from contune.data.augment import Augmenter, build_policy
from contune.data.augment.simaugment import Crops
from contune.data.images import Batch, Loader, ResidentLoader, StreamLoader, build_loader
from contune.data.sampler import mixed_generator
from contune.errors import UserError
from contune.models import EncoderSpec
from contune.training.log import MetricsLog

CPU = torch.device("cpu")
STEPS = [torch.tensor(rows) for rows in ([4, 0, 2, 1], [5, 1, 3, 3], [0, 1, 2, 3], [2, 5, 4, 0])]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for number in range(6):
        write_picture(folder / f"class{number % 2}" / f"{number}.png", seed=number, size=20 + 3 * number)
    return folder


def open_loader(folder: Path, resident_gib: float, workers: int = 0) -> Loader:
    images = load_dataset(str(folder), test_fraction=0.0).train
    spec = EncoderSpec(encoder="", stem="", norm="", image_size=8, channels=3, mean=(0,) * 3, std=(1,) * 3)
    return build_loader(images, spec, CPU, resident_gib=resident_gib, workers=workers)


def assert_same(ours: list[Batch], theirs: list[Batch]) -> None:
    for (images, labels), (other_images, other_labels) in zip(ours, theirs, strict=True):
        assert images.dtype == torch.uint8
        assert torch.equal(images, other_images)
        assert labels is not None
        assert other_labels is not None
        assert torch.equal(labels, other_labels)


@pytest.mark.parametrize("workers", [0, 2])
def test_streamed_batches_are_the_resident_ones(photos: Path, workers: int) -> None:
    resident, streamed = open_loader(photos, 1.0), open_loader(photos, 0.0, workers)
    assert isinstance(resident, ResidentLoader)
    assert isinstance(streamed, StreamLoader)
    assert len(resident) == len(streamed) == 6
    assert_same(list(streamed.batches(STEPS)), list(resident.batches(STEPS)))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_broken_image_is_a_one_line_error_even_from_a_worker(tmp_path: Path, workers: int) -> None:
    for number in range(6):
        write_picture(tmp_path / f"{number}.png", seed=number, size=20)
    loader = open_loader(tmp_path, 0.0, workers)
    (tmp_path / "3.png").write_bytes((tmp_path / "3.png").read_bytes()[:300])
    for crops in (None, draw_crops(STEPS)):
        with pytest.raises(UserError, match=r"3\.png' is damaged") as caught:
            list(loader.batches(STEPS, crops))
        assert "\n" not in str(caught.value)


def draw_crops(steps: list[Tensor], first: int = 0, start: int = 0) -> Iterator[Crops]:
    """Two views by one policy and a third by another, drawn for four images, of which these are the ones from start."""
    strong, weak = (build_policy(name, image_size=8, channels=3) for name in ("simaugment", "crop-flip"))
    augmenter = Augmenter([strong, strong, weak], (0, 0, 0), (1, 1, 1))
    for step, indices_B in enumerate(steps, start=first):
        rows = slice(start, start + len(indices_B))
        yield augmenter.crops(augmenter.draw(4, mixed_generator(7, step), rows))


@pytest.fixture(scope="module")
def cropped(photos: Path) -> list[Batch]:
    return list(open_loader(photos, 0.0).batches(STEPS, draw_crops(STEPS)))


def test_cropped_views_are_cut_out_of_the_whole_pictures(photos: Path, cropped: list[Batch]) -> None:
    images = load_dataset(str(photos), test_fraction=0.0).train
    assert images.labels is not None
    for indices_B, crops, (views_VBCHW, labels_B) in zip(STEPS, draw_crops(STEPS), cropped, strict=True):
        assert views_VBCHW.shape == (3, 4, 3, 8, 8)
        assert views_VBCHW.is_contiguous()
        assert labels_B is not None
        assert torch.equal(labels_B, images.labels[indices_B])
        for sample, index in enumerate(indices_B.tolist()):
            height, width = images.decode(index, None, 3).shape[1:]
            assert height == width > 8
            pieces = images.pieces(index, partial(crops.pieces, sample), 8, 3)
            expected = torch.from_numpy(pieces).permute(0, 3, 1, 2)
            assert torch.equal(views_VBCHW[:, sample], expected)


@pytest.mark.parametrize("workers", [0, 2])
def test_crops_do_not_depend_on_workers_first_step_or_rank(photos: Path, cropped: list[Batch], workers: int) -> None:
    loader = open_loader(photos, 0.0, workers)
    assert_same(list(loader.batches(STEPS, draw_crops(STEPS))), cropped)
    assert_same(list(loader.batches(STEPS[2:], draw_crops(STEPS[2:], first=2))), cropped[2:])
    own = [indices_B[2:] for indices_B in STEPS]
    second = [(views[:, 2:], None if labels is None else labels[2:]) for views, labels in cropped]
    assert_same(list(loader.batches(own, draw_crops(own, start=2))), second)


def run(photos: Path) -> tuple[str, ...]:
    return (
        "images",
        f"data.path={photos}",
        "data.resident_gib=0",
        "data.image_size=8",
        "model.encoder=resnet-mini",
        "augment.policy=simaugment",
        "optim.batch_images=2",
        "optim.epochs=3",
        "optim.lr=1e-3",
        "model.norm=group",
        "data.test_fraction=0",
        "run.log_every=1",
        "run.checkpoint_seconds=0",
        "eval.linear=none",
    )


def test_a_streamed_run_that_is_stopped_resumes_exactly(photos: Path, tmp_path: Path) -> None:
    write, stop_at = MetricsLog.write, 5

    def write_until(self: MetricsLog, step: int, values: dict[str, float]) -> None:
        if step == stop_at:
            raise KeyboardInterrupt
        write(self, step, values)

    whole, folder = tmp_path / "whole", tmp_path / "run"
    train(whole, *run(photos), "data.workers=0")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MetricsLog, "write", write_until)
        assert contune("train", *run(photos), "data.workers=1", *PLAIN, "--out", folder).code == 130
    assert len(read_lines(folder)) == stop_at - 1
    train(folder, *run(photos), "data.workers=2")
    assert read_lines(folder) == read_lines(whole)
    weights, expected = (load_file(path / "encoder.safetensors") for path in (folder, whole))
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    outcome = contune("train", *run(photos), "data.resident_gib=1", *PLAIN, "--out", whole)
    assert outcome.code == 2
    assert "data.resident_gib" in outcome.err
