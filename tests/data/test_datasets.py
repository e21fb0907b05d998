"""Data sets by name or path: what is held out, measured and skipped, and the named sets."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import PLAIN, contune, read_json, read_lines
from hypothesis import given
from hypothesis import strategies as st
from pictures import DEAD_LINK, WAYS, labels_of, png, random_pixels, write_broken, write_png
from PIL import Image
from sklearn.datasets import load_digits

from contune.data.datasets import DATASETS, holdout, load_dataset, long_tail, moments
from contune.errors import UserError


def test_names_and_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(DATASETS) == ["digits", "cifar10", "cifar100", "fmnist", "imagenet100"]
    write_png(tmp_path / "a" / "1.png", random_pixels(0))
    (tmp_path / "photos.zip").write_bytes(b"PK")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, options, word in (
        ("cifar1oo", {}, "did you mean .*cifar100"),
        ("/no/such/photos", {}, "no file or folder"),
        ("fotos/", {}, "relative to /"),
        (str(tmp_path / "photos.zip"), {}, "unpack it"),
        (str(tmp_path / "loop"), {}, "loop"),
        ("digits", {"classes": "list.txt"}, "class list"),
        (str(tmp_path), {"label_column": "label"}, "label column"),
    ):
        with pytest.raises(UserError, match=word):
            load_dataset(name, **options)  # type: ignore[arg-type]  # the values are all text
    monkeypatch.chdir(tmp_path)  # a name takes precedence over a folder
    write_png(tmp_path / "digits" / "a" / "1.png", random_pixels(0))
    assert load_dataset("digits").class_names == tuple("0123456789")
    assert load_dataset("./digits").class_names == ("a",)


def test_a_long_tail_has_the_profile_of_cui_et_al() -> None:
    """CIFAR-100-LT with imbalance 100 has 10,847 images, 500 of the first class and 5 of the last."""
    labels_N = torch.arange(100).repeat(500)
    kept = long_tail(labels_N, 100)
    counts = labels_N[kept].bincount()
    assert counts.tolist() == [int(500 * 0.01 ** (c / 99)) for c in range(100)]
    assert (len(kept), int(counts[0]), int(counts[-1])) == (10_847, 500, 5)
    assert torch.equal(kept, long_tail(labels_N, 100)), "the same images for every run"
    assert torch.equal(kept, kept.unique()), "in their order"
    digits = load_dataset("digits", imbalance=20)
    assert digits.train.labels is not None
    assert digits.train.labels.bincount().tolist() == [90, 65, 46, 33, 23, 17, 12, 8, 5, 4]
    assert digits.test is not None
    assert len(digits.test) == 899, "the test split stays"


@given(st.lists(st.integers(0, 6), min_size=1, max_size=80), st.floats(0, 0.99), st.integers(-3, 2**40))
def test_holdout_is_a_stratified_partition(labels: list[int], fraction: float, seed: int) -> None:
    y = torch.tensor(labels)
    keep, held = holdout(y, len(y), fraction, seed)
    assert sorted(keep.tolist() + held.tolist()) == list(range(len(y)))
    assert keep.tolist() == sorted(keep.tolist())
    assert held.tolist() == sorted(held.tolist())
    for value in y.unique():
        num, num_held = int((y == value).sum()), int((y[held] == value).sum())
        assert num_held <= num - 1
        assert num_held >= min(int(num * fraction), num - 1)
        assert num_held <= int(num * fraction) + 1
    assert len(held) <= round(len(y) * fraction)


def test_holdout_of_few_or_unlabelled_images() -> None:
    keep, held = holdout(torch.tensor([0, 1, 2]), 3, 0.9, 0)
    assert (len(keep), len(held)) == (3, 0)
    keep, held = holdout(None, 10, 0.3, 0)
    assert (len(keep), len(held)) == (7, 3)
    assert len(holdout(None, 10, 0.99, 0)[0]) == 1
    # A run resumed elsewhere must hold out the same images.
    assert holdout(torch.arange(3).repeat(4), 12, 0.25, 0)[1].tolist() == [2, 6, 7]


def test_moments_are_per_channel_over_all_pixels() -> None:
    x_NCHW = np.stack([random_pixels(seed) // np.array([1, 2, 4])[:, None, None] for seed in range(5)])
    mean, std = moments(x_NCHW.astype(np.uint8))
    scaled = x_NCHW.astype(np.uint8) / 255
    assert mean == pytest.approx(scaled.mean((0, 2, 3)), abs=5e-5)
    assert std == pytest.approx(scaled.std((0, 2, 3)), abs=5e-5)
    # A constant set can still be divided by its deviation.
    assert moments(np.full((2, 1, 4, 4), 51, dtype=np.uint8)) == ((0.2,), (round(1 / 255, 4),))


def test_digits_are_scikit_learns_in_their_order() -> None:
    dataset = load_dataset("digits")
    bunch = load_digits()
    assert dataset.test is not None
    assert (len(dataset.train), len(dataset.test)) == (898, 899)
    x_NHW = torch.cat([dataset.train.resident(8, 1), dataset.test.resident(8, 1)])[:, 0].numpy()
    assert x_NHW.dtype == np.uint8
    assert x_NHW.tolist() == [[[round(v * 255 / 16) for v in row] for row in image] for image in bunch.images]
    assert labels_of(dataset.train) + labels_of(dataset.test) == bunch.target.tolist()
    assert dataset.test.names[0] == "digits#898"
    assert dataset.class_names == tuple("0123456789")
    assert (dataset.mean, dataset.std) == moments(dataset.train.resident(8, 1).numpy())


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_fashion(folder: Path) -> dict[str, np.ndarray]:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    arrays = {}
    for prefix, num in (("train", 5), ("t10k", 3)):
        arrays[f"{prefix}-images-idx3-ubyte"] = rng.integers(0, 256, (num, 28, 28), dtype=np.uint8)
        arrays[f"{prefix}-labels-idx1-ubyte"] = rng.integers(0, 10, num, dtype=np.uint8)
    for name, array in arrays.items():
        (folder / name).write_bytes(idx(array))
    return arrays


@pytest.mark.parametrize("root", ["", "FashionMNIST"])
def test_idx_files_come_back_exactly(tmp_path: Path, root: str) -> None:
    arrays = write_fashion(tmp_path / "FashionMNIST" / "raw")
    dataset = load_dataset("fmnist", root=str(tmp_path / root))
    assert dataset.test is not None
    for split, prefix in ((dataset.train, "train"), (dataset.test, "t10k")):
        assert np.array_equal(split.resident(28, 1)[:, 0].numpy(), arrays[f"{prefix}-images-idx3-ubyte"])
        assert labels_of(split) == arrays[f"{prefix}-labels-idx1-ubyte"].tolist()
    assert (dataset.image_size, dataset.channels, dataset.mean, dataset.std) == (28, 1, (0.5,), (0.5,))
    assert dataset.class_names[9] == "Ankle boot"


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("train-images-idx3-ubyte", b""),
        ("train-images-idx3-ubyte", b"\0\0\x0d\x01" + bytes(8)),
        ("train-images-idx3-ubyte", idx(np.zeros((5, 28, 28), dtype=np.uint8))[:-1]),
        ("train-images-idx3-ubyte", idx(np.zeros((5, 28, 28), dtype=np.uint8))[:9]),
        ("train-images-idx3-ubyte", idx(np.zeros((4, 28, 28), dtype=np.uint8))),
    ],
)
def test_damaged_idx_files(tmp_path: Path, file: str, content: bytes) -> None:
    path = tmp_path / "FashionMNIST" / "raw" / file
    write_fashion(path.parent)
    path.write_bytes(content)
    for _ in range(2):
        with pytest.raises(UserError, match="fetch them again"):
            load_dataset("fmnist", root=str(tmp_path))
        path.unlink(missing_ok=True)


def write_imagenet(root: Path, num_classes: int) -> list[str]:
    wnids = [f"n{number:08}" for number in range(num_classes)]
    content = png(random_pixels(0, 4, 4))
    for split, count in (("train", 2), ("val", 1)):
        for wnid in wnids:
            (root / split / wnid).mkdir(parents=True)
            for number in range(count):
                (root / split / wnid / f"{wnid}_{number}.png").write_bytes(content)
    return wnids


def test_imagenet100(tmp_path: Path) -> None:
    wnids = write_imagenet(tmp_path, 104)
    with pytest.raises(UserError, match="104 classes"):
        load_dataset("imagenet100", root=str(tmp_path))
    chosen, listed = wnids[3:103], tmp_path / "classes.txt"
    listed.write_text("# a hundred\n\n" + "\n".join(f"{wnid} a description" for wnid in reversed(chosen)) + " # last\n")
    dataset = load_dataset("imagenet100", root=str(tmp_path), classes=str(listed))
    assert dataset.test is not None
    assert dataset.class_names == tuple(chosen)
    assert labels_of(dataset.train) == [label for label in range(100) for _ in range(2)]
    assert (len(dataset.test), dataset.val, dataset.image_size, dataset.channels) == (100, None, 224, 3)
    assert (dataset.mean, dataset.std) == ((0.5,) * 3, (0.25,) * 3)
    for content, word in (("n1\n" * 100, "has 1 classes"), ("\n".join([*chosen[:99], "n9"]), "n9")):
        listed.write_text(content)
        with pytest.raises(UserError, match=word):
            load_dataset("imagenet100", root=str(tmp_path), classes=str(listed))
    for classes, root, word in (("absent", tmp_path, "absent"), (None, tmp_path / "train", "was not found")):
        with pytest.raises(UserError, match=word):
            load_dataset("imagenet100", root=str(root), classes=classes)


# Broken files: real images of which one in twenty is broken in one of ten ways.

NUM, EVERY = 200, 20
TRAINING = (
    "images",
    "data.image_size=8",
    "data.channels=1",
    "model.encoder=resnet-mini",
    "augment.policy=digits",
    "optim.batch_images=32",
    "optim.epochs=1",
    "run.log_every=1",
    *PLAIN,
    "eval.linear=none",
)
Places = tuple[Path, Path, dict[str, str]]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    """The folder, the same without its broken files, and how the reason of each of those begins."""
    folder = tmp_path_factory.mktemp("photos")
    expected: dict[str, str] = {}
    ways = [*WAYS, DEAD_LINK]
    found = load_digits()
    for number, (pixels, label) in enumerate(zip(found.images[:NUM], found.target[:NUM], strict=True)):
        image = Image.fromarray((pixels * 15).astype("uint8")).resize((24, 24), Image.Resampling.BICUBIC)
        for place in ("broken", "whole"):
            (folder / place / str(label)).mkdir(parents=True, exist_ok=True)
        path = folder / "broken" / str(label) / f"{number:04}.png"
        if number % EVERY == 7:
            expected[str(path)] = write_broken(path, image, ways[number // EVERY % len(ways)])
        else:
            image.save(path)
            image.save(folder / "whole" / str(label) / path.name)
    return folder / "broken", folder / "whole", expected


@pytest.mark.parametrize("streams", [False, True])
def test_a_run_that_skips_is_the_run_without_them(places: Places, tmp_path: Path, streams: bool) -> None:
    folder, whole, expected = places
    settings = (*TRAINING, *(("data.resident_gib=0", "data.workers=0") if streams else ()))
    outcome = contune("train", *settings, f"data.path={folder}", "data.broken=skip", "--out", tmp_path / "skip")
    assert outcome.code == 0, outcome.err
    skipped = json.loads((tmp_path / "skip" / "skipped.json").read_text())
    listed = {broken["name"]: broken["reason"] for broken in skipped}
    assert listed.keys() == expected.keys()
    assert all(reason.startswith(expected[name]) for name, reason in listed.items())
    assert read_json(tmp_path / "skip" / "result.json")["skipped"] == len(expected)
    assert contune("train", *settings, f"data.path={whole}", "--out", tmp_path / "plain").code == 0
    assert read_lines(tmp_path / "skip") == read_lines(tmp_path / "plain")
    assert not (tmp_path / "plain" / "skipped.json").exists()


def test_a_run_that_stops_names_the_setting_that_skips(places: Places, tmp_path: Path) -> None:
    outcome = contune("train", *TRAINING, f"data.path={places[0]}", "--out", tmp_path / "run")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "data.broken=skip" in outcome.err
    write_png(tmp_path / "set" / "train" / "a" / "1.png", random_pixels(0))
    (tmp_path / "set" / "test" / "a").mkdir(parents=True)
    (tmp_path / "set" / "test" / "a" / "3.png").write_bytes(b"")
    with pytest.raises(UserError, match="no test image"):
        load_dataset(str(tmp_path / "set"), broken="skip")
