"""The encoder and classifier files: saving and loading is exact, and anything else raises."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import contune
from contune.errors import UserError
from contune.models.saved import (
    CLASSIFIER_FILE,
    Classifier,
    EncoderSpec,
    ImageEncoder,
    load_classifier,
    load_encoder,
    save_classifier,
    save_encoder,
)

SPEC = EncoderSpec(
    encoder="resnet-mini",
    stem="auto",
    norm="batch",
    image_size=16,
    channels=3,
    mean=(0.1, 0.2, 0.3),
    std=(0.5, 0.6, 0.7),
)


def trained(spec: EncoderSpec = SPEC) -> ImageEncoder:
    """An encoder whose batch-norm has seen data, so that its buffers differ from their initial values."""
    torch.manual_seed(0)
    backbone = spec.build().train()
    backbone(torch.randn(8, spec.channels, spec.image_size, spec.image_size))
    return ImageEncoder(backbone, spec).eval()


@pytest.fixture
def images_NCHW() -> torch.Tensor:
    return torch.randint(0, 256, (4, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("changed", [{}, {"norm": "group"}, {"stem": "imagenet"}])
def test_round_trip_is_exact(changed: dict[str, str], tmp_path: Path, images_NCHW: torch.Tensor) -> None:
    encoder = trained(replace(SPEC, **changed))  # type: ignore[arg-type]  # texts for text fields
    save_encoder(tmp_path / "encoder.safetensors", encoder.backbone, encoder.spec)
    for path in (tmp_path, tmp_path / "encoder.safetensors"):
        loaded = contune.load_encoder(path)
        assert loaded.spec == encoder.spec
        assert not loaded.training
        assert loaded.num_features == 256
        with torch.no_grad():
            assert torch.equal(loaded(images_NCHW), encoder(images_NCHW))
    assert [path.name for path in tmp_path.iterdir()] == ["encoder.safetensors"]


def test_only_uint8_images_are_prepared() -> None:
    with pytest.raises(UserError, match="uint8"):
        trained().prepare(torch.zeros(4, 3, 16, 16))
    for shape in ((3, 16, 16), (4, 16, 16, 3)):
        with pytest.raises(UserError, match="N, 3, H, W"):
            trained()(torch.zeros(shape))


def test_files_without_an_encoder_raise(tmp_path: Path) -> None:
    file = tmp_path / "encoder.safetensors"
    with pytest.raises(UserError, match="no encoder at"):
        load_encoder(tmp_path)
    file.write_bytes(b"not safetensors")
    with pytest.raises(UserError, match="not an encoder"):
        load_encoder(file)
    save_file({"weight": torch.zeros(3)}, file)
    with pytest.raises(UserError, match="not an encoder"):
        load_encoder(file)
    save_encoder(file, trained().backbone, replace(SPEC, encoder="resnet18"))
    with pytest.raises(UserError, match="do not fit the resnet18"):
        load_encoder(file)


def test_a_classifier_round_trip(tmp_path: Path) -> None:
    weight_KD, bias_K = torch.randn(2, 5), torch.randn(2)
    saved = Classifier(weight_KD=weight_KD, bias_K=bias_K, class_names=("a", "b"), measure="linear")
    with pytest.raises(UserError, match="has no classifier"):
        load_classifier(tmp_path)
    save_classifier(tmp_path / CLASSIFIER_FILE, saved)
    loaded = load_classifier(tmp_path)
    assert (loaded.class_names, loaded.measure) == (("a", "b"), "linear")
    features_ND = torch.randn(7, 5)
    logits_NK = features_ND @ weight_KD.T + bias_K
    torch.testing.assert_close(loaded.probabilities(features_ND), logits_NK.softmax(dim=1))
    assert torch.equal(loaded.predict(features_ND), logits_NK.argmax(dim=1))


def test_it_compiles_and_exports(images_NCHW: torch.Tensor) -> None:
    encoder = trained()
    x_NCHW = encoder.prepare(images_NCHW)
    compiled = torch.compile(encoder, backend="eager", fullgraph=True)
    exported = torch.export.export(encoder, (x_NCHW,)).module()
    with torch.no_grad():
        for made in (compiled, exported):
            torch.testing.assert_close(made(x_NCHW), encoder(images_NCHW))
        torch.testing.assert_close(compiled(images_NCHW), encoder(images_NCHW))
