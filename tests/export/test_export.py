"""`contune export` on a run, its model card, and the formats for timm and PyTorch."""

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from command_line import contune
from encoders import SPECS, features_of_the_photo, real_images, spec, write_photo, write_run
from PIL import Image
from sklearn.datasets import load_sample_images

import contune as library
from contune.device import timm
from contune.errors import UserError
from contune.export import deviation_of, export_run

PHOTO = Image.fromarray(load_sample_images().images[0])
NEEDS_ONNX = pytest.mark.skipif(find_spec("onnxscript") is None, reason="takes the extra onnx")
GROUP_NORM = spec("resnet-mini", size=16, channels=3, norm="group")


@pytest.fixture
def run(digits_run: tuple[Path, str]) -> Path:
    return digits_run[0]


def test_the_command_writes_a_folder_with_a_card(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    outcome = contune("export", run, "--to", "safetensors", "--out", folder)
    assert outcome.code == 0, outcome.err
    assert {"README.md", "classifier.safetensors", "config.json", "encoder.safetensors"} == {
        path.name for path in folder.iterdir()
    }
    assert list(tmp_path.iterdir()) == [folder], "no temporary folder"
    result, card = json.loads((run / "result.json").read_text()), (folder / "README.md").read_text()
    assert "# resnet-mini, trained on digits by tcl" in card
    for measure in result["measures"]:
        assert f"| {measure['top1']:.2f} | {measure['top5']:.2f} | 899 | {measure['protocol']} |" in card
    assert '"k1": ' in card
    config = json.loads((folder / "config.json").read_text())
    assert (config["encoder"], config["image_size"], config["num_features"]) == ("resnet-mini", 8, 256)


def test_a_card_does_not_tell_where_the_data_was(run: Path, tmp_path: Path) -> None:
    for name in ("encoder.safetensors", "result.json"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    result = json.loads((run / "result.json").read_text())
    result["config"]["data"]["path"] = result["command"] = "data.path=/home/me/secret"
    (tmp_path / "result.json").write_text(json.dumps(result))
    assert "secret" not in (export_run(tmp_path, "safetensors")[0] / "README.md").read_text()


def test_bad_requests_raise_and_write_nothing(run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    write_run(tmp_path / "group", GROUP_NORM)
    write_run(tmp_path / "blur", spec("resnetblur18", size=32, channels=3))  # a blur after the stem's pooling
    before = sorted(tmp_path.rglob("*"))
    for source, to, out, word in (
        (run, "tim", "out", "timm"),
        (tmp_path / "full", "timm", "out", "no encoder"),
        (run, "safetensors", "full", "not empty"),
        (run, "safetensors", "file", "is a file"),
        (run, "safetensors", "file/below", "cannot write"),
        (tmp_path / "group", "timm", "out", "resnet18"),
        (tmp_path / "blur", "timm", "out", "resnetblur18"),
    ):
        with pytest.raises(UserError, match=word):
            export_run(source, to, tmp_path / out)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("to", ["timm", "safetensors"])
@pytest.mark.parametrize("name", [*SPECS, "group norm"])
def test_the_python_of_the_card_gives_the_features_of_the_run(
    name: str, to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (name, to) == ("group norm", "timm"):
        pytest.skip("timm has no such norm")
    encoder = write_run(tmp_path, SPECS.get(name, GROUP_NORM))
    folder = export_run(tmp_path, to)[0]
    images_NCHW = real_images(encoder.spec.image_size, encoder.spec.channels)
    with torch.no_grad():
        expected_ND = encoder(images_NCHW)
    assert expected_ND.std(dim=0).max() > 0.01, "equal features of all images would not pass"
    write_photo(folder, images_NCHW[2])
    for features_1D in features_of_the_photo(folder, monkeypatch):
        torch.testing.assert_close(features_1D, expected_ND[2:3], rtol=0, atol=1e-4)


@pytest.mark.parametrize("to", ["timm", "safetensors", pytest.param("onnx", marks=[NEEDS_ONNX, pytest.mark.slow])])
def test_the_card_opens_photos_as_training_does(to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On their side by EXIF, transparent, or gray, and of another size than the encoder's."""
    encoder = write_run(tmp_path, spec("resnet-mini", size=32, channels=3))
    folder = export_run(tmp_path, to)[0]
    photo = folder / "photo.png"
    exif, transparent = Image.Exif(), PHOTO.convert("RGBA")
    exif[0x0112] = 6
    fading = np.tile(np.linspace(255, 0, PHOTO.width), (PHOTO.height, 1)).astype(np.uint8)
    transparent.putalpha(Image.fromarray(fading))
    for image, kind, options in (
        (PHOTO, "JPEG", {"exif": exif}),
        (transparent, "PNG", {}),
        (PHOTO.convert("L"), "PNG", {}),
    ):
        image.save(photo, kind, **options)
        (part,) = library.embed(encoder, [photo])
        for features_1D in features_of_the_photo(folder, monkeypatch):
            assert torch.cosine_similarity(features_1D, torch.from_numpy(part.embeddings)).item() > 0.999


def test_timm_reads_the_preprocessing_and_adds_a_classifier(tmp_path: Path) -> None:
    write_run(tmp_path, SPECS["usual stem, color"])
    folder = export_run(tmp_path, "timm")[0]
    model = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    data = timm.data.resolve_model_data_config(model)
    assert tuple(data["input_size"]) == (3, 72, 72)
    assert [*data["mean"], *data["std"]] == [0.31, 0.42, 0.53, 0.21, 0.24, 0.27]
    assert (data["interpolation"], data["crop_mode"], data["crop_pct"]) == ("bilinear", "squash", 1.0)
    assert (model.num_classes, model.num_features) == (0, 512)
    tuned = timm.create_model(f"local-dir:{folder}", pretrained=True, num_classes=7).eval()
    x_NCHW = torch.randn(2, 3, 72, 72)
    assert tuned(x_NCHW).shape == (2, 7)
    torch.testing.assert_close(tuned.forward_features(x_NCHW), model.forward_features(x_NCHW))
    config = json.loads((folder / "config.json").read_text())["pretrained_cfg"]
    assert not {"license", "description", "url", "hf_hub_id", "origin_url"} & config.keys(), "not of timm's own weights"


def test_the_deviation_of_features() -> None:
    ones = torch.ones(2, 3)
    assert deviation_of(ones, ones) == 0
    assert deviation_of(ones * 10, ones * 10 + torch.eye(2, 3)) == pytest.approx(0.1)
    assert deviation_of(ones / 10, ones / 10 + 0.05) == pytest.approx(0.05)
    assert deviation_of(ones, ones[:1]) == float("inf")
    assert deviation_of(ones, ones * float("nan")) == float("inf")
