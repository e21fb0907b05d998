"""Batches by index: resident or streamed, with workers or without, they are the same."""

import os
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import pytest
import torch
from pictures import write_picture
from torch import Tensor

from contune.data import ImageSet, TensorImages, load_dataset, stream
from contune.data.augment import Augmenter, Crops, build_policy, crops_of, slice_params
from contune.data.loader import Batch, Loader, ResidentLoader, StreamLoader, build_loader, in_order
from contune.data.seeding import mixed_generator
from contune.data.stream import HostBatch, default_workers, to_device
from contune.errors import UserError

CPU = torch.device("cpu")
ORDER = [torch.tensor([4, 0, 2]), torch.tensor([5, 1]), torch.tensor([3])]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(6):
        write_picture(tmp_path / f"class{number % 2}" / f"{number}.png", seed=number, size=10)
    return tmp_path


def open_loader(folder: Path, resident_gib: float, workers: int = 0) -> Loader:
    dataset = load_dataset(str(folder), test_fraction=0.0)
    return build_loader(
        dataset.train, size=8, channels=3, device=CPU, resident_gib=resident_gib, workers=workers
    )  # fmt: skip


def batches(loader: Loader) -> list[Batch]:
    return list(loader.batches(ORDER))


def assert_same(ours: list[Batch], theirs: list[Batch]) -> None:
    for (images, labels), (other_images, other_labels) in zip(ours, theirs, strict=True):
        assert images.dtype == torch.uint8
        assert torch.equal(images, other_images)
        assert labels is not None
        assert other_labels is not None
        assert torch.equal(labels, other_labels)


@pytest.mark.parametrize("workers", [0, 2])
def test_streamed_batches_are_the_resident_ones(folder: Path, workers: int) -> None:
    resident, streamed = open_loader(folder, 1.0), open_loader(folder, 0.0, workers)
    assert isinstance(resident, ResidentLoader)
    assert isinstance(streamed, StreamLoader)
    assert len(resident) == len(streamed) == 6
    assert_same(batches(streamed), batches(resident))


def test_a_batch_holds_the_images_it_was_asked_for() -> None:
    images = torch.arange(6, dtype=torch.uint8)[:, None, None, None].expand(6, 1, 8, 8).contiguous()
    image_set = ImageSet(images=TensorImages(images), labels=torch.arange(6) * 10, names=[str(n) for n in range(6)])
    for resident_gib in (0.0, 1.0):
        loader = build_loader(image_set, size=8, channels=1, device=CPU, resident_gib=resident_gib, workers=0)
        for indices_B, (images_BCHW, labels_B) in zip(ORDER, loader.batches(ORDER), strict=True):
            assert labels_B is not None
            assert images_BCHW[:, 0, 3, 3].tolist() == indices_B.tolist()
            assert (labels_B // 10).tolist() == indices_B.tolist()


def test_the_limit_is_the_size_in_memory() -> None:
    image_set = ImageSet(
        images=TensorImages(torch.zeros(4, 1, 8, 8, dtype=torch.uint8)), labels=None, names=list("abcd")
    )
    exact = 4 * 8 * 8 / 2**30
    for resident_gib, kind in ((exact, ResidentLoader), (exact * 0.99, StreamLoader)):
        loader = build_loader(image_set, size=8, channels=1, device=CPU, resident_gib=resident_gib, workers=0)
        assert isinstance(loader, kind)
        (batch,) = loader.batches([torch.tensor([1, 2])])
        assert batch[1] is None
    assert list(ResidentLoader(torch.zeros(4, 1, 8, 8), None).batches([])) == []


@pytest.mark.parametrize("workers", [0, 1])
def test_an_image_that_cannot_be_read_is_one_sentence_even_from_a_worker(folder: Path, workers: int) -> None:
    loader = open_loader(folder, 0.0, workers)
    (folder / "class0" / "2.png").write_bytes(b"no image")
    with pytest.raises(UserError) as caught:
        batches(loader)
    assert str(caught.value).endswith("2.png' is not an image in a known format; remove it or save it again")
    assert "\n" not in str(caught.value)


def test_in_order_is_everything_once() -> None:
    assert [part.tolist() for part in in_order(5, 2)] == [[0, 1], [2, 3], [4]]


def draw_crops(steps: list[Tensor], first: int = 0, start: int = 0) -> Iterator[Crops]:
    """Two views by one policy and a third by another, drawn for four images, of which these are the ones from start."""
    strong, weak = (build_policy(name, image_size=8, channels=3) for name in ("simaugment", "crop-flip"))
    augmenter = Augmenter([strong, strong, weak], (0, 0, 0), (1, 1, 1))
    for step, indices_B in enumerate(steps, start=first):
        drawn = augmenter.draw(4, mixed_generator(7, step))
        yield crops_of(augmenter.policies, [slice_params(view, start, start + len(indices_B)) for view in drawn])


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for number in range(6):
        write_picture(folder / f"class{number % 2}" / f"{number}.png", seed=number, size=20 + 3 * number)
    return folder


STEPS = [torch.tensor(rows) for rows in ([4, 0, 2, 1], [5, 1, 3, 3], [0, 1, 2, 3], [2, 5, 4, 0])]


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
            height, width = images.images.decode(index, None, 3).shape[1:]
            assert height == width
            assert height > 8
            pieces = images.images.pieces(index, partial(crops.pieces, sample), 8, 3)
            expected = torch.from_numpy(pieces).permute(0, 3, 1, 2)
            assert torch.equal(views_VBCHW[:, sample], expected)


@pytest.mark.parametrize("workers", [1, 2])
def test_any_number_of_workers_cuts_the_same(photos: Path, cropped: list[Batch], workers: int) -> None:
    assert_same(list(open_loader(photos, 0.0, workers).batches(STEPS, draw_crops(STEPS))), cropped)


@pytest.mark.parametrize("workers", [0, 2])
def test_from_the_middle_on_the_crops_are_those_of_a_whole_run(
    photos: Path, cropped: list[Batch], workers: int
) -> None:
    rest = open_loader(photos, 0.0, workers).batches(STEPS[2:], draw_crops(STEPS[2:], first=2))
    assert_same(list(rest), cropped[2:])


def test_two_ranks_have_the_halves_of_one(photos: Path, cropped: list[Batch]) -> None:
    for start in (0, 2):
        own = [indices_B[start : start + 2] for indices_B in STEPS]
        part = list(open_loader(photos, 0.0).batches(own, draw_crops(own, start=start)))
        whole = [
            (views[:, start : start + 2], None if labels is None else labels[start : start + 2])
            for views, labels in cropped
        ]
        assert_same(part, whole)


def test_a_resident_loader_leaves_crops_to_the_device(photos: Path) -> None:
    loader = open_loader(photos, 1.0)
    assert_same(list(loader.batches(STEPS, draw_crops(STEPS))), list(loader.batches(STEPS)))


@pytest.mark.parametrize("resident_gib", [0.0, 1.0])
def test_indices_may_go_on_for_ever_and_are_read_a_little_ahead(photos: Path, resident_gib: float) -> None:
    asked = 0

    def forever() -> Iterator[Tensor]:
        nonlocal asked
        while True:
            asked += 1
            yield torch.tensor([asked % 6])

    found = list(islice(open_loader(photos, resident_gib).batches(forever()), 20))
    assert len(found) == 20
    assert 20 <= asked <= 512


def test_a_bad_image_is_one_sentence_from_a_worker_that_cuts(photos: Path, tmp_path: Path) -> None:
    for number in range(6):
        write_picture(tmp_path / f"{number}.png", seed=number, size=20)
    loader = open_loader(tmp_path, 0.0, workers=1)
    content = (tmp_path / "3.png").read_bytes()
    (tmp_path / "3.png").write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=r"3\.png' is damaged .*; remove it or save it again$"):
        list(loader.batches(STEPS, draw_crops(STEPS)))


def test_workers_fit_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(12)), raising=False)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert default_workers() == 12
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert default_workers() == 1
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "24")
    assert default_workers() == 1
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(256)))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert default_workers() == stream.MOST_WORKERS
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert default_workers() == 1
    image_set = ImageSet(
        images=TensorImages(torch.zeros(4, 1, 8, 8, dtype=torch.uint8)), labels=None, names=list("abcd")
    )
    loader = build_loader(image_set, size=8, channels=1, device=CPU, resident_gib=0.0)
    assert isinstance(loader, StreamLoader)
    assert loader.workers == 1


@pytest.mark.gpu
def test_batches_copied_ahead_arrive_whole_and_in_order() -> None:
    """Work on the device is slow and the copies are quick, so one that came too early would be seen."""
    device = torch.device("cuda")
    host = [
        HostBatch(torch.full((64, 32, 32, 3), number, dtype=torch.uint8).pin_memory(), torch.full((64,), number))
        for number in range(20)
    ]
    sums = []
    weights = torch.randn(4096, 4096, device=device)
    for images_BCHW, labels_B in to_device(host, device):
        assert labels_B is not None
        for _ in range(10):
            weights = weights @ weights / weights.norm()
        sums.append(images_BCHW.float().mean() * 100 + labels_B.float().mean())
    assert torch.stack(sums).tolist() == pytest.approx([101.0 * number for number in range(20)])


@pytest.mark.gpu
def test_cropped_batches_on_a_gpu_are_those_on_the_host(photos: Path, cropped: list[Batch]) -> None:
    images = load_dataset(str(photos), test_fraction=0.0).train
    loader = StreamLoader(images, size=8, channels=3, device=torch.device("cuda"), workers=2)
    found = list(loader.batches(STEPS, draw_crops(STEPS)))
    assert_same([(views.cpu(), None if labels is None else labels.cpu()) for views, labels in found], cropped)
