"""Encoders by name: the paper's ResNets, their stems and norms, and other timm models."""

import pytest
import torch
from torch import nn

from contune.errors import UserError
from contune.models import build_encoder
from contune.models.encoders import SMALL_IMAGE


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("image_size", "first", "last"), [(32, 32, 4), (224, 56, 7)])
def test_the_stem_follows_the_image_size(channels: int, image_size: int, first: int, last: int) -> None:
    """By the sides of the maps that leave the first and the last stage."""
    encoder = build_encoder("resnet18", channels=channels, image_size=image_size)
    sizes: list[int] = []
    for stage in (encoder.layer1, encoder.layer4):
        assert isinstance(stage, nn.Module)
        stage.register_forward_hook(lambda module, inputs, output: sizes.append(output.shape[-1]))
    with torch.no_grad():
        encoder.eval()(torch.zeros(1, channels, image_size, image_size))
    assert sizes == [first, last]


@pytest.mark.parametrize(("stem", "kernel", "stride"), [("cifar", 3, 1), ("imagenet", 7, 2)])
def test_a_stem_asked_for_is_built_at_any_size(stem: str, kernel: int, stride: int) -> None:
    for image_size in (SMALL_IMAGE, SMALL_IMAGE + 1):
        conv = build_encoder("resnet18", image_size=image_size, stem=stem).conv1
        assert isinstance(conv, nn.Conv2d)
        assert (conv.kernel_size, conv.stride, conv.bias) == ((kernel, kernel), (stride, stride), None)


@pytest.mark.parametrize("name", ["resnet-mini", "resnet50"])
def test_group_norm_leaves_no_batch_norm(name: str) -> None:
    encoder = build_encoder(name, norm="group")
    kinds = {type(module).__name__ for module in encoder.modules()}
    assert "BatchNorm2d" not in kinds
    groups = {module.num_groups for module in encoder.modules() if isinstance(module, nn.GroupNorm)}
    assert groups == {8}
    x_NCHW = torch.randn(3, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(encoder(x_NCHW)[:1], encoder(x_NCHW[:1]), rtol=1e-4, atol=1e-5)


def test_residual_branches_start_at_full_strength() -> None:
    encoder = build_encoder("resnet18")
    norms = [module.weight for name, module in encoder.named_modules() if name.endswith("bn2")]
    assert len(norms) == 8
    assert all((weight == 1).all() for weight in norms if isinstance(weight, torch.Tensor))


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"name": "resnet5"}, "resnet50"),
        ({"name": "test_vit", "stem": "cifar"}, "stem"),
        ({"name": "resnet50d", "stem": "cifar"}, "stem"),
        ({"name": "test_vit", "image_size": 8}, "image_size"),
        ({"name": "test_vit", "norm": "group"}, "norm"),
    ],
)
def test_bad_arguments_raise(options: dict[str, str | int], word: str) -> None:
    with pytest.raises(UserError, match=word):
        build_encoder(**options)  # type: ignore[arg-type]  # names, and one size


def test_a_deep_stem_is_left_alone_by_auto() -> None:
    encoder = build_encoder("resnet26d", image_size=32, stem="auto")
    assert isinstance(encoder.conv1, nn.Sequential)
