"""Kinds of images beyond 8-bit photos: floats, many channels, NumPy arrays and DICOM, from the file to the features."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import torch
from command_line import contune
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid

import contune as library
from contune.check import inspect
from contune.data import ImageSet, load_dataset
from contune.data.augment import Augmenter, build_policy
from contune.data.decode import BrokenImageError, decode_pieces, peek, to_levels, whole
from contune.models.encoders import build_encoder
from contune.models.saved import adapt_channels


def tiff(x_HWC: np.ndarray, **options: Any) -> bytes:
    stream = io.BytesIO()
    tifffile.imwrite(stream, x_HWC, **{"photometric": "minisblack", "planarconfig": "contig"} | options)
    return stream.getvalue()


def npy(x: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, x)
    return stream.getvalue()


def dicom(stored: np.ndarray, *, photometric: str = "MONOCHROME2", **elements: Any) -> bytes:
    """Gray, or color if the array has three dimensions; elements by keyword, such as WindowWidth=400."""
    file = Dataset()
    file.file_meta = FileMetaDataset()
    file.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    file.file_meta.MediaStorageSOPClassUID = SecondaryCaptureImageStorage
    file.file_meta.MediaStorageSOPInstanceUID = generate_uid()
    file.Rows, file.Columns = stored.shape[:2]
    file.SamplesPerPixel = stored.shape[2] if stored.ndim == 3 else 1
    file.PhotometricInterpretation, file.PlanarConfiguration = photometric, 0
    file.BitsAllocated = file.BitsStored = 8 * stored.dtype.itemsize
    file.HighBit, file.PixelRepresentation = file.BitsStored - 1, int(stored.dtype.kind == "i")
    file.PixelData = stored.tobytes()
    for name, value in elements.items():
        setattr(file, name, value)
    stream = io.BytesIO()
    file.save_as(stream, enforce_file_format=True)
    return stream.getvalue()


def decode(source: Any, channels: int = 0, ranges: Any = None) -> np.ndarray:
    """(H, W, C)"""
    (x_HWC,) = decode_pieces(source, "the file", whole, size=None, channels=channels, ranges=ranges)
    return np.asarray(x_HWC)


def test_floats_are_scaled_by_the_range_of_the_training_images() -> None:
    x_HW = np.array([[-1.0, 0.0, 1.0], [3.0, np.nan, np.inf]], dtype=np.float32)
    assert peek(tiff(x_HW), "it").ranges == ((-1.0, 3.0),)
    for source in (tiff(x_HW), npy(x_HW), x_HW):
        assert decode(source)[..., 0].tolist() == [[0, 64, 128], [255, 0, 255]]
        assert decode(source, ranges=((0.0, 2.0),))[..., 0].tolist() == [[0, 0, 128], [255, 0, 255]]
        assert decode(source, channels=3).shape == (2, 3, 3)
        with pytest.raises(BrokenImageError, match="8 or 16 bits"):
            decode(source, ranges=())
    assert peek(tiff(x_HW), "it", full_range=True).ranges == ((0.0, 1.0),)
    assert peek(npy(x_HW.astype(np.float64)), "it").ranges == ((-1.0, 3.0),)


@pytest.mark.parametrize("num", [2, 4, 6, 13])
def test_any_number_of_channels_is_read_as_it_is(num: int) -> None:
    x_HWC = np.random.default_rng(0).integers(0, 256, (15, 17, num), dtype=np.uint8)
    pages = tiff(np.moveaxis(x_HWC, 2, 0), planarconfig=None)
    for source in (tiff(x_HWC), pages, npy(x_HWC), npy(np.ascontiguousarray(x_HWC.transpose(2, 0, 1))), x_HWC):
        assert np.array_equal(decode(source, channels=num), x_HWC)
    assert peek(tiff(x_HWC), "it", num).channels == num
    with pytest.raises(BrokenImageError, match=f"{num} channels, not 5"):
        decode(x_HWC, channels=5)


def test_each_channel_of_16_bits_has_its_own_range() -> None:
    x_HWC = np.zeros((4, 4, 5), dtype=np.uint16)
    x_HWC[0, 0] = (10, 1000, 2000, 10_000, 0)
    levels = decode(tiff(x_HWC))
    assert levels[0, 0].tolist() == [255, 255, 255, 255, 0]
    assert levels[1:].max() == 0


def test_dicom_is_rescaled_and_windowed_and_bright_is_high() -> None:
    stored = np.array([[0, 1000, 1040, 1080, 4000]], dtype=np.uint16)
    scale: dict[str, Any] = {"RescaleSlope": 1, "RescaleIntercept": -1024}
    assert peek(dicom(stored, **scale), "it").ranges == ((-1024.0, 2976.0),), "no window: the range of the data"
    window: dict[str, Any] = {"WindowCenter": 16, "WindowWidth": 81}  # 80 values from -24.5 to 55.5, by DICOM's formula
    levels = decode(dicom(stored, **scale, **window))[0, :, 0]
    assert levels.tolist() == [0, 2, 129, 255, 255]
    dark = decode(dicom(stored, photometric="MONOCHROME1", **scale, **window))[0, :, 0]
    assert (levels.astype(int) + dark).tolist() == [255] * 5
    dark = decode(dicom(stored, photometric="MONOCHROME1", **scale))[0, :, 0]
    assert dark[0] == 255
    assert dark[-1] == 0
    color = np.random.default_rng(0).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    assert np.array_equal(decode(dicom(color, photometric="RGB")), color)
    signed = np.array([[-500, 0, 500]], dtype=np.int16)
    assert decode(dicom(signed))[0, :, 0].tolist() == [0, 128, 255]
    with pytest.raises(BrokenImageError, match="2 frames"):
        decode(dicom(stored, NumberOfFrames=2))


def test_readers_that_are_not_installed_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = {
        "pydicom": dicom(np.zeros((2, 2), dtype=np.uint8)),
        "tifffile": tiff(np.zeros((9, 9, 5), dtype=np.uint8)),
    }
    for package, source in sources.items():
        monkeypatch.setitem(__import__("sys").modules, package, None)
        with pytest.raises(BrokenImageError, match=f"needs {package}.*tiff,dicom"):
            peek(source, "it")


@pytest.mark.parametrize("shape", [(4,), (2, 2, 2, 2), (100, 100, 65), (0, 5)])
def test_arrays_that_are_no_images_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(BrokenImageError):
        decode(npy(np.zeros(shape, dtype=np.float32)))
    with pytest.raises(BrokenImageError):
        decode(npy(np.array([["a"]])))


def write_scenes(folder: Path, channels: int = 6, each: int = 8) -> np.ndarray:
    """Two classes of float TIFFs that differ in their last channel; returns the values of the first."""
    draw = np.random.default_rng(0)
    scenes = []
    for label in ("dry", "wet"):
        (folder / label).mkdir(parents=True)
        for number in range(each):
            x_HWC = draw.normal(size=(16, 16, channels)).astype(np.float32) * 100
            x_HWC[..., -1] += 300 * (label == "wet")
            (folder / label / f"{number}.tif").write_bytes(tiff(x_HWC))
            scenes.append(x_HWC)
    return scenes[0]


def test_six_float_channels_from_training_to_features(tmp_path: Path) -> None:
    scene = write_scenes(tmp_path / "scenes")
    settings = (
        "model.encoder=resnet-mini",
        "optim.epochs=2",
        "optim.batch_images=4",
        "data.image_size=16",
        "data.val_fraction=0",
        "eval.start=false",
    )
    run = tmp_path / "run"
    outcome = contune("train", "images", f"data.path={tmp_path / 'scenes'}", *settings, "eval.every=0", "--out", run)
    assert outcome.code == 0, outcome.err
    assert "16×16×6" in outcome.out
    assert "<img" in (run / "report.html").read_text()
    encoder = library.load_encoder(run)
    assert (encoder.spec.channels, len(encoder.spec.ranges), len(encoder.spec.mean)) == (6, 6, 6)
    (from_file,) = library.embed(run, [tmp_path / "scenes" / "dry" / "0.tif"])
    (from_array,) = library.embed(run, [scene])
    assert np.array_equal(from_file.embeddings, from_array.embeddings)
    levels_1CHW = torch.from_numpy(to_levels(scene, encoder.spec.ranges).transpose(2, 0, 1))[None]
    with torch.no_grad():
        np.testing.assert_allclose(encoder(levels_1CHW), from_file.embeddings, atol=1e-5)
    (part,) = library.predict(run, [scene])
    assert part.classes[0] in ("dry", "wet")
    assert len(load_dataset(str(tmp_path / "scenes"), broken="skip").train) == 13
    header, is_constant, _ = inspect(ImageSet(images=[scene], names=["it"]), 0)
    assert (header.channels, is_constant) == (6, False)


@pytest.mark.parametrize("policy", ["none", "crop-flip", "autoaugment", "simaugment solarize=0.5", "digits"])
@pytest.mark.parametrize("channels", [2, 6])
def test_every_policy_takes_any_number_of_channels(policy: str, channels: int) -> None:
    images = torch.randint(0, 256, (16, channels, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    built = build_policy(policy, image_size=8, channels=channels)
    augmenter = Augmenter([built, built], (0.5,) * channels, (0.25,) * channels)
    views = augmenter.apply(images, augmenter.draw(16, torch.Generator().manual_seed(0)))
    assert [view.shape for view in views] == [images.shape] * 2
    assert all(view.isfinite().all() for view in views)


def test_color_weights_adapt_to_other_channels() -> None:
    """As in timm: repeated in turn and scaled, so that equal channels give what a gray color image gives."""
    torch.manual_seed(0)
    color, six = (build_encoder("resnet-mini", channels=channels, image_size=16).eval() for channels in (3, 6))
    six.load_state_dict(adapt_channels(color.state_dict(), six, 6))
    gray = torch.rand(2, 1, 16, 16)
    with torch.no_grad():
        torch.testing.assert_close(six(gray.expand(-1, 6, -1, -1)), color(gray.expand(-1, 3, -1, -1)))
