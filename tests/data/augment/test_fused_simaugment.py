"""SimAugment's kernel against SimAugment.apply with the same parameters; without a GPU by Triton's interpreter."""

from collections.abc import Iterator
from itertools import permutations
from typing import Any

import pytest
import torch
from torch import Tensor

from contune.data.augment import Params, normalise
from contune.data.augment.kernels import simaugment
from contune.data.augment.simaugment import SimAugment

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ATOL = 5e-5
"""In [0, 1]. The strengths of the jitter multiply what the crop's two products round off."""
NOTHING: dict[str, Any] = {"jitter_probability": 0.0, "gray": 0.0, "blur": 0.0, "solarize": 0.0, "flip": 0.0}
ALWAYS: dict[str, dict[str, Any]] = {
    "jitter": {"jitter_probability": 1.0},
    "no hue": {"jitter_probability": 1.0, "jitter": (0.4, 0.4, 0.4, 0.0)},
    "strong jitter": {"jitter_probability": 1.0, "jitter": (2.0, 2.0, 2.0, 0.5)},
    "gray": {"gray": 1.0},
    "blur": {"blur": 1.0},
    "narrow blur": {"blur": 1.0, "blur_sigma": (1e-9, 0.3)},
    "wide blur": {"blur": 1.0, "blur_sigma": (5.0, 40.0)},
    "solarize": {"solarize": 1.0},
    "flip": {"flip": 1.0},
    "small crops": {"crop_scale": (0.001, 0.02)},
    "crops that seldom fit": {"crop_scale": (0.7, 1.0), "crop_ratio": (1 / 3, 3.0)},
    "crops of another shape": {"crop_scale": (0.9, 1.0), "crop_ratio": (1.5, 2.0)},
}


def random_images(num: int, channels: int, height: int, width: int) -> Tensor:
    generator = torch.Generator().manual_seed(height * width + channels)
    return torch.randint(0, 256, (num, channels, height, width), generator=generator, dtype=torch.uint8).to(DEVICE)


def drawn(policy: SimAugment, num: int, seed: int = 0) -> Params:
    return policy.draw(num, torch.Generator(DEVICE).manual_seed(seed))


def fused(
    policy: SimAugment,
    images_BCHW: Tensor,
    params: Params,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    shape = (len(params["flip"]), policy.channels, policy.image_size, policy.image_size)
    poisoned = torch.full(shape, float("nan"), dtype=dtype, device=DEVICE).contiguous(memory_format=torch.channels_last)
    simaugment.launch(policy, images_BCHW, params, mean, std, poisoned)
    return poisoned


def assert_same(policy: SimAugment, images_BCHW: Tensor, params: Params) -> None:
    num_views = len(params["flip"]) // len(images_BCHW)
    ours = fused(policy, images_BCHW, params, (0.0,) * policy.channels, (1.0,) * policy.channels)
    theirs = policy.apply(images_BCHW.repeat(num_views, 1, 1, 1), params)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=ATOL)


@pytest.mark.parametrize(("height", "width", "size"), [(32, 32, 32), (28, 28, 28), (40, 48, 32), (33, 33, 24)])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
def test_every_step_at_every_size(interpolation: Any, channels: int, height: int, width: int, size: int) -> None:
    policy = SimAugment(image_size=size, channels=channels, interpolation=interpolation, solarize=0.5)
    assert_same(policy, random_images(2, channels, height, width), drawn(policy, 4))


@pytest.mark.parametrize(("height", "width", "size"), [(128, 9, 5), (1, 1, 1), (9, 80, 64)])
def test_sizes_at_the_ends(height: int, width: int, size: int) -> None:
    policy = SimAugment(image_size=size, channels=3, blur=1.0)
    images = random_images(2, 3, height, width)
    assert simaugment.fits(policy, images)
    assert_same(policy, images, drawn(policy, 2))


@pytest.mark.parametrize(("height", "width", "size"), [(129, 32, 32), (32, 129, 32), (32, 32, 65)])
def test_what_a_program_cannot_hold_does_not_fit(height: int, width: int, size: int) -> None:
    policy = SimAugment(image_size=size, channels=3)
    assert not simaugment.fits(policy, random_images(1, 3, height, width))


@pytest.mark.parametrize("name", list(ALWAYS))
def test_each_option_alone(name: str) -> None:
    policy = SimAugment(image_size=20, channels=3, **NOTHING | ALWAYS[name])
    assert_same(policy, random_images(3, 3, 24, 17), drawn(policy, 3))


@pytest.mark.parametrize("option", ["jitter_probability", "gray", "blur", "solarize"])
def test_each_option_missing(option: str) -> None:
    """What a policy never does is not done, even where the parameters of another policy say so."""
    options: dict[str, Any] = dict.fromkeys(NOTHING, 1.0)
    params = drawn(SimAugment(image_size=20, channels=3, **options), 2)
    policy = SimAugment(image_size=20, channels=3, **options | {option: 0.0})
    assert_same(policy, random_images(2, 3, 20, 20), params)


@pytest.mark.parametrize("channels", [1, 3])
def test_jitter_in_every_order(channels: int) -> None:
    orders = torch.tensor(list(permutations(range(4))), device=DEVICE)
    policy = SimAugment(image_size=16, channels=channels, **NOTHING | {"jitter_probability": 1.0})
    params = drawn(policy, 24) | {"jitter_order": orders}
    assert_same(policy, random_images(24, channels, 16, 16), params)


def test_hue_of_gray_flat_and_pure_colours() -> None:
    policy = SimAugment(image_size=16, channels=3, **NOTHING | {"jitter_probability": 1.0, "jitter": (0, 0, 0, 0.5)})
    images = random_images(8, 3, 16, 16)
    images[0], images[1, 1:], images[2] = 77, 0, images[2, :1]
    images[3, 0], images[4, 1], images[5, 2] = images[3, 1], images[4, 2], images[5, 0]  # two equally bright
    images[6] = torch.where(images[6] < 128, 0, 255)
    turn = torch.tensor([-0.5, 0.5, 1 / 3, -1 / 3, 1 / 6, 0.25, 0.5, 0.0], device=DEVICE)
    assert_same(policy, images, drawn(policy, 8) | {"jitter_turn": turn})


def test_sides_halfway_between_two_pixels_round_as_torch() -> None:
    half = torch.tensor([2.5, 9.5, 10.5, 31.5], device=DEVICE)
    policy = SimAugment(image_size=32, channels=1, **NOTHING)
    params = drawn(policy, 4)
    params["crop_area"] = (half**2 / 1024)[:, None].expand(4, 10)  # not contiguous, which a caller may do
    params["crop_aspect"] = torch.ones_like(params["crop_area"])
    assert_same(policy, random_images(4, 1, 32, 32), params)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("channels", [1, 3])
def test_views_of_a_strided_batch_are_normalised_in_either_type(channels: int, dtype: torch.dtype) -> None:
    mean, std = (0.4, 0.5, 0.6)[:channels], (0.2, 0.25, 0.3)[:channels]
    policy = SimAugment(image_size=16, channels=channels)
    images = random_images(4, channels, 20, 20)[::2]
    params = drawn(policy, 6)
    ours = fused(policy, images, params, mean, std, dtype)
    theirs = normalise(policy.apply(images.repeat(3, 1, 1, 1), params), mean, std)
    # Either may round a number between two of bfloat16's to the other one: 2^-8 of up to 4.
    tolerance = ATOL / min(std) if dtype == torch.float32 else 4 * 2**-8
    torch.testing.assert_close(ours.float(), theirs, rtol=0, atol=tolerance)


@pytest.fixture
def _debug_mode_restored() -> Iterator[None]:
    yield
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@pytest.mark.parametrize(("side", "size"), [(32, 32), (64, 64), (96, 64), (96, 32), (40, 28)])
@pytest.mark.parametrize("channels", [1, 3])
def test_two_thousand_images(channels: int, side: int, size: int) -> None:
    policy = SimAugment(image_size=size, channels=channels, solarize=0.2)
    assert_same(policy, random_images(2000, channels, side, side), drawn(policy, 4000))


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature")
@pytest.mark.usefixtures("_debug_mode_restored")
def test_a_graph_replays_with_new_parameters_and_waits_for_nothing() -> None:
    policy = SimAugment(image_size=32, channels=3, solarize=0.2)
    images, params, fresh = random_images(64, 3, 32, 32), drawn(policy, 128), drawn(policy, 128, seed=1)
    mean, std = (0.0,) * 3, (1.0,) * 3
    out = fused(policy, images, params, mean, std)  # compiles, and makes the constant
    graph = torch.cuda.CUDAGraph()
    torch.cuda.set_sync_debug_mode("error")
    with torch.cuda.graph(graph):
        simaugment.launch(policy, images, params, mean, std, out)
    torch.cuda.set_sync_debug_mode("default")
    for name, value in params.items():
        value.copy_(fresh[name])
    out.fill_(float("nan"))
    graph.replay()
    torch.testing.assert_close(out, policy.apply(images.repeat(2, 1, 1, 1), fresh), rtol=0, atol=ATOL)
