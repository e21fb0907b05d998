"""The fused batch-norm, addition and ReLU against the separate operations, in both kinds of ResNet."""

from copy import deepcopy
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contune.device import timm
from contune.models import build_encoder
from contune.models.fused_norm import FusedNorm, fuse_norms, parts_to_fuse

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SIDES = {"resnet-mini": 9, "bottlenecks": 33}
"""Image sizes that leave a few pixels for the last batch-norm."""
SHAPES = [(3, 37, 5), (2, 130, 7), (40, 16, 4), (7, 5, 1)]


def image_like(shape: tuple[int, int, int], seed: int) -> Tensor:
    num, channels, side = shape
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(num, channels, side, side, generator=draw)
    return x.to(DEVICE).contiguous(memory_format=torch.channels_last)


def error(found: Tensor, expected: Tensor) -> float:
    return float((found.detach().double() - expected).norm() / expected.norm())


@pytest.mark.parametrize(
    ("shape", "add", "relu"), [*product(SHAPES[:1], [False, True], [False, True]), *product(SHAPES[1:], [True], [True])]
)
def test_the_kernels_are_the_formula(shape: tuple[int, int, int], add: bool, relu: bool) -> None:
    x, residual, g = 2 * image_like(shape, 0) + 3, image_like(shape, 1), image_like(shape, 2)
    num_channels = shape[1]
    weight, bias, mean, var = (torch.randn(4, num_channels, generator=torch.Generator().manual_seed(3))).to(DEVICE)
    var = var.abs()
    X, R, W, B = (t.double().requires_grad_() for t in (x, residual, weight, bias))
    expected_mean, expected_var = mean.double(), var.double()
    y = F.batch_norm(X, expected_mean, expected_var, W, B, training=True, momentum=0.1, eps=1e-5)
    y = y + R if add else y
    y = y.relu() if relu else y
    y.backward(g.double())

    norm = FusedNorm(num_channels).to(DEVICE)
    norm.load_state_dict({"weight": weight, "bias": bias, "running_mean": mean, "running_var": var}, strict=False)
    leaves = [leaf.requires_grad_() for leaf in (x, residual)]
    found = norm(x, residual if add else None, relu)
    found.backward(g)
    assert norm.num_batches_tracked == 1
    values = [(found, y), (norm.running_mean, expected_mean), (norm.running_var, expected_var)]
    pairs = zip((*leaves[: 1 + add], norm.weight, norm.bias), (X, *[R][: 1 * add], W, B), strict=True)
    for ours, theirs in [*values, *((one.grad, other.grad) for one, other in pairs)]:
        assert ours is not None
        assert theirs is not None
        assert error(ours, theirs.detach()) < 1e-5


def test_a_mean_far_from_zero_costs_no_digits() -> None:
    """The sum of squares would lose them, so the kernels sum distances from the first row."""
    x = image_like((8, 16, 4), 0) + 1000
    norm = FusedNorm(16).to(DEVICE)
    expected = F.batch_norm(x.double(), None, None, training=True)
    assert error(norm(x), expected) < 1e-3


@pytest.mark.parametrize(
    ("name", "dtype", "floor"),
    [
        pytest.param("resnet-mini", torch.bfloat16, 1e-2, marks=pytest.mark.slow),
        ("bottlenecks", torch.float32, 1e-5),
    ],
)
def test_a_resnet_is_as_near_to_float64_as_before(name: str, dtype: torch.dtype, floor: float) -> None:
    """Triton's interpreter truncates to bfloat16 where a GPU rounds."""
    plain, fused = two_of(name)
    x = image_like((4, 3, SIDES[name]), 0)
    exact = numbers_of(deepcopy(plain).double(), x.double(), torch.float64)
    before, now = (numbers_of(encoder, x, dtype) for encoder in (plain, fused))
    assert list(now) == list(exact)
    for key, number in exact.items():
        allowed = 4 * error(before[key], number) + floor
        assert error(now[key], number) < allowed, key


def numbers_of(encoder: nn.Module, x: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
    """Features, gradients and running statistics of a step."""
    with torch.autocast(DEVICE, dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        features_ND = encoder(x)
    (features_ND * features_ND.detach().roll(1, dims=0)).sum().backward()
    gradients = {name: parameter.grad for name, parameter in encoder.named_parameters() if parameter.grad is not None}
    return {"features": features_ND.detach(), **gradients, **{n: b.double() for n, b in encoder.named_buffers()}}


def two_of(name: str) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    if name == "bottlenecks":
        resnet = timm.models.resnet
        plain = resnet.ResNet(
            resnet.Bottleneck, (1, 1, 1, 1), channels=(8, 16, 16, 32), num_classes=0, zero_init_last=False
        )
    else:
        plain = build_encoder(name, image_size=16)
    plain = plain.to(DEVICE, memory_format=torch.channels_last)
    fused = deepcopy(plain)
    assert parts_to_fuse(fused)
    fuse_norms(fused)
    return plain, fused


@pytest.mark.parametrize("name", ["resnet-mini", "bottlenecks"])
def test_every_norm_is_fused_and_weight_names_and_evaluation_stay(name: str) -> None:
    plain, fused = two_of(name)
    norms = [module for module in fused.modules() if isinstance(module, nn.BatchNorm2d)]
    assert norms
    assert all(type(norm) is FusedNorm for norm in norms)
    assert list(fused.state_dict()) == list(plain.state_dict())
    x = image_like((4, 3, 16), 0)
    with torch.no_grad():
        assert torch.equal(fused.eval()(x), plain.eval()(x))


def test_other_networks_are_left_alone() -> None:
    attentive = timm.create_model("seresnet18" if timm.is_model("seresnet18") else "resnetrs50", num_classes=0)
    assert not parts_to_fuse(attentive)
    fuse_norms(attentive)
    blocks = [block for stage in (attentive.layer1, attentive.layer2) for block in stage]
    assert all(type(block) in (timm.models.resnet.BasicBlock, timm.models.resnet.Bottleneck) for block in blocks)
    grouped = build_encoder("resnet18", norm="group")
    assert not parts_to_fuse(grouped)
    assert not parts_to_fuse(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)))
    fuse_norms(grouped)
    assert not any(isinstance(module, FusedNorm) for module in grouped.modules())
