"""A folder of 1,000 real images of which one in twenty is broken, in ten ways: found, trained around, listed."""

import json
from pathlib import Path

import pytest
from command_line import contune, read_json, read_lines, start
from damage import WAYS
from image_files import random_pixels, write_png
from PIL import Image
from sklearn.datasets import load_digits

from contune.data import load_dataset
from contune.errors import UserError

NUM, EVERY = 1000, 20

TRAINING = ("images", "data.image_size=8", "data.channels=1", "model.encoder=resnet-mini", "augment.policy=digits",
            "optim.batch_images=64", "optim.epochs=1", "run.log_every=1", "run.tensorboard=false",
            "eval.linear=none")  # fmt: skip


def digits() -> list[tuple[Image.Image, int]]:
    found = load_digits()
    return [
        (Image.fromarray((pixels * 15).astype("uint8")).resize((24, 24), Image.Resampling.BICUBIC), int(label))
        for pixels, label in zip(found.images[:NUM], found.target[:NUM], strict=True)
    ]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[str, str]]:
    """The folder, the same without its broken files, and how the reason of each of those begins."""
    folder = tmp_path_factory.mktemp("photos")
    some_broken, whole = folder / "some_broken", folder / "whole"
    expected: dict[str, str] = {}
    ways = list(WAYS.values())
    for number, (image, label) in enumerate(digits()):
        for place in (some_broken, whole):
            (place / str(label)).mkdir(parents=True, exist_ok=True)
        path = some_broken / str(label) / f"{number:04}.png"
        if number % EVERY == 7:
            damage, reason = ways[number // EVERY % len(ways)]
            damage(path, image)
            expected[str(path)] = reason
        else:
            image.save(path)
            image.save(whole / str(label) / path.name)
    return some_broken, whole, expected


def assert_listed(listed: list[dict[str, str]], expected: dict[str, str]) -> None:
    assert {broken["name"] for broken in listed} == set(expected)
    for broken in listed:
        assert broken["reason"].startswith(expected[broken["name"]]), broken


def test_check_finds_every_one(places: tuple[Path, Path, dict[str, str]], tmp_path: Path) -> None:
    folder, whole, expected = places
    assert len(expected) == NUM // EVERY
    outcome = contune("check", folder, "--out", tmp_path / "check.json")
    assert outcome.code == 1
    assert "✗ 50 of 1,000 images are broken" in outcome.out
    assert "and 30 more" in outcome.out
    found = read_json(tmp_path / "check.json")
    assert_listed(found["splits"][0]["broken"], expected)
    assert sum(found["splits"][0]["classes"].values()) == NUM - len(expected)
    healthy = contune("check", whole)
    assert healthy.code == 0
    assert "✓ all 950 images decode" in healthy.out


def test_stop_is_a_sentence_with_the_way_around(places: tuple[Path, Path, dict[str, str]], tmp_path: Path) -> None:
    outcome = contune("train", *TRAINING, f"data.path={places[0]}", "--out", tmp_path / "run")
    assert outcome.code == 2
    assert outcome.err.count("\n") == 1
    assert outcome.err.endswith("; data.broken=skip leaves such files out\n")


def skipping(settings: tuple[str, ...], places: tuple[Path, Path, dict[str, str]], out: Path) -> Path:
    """A run on the folder that skips, which must be the run on the whole files alone."""
    folder, whole, expected = places
    outcome = contune("train", *settings, f"data.path={folder}", "data.broken=skip", "--out", out / "skip")
    assert outcome.code == 0, outcome.err
    assert "50 broken images are left out (skipped.json)" in outcome.out
    assert_listed(json.loads((out / "skip" / "skipped.json").read_text()), expected)
    assert read_json(out / "skip" / "result.json")["skipped"] == len(expected)
    plain = contune("train", *settings, f"data.path={whole}", "run.report=false", "--out", out / "plain")
    assert plain.code == 0, plain.err
    assert read_lines(out / "skip") == read_lines(out / "plain")
    assert not (out / "plain" / "skipped.json").exists()
    return out / "skip"


def test_skip_is_the_run_without_them(places: tuple[Path, Path, dict[str, str]], tmp_path: Path) -> None:
    report = (skipping(TRAINING, places, tmp_path) / "report.html").read_text()
    assert "50 broken images" in report
    assert all(Path(name).name in report for name in places[2])


def test_skip_is_so_where_images_stream(places: tuple[Path, Path, dict[str, str]], tmp_path: Path) -> None:
    skipping((*TRAINING, "data.resident_gib=0", "data.workers=0", "run.report=false"), places, tmp_path)


@pytest.mark.slow
def test_two_processes_share_the_search(places: tuple[Path, Path, dict[str, str]], tmp_path: Path) -> None:
    settings = (*TRAINING, f"data.path={places[0]}", "data.broken=skip", "run.report=false", "--out", tmp_path / "run")
    process = start("train", *settings, launcher=("torch.distributed.run", "--standalone", "--nproc-per-node=2"))
    printed, _ = process.communicate(timeout=300)
    assert process.returncode == 0, printed
    assert_listed(json.loads((tmp_path / "run" / "skipped.json").read_text()), places[2])


def test_a_split_without_any_whole_image_is_a_sentence(tmp_path: Path) -> None:
    for name in ("train/a/1.png", "train/b/2.png", "test/a/3.png"):
        write_png(tmp_path / name, random_pixels(0))
    (tmp_path / "test" / "a" / "3.png").write_bytes(b"")
    with pytest.raises(UserError, match=r"no test image can be decoded; the first, '.*3\.png', is not an image"):
        load_dataset(str(tmp_path), broken="skip")
