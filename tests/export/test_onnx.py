"""The ONNX file in ONNX Runtime: uint8 images of any size and number in, the run's features out."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
from encoders import SMALL_GRAY, features_of_the_photo, real_images, write_photo, write_run

from contune.data.augment import resize
from contune.errors import UserError
from contune.export import deviation_of, export_run, onnx
from contune.models.saved import CLASSIFIER_FILE, Classifier, save_classifier

runtime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


@pytest.mark.parametrize("side", [8, 36, 71, 72, 73, 144, 213, 500])
def test_resizing_gives_the_levels_that_the_encoder_sees(side: int) -> None:
    images_NCHW = real_images(side, 3)[..., : side // 2 + 3]
    found_NCHW, expected_NCHW = onnx.squash(images_NCHW.float(), 72), resize(images_NCHW, 72).float()
    assert (found_NCHW - expected_NCHW).abs().max() <= 1
    assert (found_NCHW != expected_NCHW).float().mean() < 1e-4
    assert torch.equal(onnx.axis_weights(33, 33), torch.eye(33))


@pytest.mark.slow
def test_features_and_probabilities_are_the_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = write_run(tmp_path, SMALL_GRAY)
    names = ("ä", "b", "c")
    classifier = Classifier(weight_KD=torch.randn(3, 256), bias_K=torch.randn(3), class_names=names, measure="linear")
    save_classifier(tmp_path / CLASSIFIER_FILE, classifier)
    folder, _ = export_run(tmp_path, "onnx")
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "classes.json", "encoder.onnx"]
    assert json.loads((folder / "classes.json").read_text()) == ["ä", "b", "c"]
    session = runtime.InferenceSession(str(folder / "encoder.onnx"))
    own_NCHW, other_NCHW = real_images(8, 1), real_images(17, 1)[:3, :, :11]
    for images_NCHW, tolerance in ((own_NCHW, 1e-4), (own_NCHW[:1], 1e-4), (other_NCHW, 1e-2)):
        with torch.no_grad():
            expected_ND = encoder(images_NCHW)
        found_ND, found_NK = session.run(None, {"images": images_NCHW.permute(0, 2, 3, 1).numpy()})
        assert deviation_of(expected_ND, torch.from_numpy(found_ND)) < tolerance
        assert deviation_of(classifier.probabilities(expected_ND), torch.from_numpy(found_NK)) < tolerance
    write_photo(folder, own_NCHW[0])
    (features_1D,) = features_of_the_photo(folder, monkeypatch)
    with torch.no_grad():
        torch.testing.assert_close(features_1D, encoder(own_NCHW[:1]), rtol=0, atol=1e-4)


@pytest.mark.slow
def test_a_wrong_graph_is_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path, SMALL_GRAY)
    nearest = partial(torch.nn.functional.interpolate, mode="nearest")
    monkeypatch.setattr(onnx, "squash", lambda x_NCHW, size: nearest(x_NCHW, size=(size, size)))
    with pytest.raises(UserError, match="differ"):
        export_run(tmp_path, "onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["encoder.safetensors"]


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path, SMALL_GRAY)
    monkeypatch.setattr(onnx, "find_spec", lambda name: None if name == "onnxscript" else name)
    with pytest.raises(UserError, match="onnxscript"):
        export_run(tmp_path, "onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["encoder.safetensors"]
