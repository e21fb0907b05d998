"""One ONNX file, run by ONNX Runtime: images as bytes of any size and number in, the run's features out."""

import json
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from encoders import SPECS, real_images, write_run
from snippets import features_by_the_card

from contune.errors import UserError
from contune.export import agreement, export_run, onnx_graph
from contune.models.saved import CLASSIFIER_FILE, Classifier, save_classifier

runtime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

QUICK = "small stem, gray"
CASES = [name if name == QUICK else pytest.param(name, marks=pytest.mark.slow) for name in SPECS]


@pytest.mark.parametrize("name", CASES)
def test_onnx_runtime_gives_the_features_of_the_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = write_run(tmp_path, SPECS[name])
    exported = export_run(tmp_path, "onnx")
    session = runtime.InferenceSession(str(exported.folder / "encoder.onnx"))
    size, channels = encoder.spec.image_size, encoder.spec.channels
    own_NCHW, other_NCHW = real_images(size, channels), real_images(2 * size + 1, channels)[:3, :, : size + 3]
    for images_NCHW, tolerance in ((own_NCHW, 1e-4), (own_NCHW[:1], 1e-4), (other_NCHW, 1e-2)):
        with torch.no_grad():
            expected_ND = encoder(images_NCHW)
        (found_ND,) = session.run(None, {"images": images_NCHW.permute(0, 2, 3, 1).numpy()})
        assert agreement.deviation(expected_ND, torch.from_numpy(found_ND)) < tolerance
    (features_1D,) = features_by_the_card(exported.folder, own_NCHW[0], monkeypatch)
    with torch.no_grad():
        torch.testing.assert_close(features_1D, encoder(own_NCHW[:1]), rtol=0, atol=1e-4)


def test_a_classifier_becomes_the_second_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = write_run(tmp_path, SPECS["small stem, gray"])
    classifier = Classifier(
        weight_KD=torch.randn(3, 256), bias_K=torch.randn(3), class_names=("ä", "b", "c"), measure="linear"
    )
    save_classifier(tmp_path / CLASSIFIER_FILE, classifier)
    exported = export_run(tmp_path, "onnx")
    assert exported.files == ("README.md", "classes.json", "encoder.onnx")
    assert json.loads((exported.folder / "classes.json").read_text()) == ["ä", "b", "c"]
    images_NCHW = real_images(8, 1)
    session = runtime.InferenceSession(str(exported.folder / "encoder.onnx"))
    _, found_NK = session.run(None, {"images": images_NCHW.permute(0, 2, 3, 1).numpy()})
    with torch.no_grad():
        expected_NK = classifier.probabilities(encoder(images_NCHW))
    torch.testing.assert_close(torch.from_numpy(found_NK), expected_NK, rtol=1e-4, atol=1e-4)
    (features_1D,) = features_by_the_card(exported.folder, images_NCHW[0], monkeypatch)
    assert features_1D.shape == (1, 256)


def test_half_precision_is_half_as_large_and_close(tmp_path: Path) -> None:
    encoder = write_run(tmp_path, SPECS["small stem, gray"])
    exported = export_run(tmp_path, "onnx", half=True)
    file = exported.folder / "encoder.onnx"
    assert file.stat().st_size < 0.6 * (tmp_path / "encoder.safetensors").stat().st_size
    images_NCHW = real_images(8, 1)
    (found_ND,) = runtime.InferenceSession(str(file)).run(None, {"images": images_NCHW.permute(0, 2, 3, 1).numpy()})
    assert found_ND.dtype == "float32"
    with torch.no_grad():
        torch.testing.assert_close(torch.from_numpy(found_ND), encoder(images_NCHW), rtol=1e-2, atol=1e-2)
    assert 1e-6 < exported.deviation < 1e-2
    assert "half precision" in (exported.folder / "README.md").read_text()


def test_a_graph_that_computes_something_else_is_not_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path, SPECS["small stem, gray"])
    monkeypatch.setattr(onnx_graph, "TOP_LEVEL", 254)
    with pytest.raises(UserError, match=r"what ONNX Runtime computes differs .* by \d.*, and 0\.0001 is allowed"):
        export_run(tmp_path, "onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["encoder.safetensors"]


def test_other_resizing_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path, SPECS["small stem, gray"])
    nearest = partial(torch.nn.functional.interpolate, mode="nearest")
    monkeypatch.setattr(onnx_graph, "squash", lambda x_NCHW, size: nearest(x_NCHW, size=(size, size)))
    with pytest.raises(UserError, match="what ONNX Runtime computes of resized images differs"):
        export_run(tmp_path, "onnx")


def test_weights_beyond_what_a_file_can_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path, SPECS["small stem, gray"])
    monkeypatch.setattr(onnx_graph, "PROTOBUF_LIMIT", 1_000_000)
    with pytest.raises(UserError, match="more than the 2 GiB an ONNX file can hold; add --half"):
        export_run(tmp_path, "onnx")


def test_without_the_packages_the_way_out_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path, SPECS["small stem, gray"])
    monkeypatch.setattr(onnx_graph, "find_spec", lambda name: None if name == "onnxscript" else sys)
    with pytest.raises(UserError, match=r"--to onnx needs onnxscript; install with: pip install 'contune\[onnx\]'"):
        export_run(tmp_path, "onnx")


def test_a_difference_is_seen_whatever_its_form() -> None:
    ones = torch.ones(2, 3)
    assert agreement.deviation(ones, ones) == 0
    assert agreement.deviation(ones * 10, ones * 10 + torch.eye(2, 3)) == pytest.approx(0.1)
    assert agreement.deviation(ones / 10, ones / 10 + 0.05) == pytest.approx(0.05)
    assert agreement.deviation(ones, ones[:1]) == float("inf")
    assert agreement.deviation(ones, ones * float("nan")) == float("inf")
