"""The encoder file: what is saved comes back exactly, and what is none is refused in a sentence."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import contune
from contune.errors import UserError
from contune.models import EncoderSpec, ImageEncoder, load_encoder, save_encoder

SPEC = EncoderSpec(
    encoder="resnet-mini", stem="auto", norm="batch", image_size=16, channels=3,
    mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7),
)  # fmt: skip


def trained(spec: EncoderSpec = SPEC) -> ImageEncoder:
    """An encoder whose batch-norm has seen data, so that its buffers differ from those of a new one."""
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


def test_bytes_and_prepared_floats_agree(images_NCHW: torch.Tensor) -> None:
    encoder = trained()
    mean, std = (torch.tensor(values)[:, None, None] for values in (SPEC.mean, SPEC.std))
    with torch.no_grad():
        from_bytes = encoder(images_NCHW)
        from_floats = encoder((images_NCHW.float() / 255 - mean) / std)
    torch.testing.assert_close(from_bytes, from_floats, rtol=1e-4, atol=1e-5)


def test_bytes_of_any_size_are_resized(images_NCHW: torch.Tensor) -> None:
    large_NCHW = images_NCHW.repeat_interleave(4, dim=2).repeat_interleave(4, dim=3)
    with torch.no_grad():
        assert trained()(large_NCHW).shape == (4, 256)
        assert trained().prepare(large_NCHW).shape == (4, 3, 16, 16)


@pytest.mark.parametrize("shape", [(4, 1, 16, 16), (3, 16, 16), (4, 16, 16, 3)])
def test_other_shapes_are_a_sentence(shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match=r"images must be \(N, 3, H, W\), got shape"):
        trained()(torch.zeros(shape, dtype=torch.uint8))


def test_files_that_hold_no_encoder(tmp_path: Path) -> None:
    file = tmp_path / "encoder.safetensors"
    with pytest.raises(UserError, match=r"no encoder at .*; a run folder has one once its training has ended"):
        load_encoder(tmp_path)
    file.write_bytes(b"not safetensors")
    with pytest.raises(UserError, match="cannot be read as safetensors"):
        load_encoder(file)
    save_file({"weight": torch.zeros(3)}, file)
    with pytest.raises(UserError, match="it was not written by a contune run"):
        load_encoder(file)


def test_weights_of_another_network(tmp_path: Path) -> None:
    save_encoder(tmp_path / "encoder.safetensors", trained().backbone, replace(SPEC, encoder="resnet18"))
    with pytest.raises(UserError, match="do not fit the resnet18 that it describes"):
        load_encoder(tmp_path)


def test_the_file_names_every_weight_as_timm_does(tmp_path: Path) -> None:
    save_encoder(tmp_path / "encoder.safetensors", trained().backbone, SPEC)
    assert {"conv1.weight", "bn1.running_mean", "layer4.0.bn2.weight"} <= load_file(
        tmp_path / "encoder.safetensors"
    ).keys()


def test_prepared_images_are_not_prepared_again(images_NCHW: torch.Tensor) -> None:
    encoder = trained()
    with pytest.raises(UserError, match=r"only uint8 images of 0 to 255 can be prepared, got torch\.float32; floats"):
        encoder.prepare(encoder.prepare(images_NCHW))
    with pytest.raises(UserError, match=r"images must be a tensor .* got a ndarray"):
        encoder.prepare(images_NCHW.numpy())  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_other_numbers_are_a_sentence(dtype: torch.dtype) -> None:
    with pytest.raises(UserError, match=rf"images must be uint8 of 0 to 255, or floats .*, got {dtype}; images\.to"):
        trained()(torch.zeros(4, 3, 16, 16, dtype=dtype))


@pytest.mark.parametrize("shape", [(4, 1, 16, 16), (3, 16, 16), (4, 16, 16, 3)])
def test_other_shapes_of_floats_are_a_sentence(shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match=r"images must be \(N, 3, H, W\), got shape"):
        trained()(torch.zeros(shape))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_bytes_go_to_weights_of_any_type(dtype: torch.dtype, images_NCHW: torch.Tensor) -> None:
    with torch.no_grad():
        expected, encoder = trained()(images_NCHW), trained().to(dtype)
        assert encoder.prepare(images_NCHW).dtype == dtype
        features = encoder(images_NCHW)
    assert features.dtype == dtype
    torch.testing.assert_close(features.float(), expected, rtol=0.1, atol=0.1)


def test_the_checks_are_no_hindrance_to_the_compiler(images_NCHW: torch.Tensor) -> None:
    encoder = trained()
    x_NCHW = encoder.prepare(images_NCHW)
    compiled = torch.compile(encoder, backend="eager", fullgraph=True)
    exported = torch.export.export(encoder, (x_NCHW,)).module()
    with torch.no_grad():
        for made in (compiled, exported):
            torch.testing.assert_close(made(x_NCHW), encoder(images_NCHW))
        torch.testing.assert_close(compiled(images_NCHW), encoder(images_NCHW))
