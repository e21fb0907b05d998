"""Files as the world has them: odd but fine ones decode, hostile ones end in a sentence."""

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from damage import WAYS, bomb
from image_files import as_image, encoded, png, random_pixels
from PIL import Image

from contune.data import load_dataset
from contune.data.broken import BrokenImageError
from contune.data.decode import decode_image, verify
from contune.data.folder import folder_splits
from contune.data.inspection import inspect
from contune.data.quiet import quiet
from contune.errors import UserError

PHOTO = as_image(random_pixels(0, 48, 48))


def decode(source: str | bytes, size: int = 8) -> np.ndarray:
    return decode_image(source, "the file", size=size, channels=3)


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_being_broken_is_the_same_by_every_reader(tmp_path: Path, way: str) -> None:
    damage, begins = WAYS[way]
    path = tmp_path / "photo.png"
    damage(path, PHOTO)
    reasons = []
    for read in (decode, lambda source: verify(source, "the file")):
        with pytest.raises(BrokenImageError) as caught:
            read(str(path))
        reasons.append(caught.value.reason)
        assert "'the file'" in str(caught.value)
    assert reasons[0] == reasons[1] == inspect(str(path), "the file").reason
    assert reasons[0].startswith(begins)


def test_a_picture_over_pillows_limit_is_refused_where_pillow_only_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 48 * 47)
    with pytest.raises(BrokenImageError, match=r"too large to decode safely \(over 2,256 pixels\); shrink it first"):
        decode(encoded(PHOTO))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 48 * 48)
    assert decode(encoded(PHOTO)).shape == (3, 8, 8)


def test_a_program_for_another_program_is_no_image() -> None:
    postscript = encoded(PHOTO, "EPS")
    assert postscript.startswith(b"%!PS")
    with pytest.raises(BrokenImageError, match="is not an image in a known format"):
        decode(postscript)


def test_other_spaces_of_colour_become_rgb() -> None:
    assert decode(encoded(Image.new("LAB", (8, 8), (128, 128, 128)), "TIFF")).std() < 5


def test_endings_do_not_matter_but_contents_do(tmp_path: Path) -> None:
    (tmp_path / "really_png.jpg").write_bytes(png(random_pixels(1)))
    assert np.array_equal(decode(str(tmp_path / "really_png.jpg")), random_pixels(1))


def test_of_an_animation_the_first_frame_counts() -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "green", "blue")]
    for kind in ("GIF", "WEBP", "PNG"):
        animated = encoded(frames[0], kind, save_all=True, append_images=frames[1:])
        assert decode(animated)[:, 0, 0].tolist() == pytest.approx([255, 0, 0], abs=8)


@pytest.mark.parametrize(("width", "height"), [(1, 1), (1, 5000), (20_000, 1), (4000, 3)])
@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_any_shape_becomes_a_square(width: int, height: int, kind: str) -> None:
    picture = encoded(Image.new("RGB", (width, height), (200, 100, 50)), kind)
    x_CHW = decode(picture, size=16).reshape(3, -1)
    assert np.abs(x_CHW - np.array([[200], [100], [50]])).max() <= 3
    verify(picture, "the file")
    assert inspect(picture, "the file").constant


def test_odd_metadata_is_no_news_and_leaves_the_filters_alone() -> None:
    before = list(warnings.filters)
    photo = encoded(PHOTO, "JPEG", exif=b"Exif\0\0II*\0\x08\0\0\0\xff\xff")
    assert decode(photo).shape == (3, 8, 8)
    with quiet(), quiet():
        pass
    assert list(warnings.filters) == before


ODD_NAMES = [
    "with space.png", "new\nline.png", "emoji 🐈.png", "[bold]markup[bold].png", ":cat:.png", "'quote'.png",
    "-dash.png", "#12.png", "%41.png", "x" * 240 + ".png", "<b>.png",
]  # fmt: skip


def test_odd_names_are_read_and_named(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path / "odd")
    os.mkdir(folder)
    for number, name in enumerate([*map(os.fsencode, ODD_NAMES), b"no\xfftext.png"]):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(png(random_pixels(number)))
    dataset = load_dataset(str(tmp_path / "odd"), test_fraction=0.0)
    assert len(dataset.train) == len(ODD_NAMES) + 1
    with open(os.path.join(folder, b"bad\xff\n.png"), "wb") as file:
        file.write(b"no image")
    with pytest.raises(UserError) as caught:
        load_dataset(str(tmp_path / "odd"), test_fraction=0.0)
    assert str(caught.value).isprintable()


def test_links_to_themselves_and_pipes(tmp_path: Path) -> None:
    (tmp_path / "fine.png").write_bytes(png(random_pixels(0)))
    os.symlink("loop.png", tmp_path / "loop.png")
    os.mkfifo(tmp_path / "pipe.png")
    os.symlink("pipe.png", tmp_path / "link_to_pipe.png")
    splits = folder_splits(tmp_path)
    assert [Path(name).name for name in splits.train.names] == ["fine.png", "loop.png"]
    assert inspect(splits.train.names[1], "loop").reason == "cannot be read: a link that leads in a circle"


def test_a_file_without_permission_is_broken_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret.png"
    path.write_bytes(png(random_pixels(0)))
    path.chmod(0)
    if os.access(path, os.R_OK):  # root may read anything: let the disk refuse it
        monkeypatch.setattr("builtins.open", _refuse)
    with pytest.raises(BrokenImageError, match=r"cannot read image 'the file': Permission denied"):
        decode(str(path))


def _refuse(*arguments: object, **options: object) -> None:
    raise PermissionError(13, "Permission denied")


def test_a_bomb_takes_no_memory() -> None:
    import tracemalloc

    tracemalloc.start()
    with pytest.raises(BrokenImageError):
        decode(bomb(13_000))  # 169 million pixels: Pillow would only warn, and take 500 MB
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()
