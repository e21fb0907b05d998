"""Batches by index: resident or streamed, with workers or without, they are the same."""

from pathlib import Path

import pytest
import torch
from pictures import write_picture

from contune.data import ImageSet, TensorImages, load_dataset
from contune.data.loader import Batch, Loader, ResidentLoader, StreamLoader, build_loader, in_order
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
