"""The Triton kernels against the torch policies with the same parameters.

Without a GPU the kernels run through Triton's interpreter, some milliseconds per view.
"""

from collections.abc import Iterator
from itertools import permutations
from typing import Any, Literal

import pytest
import torch
from augment_cases import MAGNITUDES, MEAN, STD, random_images, smooth_images
from torch import Tensor

from contune.data.augment import POLICIES, Augmenter, build_policy, kernels, normalize
from contune.data.augment.autoaugment import AutoAugment, CropFlip, Op
from contune.data.augment.ops import Params, Policy
from contune.data.augment.simaugment import SimAugment

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
MOVES = (Op.SHEAR_X, Op.SHEAR_Y, Op.TRANSLATE_X, Op.TRANSLATE_Y, Op.ROTATE)
TIES = 1e-3
"""The share of moved pixels that may come from the neighbor: a sine's last bit decides where a coordinate is a tie."""
ATOL = 5e-5
"""Of SimAugment in [0, 1]. The strengths of the jitter multiply the rounding errors of the crop's two products."""


def fused(policy: Policy, images: Tensor, params: Params, dtype: torch.dtype = torch.float32) -> Tensor:
    """The kernel's views, back on the CPU."""
    channels = images.shape[1]
    on_device = {name: value.to(DEVICE) for name, value in params.items()}
    views = kernels.fused_views(policy, images.to(DEVICE), on_device, MEAN[:channels], STD[:channels], dtype)
    assert views.is_contiguous(memory_format=torch.channels_last)
    return views.cpu()


def reference(policy: Policy, images: Tensor, params: Params) -> Tensor:
    channels, num_views = images.shape[1], len(params["flip"]) // len(images)
    return normalize(policy.apply(images.repeat(num_views, 1, 1, 1), params), MEAN[:channels], STD[:channels])


def drawn(policy: Policy, num: int, seed: int = 0) -> Params:
    return policy.draw(num, torch.Generator().manual_seed(seed))


# ---------------------------------------------------------------------------- crop and flip, AutoAugment


def assert_equal_but_for_ties(policy: Policy, images: Tensor, params: Params) -> None:
    """Equal to the bit, except for ties where an operation moves pixels."""
    shares = (fused(policy, images, params) != reference(policy, images, params)).flatten(1).float().mean(1)
    moved = torch.isin(params["op"], torch.tensor(MOVES)).any(1) if "op" in params else torch.zeros(len(shares)).bool()
    assert shares[~moved].max() == 0
    assert not moved.any() or shares[moved].mean() <= TIES


def with_steps(policy: Policy, steps: list[tuple[Op, Op]]) -> Params:
    """Drawn crops and flips, then these operations with magnitudes that vary."""
    values = [[MAGNITUDES[op][(i + op) % 4] for op in s] for i, s in enumerate(steps)]
    ops = torch.tensor([[int(op) for op in pair] for pair in steps])
    return drawn(policy, len(steps)) | {"op": ops, "magnitude": torch.tensor(values)}


@pytest.mark.parametrize(("channels", "size"), [(3, 17), (1, 8)])
def test_every_operation(channels: int, size: int) -> None:
    policy = AutoAugment(image_size=size, channels=channels)
    params = with_steps(policy, [(op, Op.IDENTITY) for op in Op for _ in range(4)])
    assert_equal_but_for_ties(policy, smooth_images(len(params["op"]), channels, size, size), params)


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_pairs_of_operations(every: int) -> None:
    policy = AutoAugment(image_size=12, channels=3, padding=1)
    params = with_steps(policy, [(first, second) for first in Op for second in Op][::every])
    assert_equal_but_for_ties(policy, smooth_images(len(params["op"]), 3, 12, 12), params)


@pytest.mark.parametrize("op", [Op.CONTRAST, Op.AUTOCONTRAST, Op.EQUALIZE, Op.SHARPNESS])
def test_images_of_one_level_and_of_two(op: Op) -> None:
    images = torch.stack([torch.full((3, 17, 17), level) for level in (0, 41, 255, 0, 41, 255)]).to(torch.uint8)
    images[3:, :, 5:9, 2:] = 200
    policy = AutoAugment(image_size=17, channels=3, padding=0)
    assert_equal_but_for_ties(policy, images, with_steps(policy, [(op, Op.IDENTITY)] * len(images)))


@pytest.mark.parametrize(
    ("channels", "size", "padding"), [(3, 32, 4), (1, 28, 4), (3, 33, 0), (1, 8, 3), (3, 8, 11), (3, 40, 1)]
)
def test_crop_flip_is_equal_to_the_bit(channels: int, size: int, padding: int) -> None:
    policy = CropFlip(image_size=size, channels=channels, padding=padding)
    assert_equal_but_for_ties(policy, smooth_images(4, channels, size, size), drawn(policy, 12))


@pytest.mark.parametrize("kind", [CropFlip, AutoAugment])
def test_drawn_views_in_half_precision_and_of_strided_images(kind: type[CropFlip]) -> None:
    policy = kind(image_size=16, channels=3)
    params, images = drawn(policy, 12), smooth_images(4, 3, 16, 16)
    assert_equal_but_for_ties(policy, images, params)
    half, exact = fused(policy, images, params, torch.bfloat16), fused(policy, images, params)
    # Triton's interpreter truncates to bfloat16; a GPU rounds.
    torch.testing.assert_close(half.float(), exact, rtol=2.0**-7 if DEVICE.type == "cpu" else 2.0**-8, atol=0)
    window = smooth_images(16, 3, 20, 20).contiguous(memory_format=torch.channels_last)[::4, :, 2:18, 3:19]
    assert torch.equal(fused(policy, window, params), fused(policy, window.contiguous(), params))


@pytest.mark.parametrize(("channels", "size"), [(3, 9), (1, 33)])
@pytest.mark.parametrize("kind", [CropFlip, AutoAugment, SimAugment])
def test_every_number_is_written_and_none_beyond(
    kind: type[Policy], channels: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = kind(image_size=size, channels=channels)
    poisoned = torch.full((6, channels, size, size), float("nan"), device=DEVICE)
    poisoned = poisoned.contiguous(memory_format=torch.channels_last)
    images, params = smooth_images(2, channels, size, size), drawn(policy, 4)
    monkeypatch.setattr(torch, "empty", lambda *_, **__: poisoned[1:5])
    fused(policy, images, params)
    assert poisoned[1:5].isfinite().all()
    assert poisoned[[0, 5]].isnan().all()


# ---------------------------------------------------------------------------- SimAugment

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


def assert_close(policy: SimAugment, images: Tensor, params: Params) -> None:
    ours, theirs = fused(policy, images, params), reference(policy, images, params)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=ATOL / min(STD))


@pytest.mark.parametrize(("height", "width", "size"), [(40, 48, 28), (128, 9, 5), (1, 1, 1), (9, 80, 64)])
@pytest.mark.parametrize(("channels", "interpolation"), [(1, "bilinear"), (3, "bicubic")])
def test_every_size(interpolation: Any, channels: int, height: int, width: int, size: int) -> None:
    policy = SimAugment(image_size=size, channels=channels, interpolation=interpolation, blur=1.0, solarize=0.5)
    images = random_images(2, channels, height, width)
    assert kernels.fits(policy, images)
    assert_close(policy, images, drawn(policy, 4))


@pytest.mark.parametrize("name", list(ALWAYS))
def test_each_option_alone(name: str) -> None:
    policy = SimAugment(image_size=20, channels=3, **NOTHING | ALWAYS[name])
    assert_close(policy, random_images(2, 3, 24, 17), drawn(policy, 2))


def test_jitter_in_every_order() -> None:
    policy = SimAugment(image_size=16, channels=3, **NOTHING | {"jitter_probability": 1.0})
    params = drawn(policy, 24) | {"jitter_order": torch.tensor(list(permutations(range(4))))}
    assert_close(policy, random_images(24, 3, 16, 16), params)


def test_hue_of_gray_flat_and_pure_colors() -> None:
    policy = SimAugment(image_size=16, channels=3, **NOTHING | {"jitter_probability": 1.0, "jitter": (0, 0, 0, 0.5)})
    images = random_images(8, 3, 16, 16)
    images[0], images[1, 1:], images[2] = 77, 0, images[2, :1]
    images[3, 0], images[4, 1], images[5, 2] = images[3, 1], images[4, 2], images[5, 0]  # two equally bright
    images[6] = torch.where(images[6] < 128, 0, 255)
    turn = torch.tensor([-0.5, 0.5, 1 / 3, -1 / 3, 1 / 6, 0.25, 0.5, 0.0])
    assert_close(policy, images, drawn(policy, 8) | {"jitter_turn": turn})


def test_sides_halfway_between_two_pixels_round_as_in_torch() -> None:
    half = torch.tensor([2.5, 9.5, 10.5, 31.5])
    policy = SimAugment(image_size=32, channels=1, **NOTHING)
    params = drawn(policy, 4)
    params["crop_area"] = (half**2 / 1024)[:, None].expand(4, 10)  # not contiguous, which a caller may do
    params["crop_aspect"] = torch.ones_like(params["crop_area"])
    assert_close(policy, random_images(4, 1, 32, 32), params)


# ---------------------------------------------------------------------------- the choice of a kernel


def test_which_policies_and_sizes_have_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def fits(text: str, size: int, height: int, width: int) -> bool:
        images = torch.zeros(1, 3, height, width, dtype=torch.uint8, device=DEVICE)
        return kernels.fits(build_policy(text, image_size=size, channels=3), images)

    assert all(fits(name, 16, 16, 16) for name in POLICIES if name not in ("none", "digits"))
    assert not any(fits(name, 16, 16, 16) for name in ("none", "digits"))
    for name in ("autoaugment", "crop-flip"):
        assert fits(name, 128, 128, 128)
        assert not fits(name, 160, 160, 160)
        assert not fits(name, 16, 12, 16)
    assert fits("simaugment", 64, 128, 100)
    assert not fits("simaugment", 32, 129, 32)
    assert not fits("simaugment", 65, 65, 65)
    monkeypatch.setattr(kernels, "interprets_triton", lambda: False)
    assert fits("crop-flip", 16, 16, 16) == (DEVICE.type == "cuda")


@pytest.mark.parametrize("names", [("autoaugment",) * 2, ("crop-flip", "none", "crop-flip"), ("digits", "autoaugment")])
def test_both_backends_give_the_same_views(names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    policies = {name: build_policy(name, image_size=16, channels=3) for name in names}
    launched: list[Policy] = []
    fused_views = kernels.fused_views
    monkeypatch.setattr(kernels, "fused_views", lambda policy, *rest: fused_views(noted(policy), *rest))

    def noted(policy: Policy) -> Policy:
        launched.append(policy)
        return policy

    def views(backend: Literal["auto", "torch", "fused"]) -> Tensor:
        augmenter = Augmenter([policies[name] for name in names], MEAN, STD, backend)
        params = augmenter.draw(3, torch.Generator(DEVICE).manual_seed(0))
        return torch.cat(augmenter.apply(smooth_images(3, 3, 16, 16).to(DEVICE), params))

    with_kernel = [policy for name, policy in policies.items() if name not in ("none", "digits")]
    ours = views("fused")
    assert launched == with_kernel
    # On CUDA a sine or a tie may differ in torch itself, and so may the last bit of a division.
    assert ((ours - views("torch")).abs() > 1e-5).float().mean() <= 1e-3
    assert launched == with_kernel
    views("auto")
    assert launched == with_kernel * (2 if DEVICE.type == "cuda" else 1)


# ---------------------------------------------------------------------------- on a CUDA device


@pytest.fixture
def _debug_mode_restored() -> Iterator[None]:
    yield
    torch.cuda.set_sync_debug_mode("default")


def batch(name: str, backend: Any) -> tuple[Augmenter, Tensor, list[Params]]:
    policy = build_policy(name, image_size=32, channels=3)
    augmenter = Augmenter([policy, policy], MEAN, STD, backend)
    images = smooth_images(256, 3, 32, 32).to(DEVICE)
    params = augmenter.draw(256, torch.Generator(DEVICE).manual_seed(0))
    augmenter.apply(images, params)  # compiles kernels and makes the constants
    return augmenter, images, params


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["auto", "torch"])
@pytest.mark.parametrize("name", list(POLICIES))
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature")
@pytest.mark.usefixtures("_debug_mode_restored")
def test_views_are_those_of_the_cpu_and_a_graph_replays_without_waiting(name: str, backend: str) -> None:
    augmenter, images, params = batch(name, backend)
    ours = torch.cat(augmenter.apply(images, params)).cpu()
    on_cpu = [{key: value.cpu() for key, value in view.items()} for view in params]
    theirs = torch.cat(augmenter.apply(images.cpu(), on_cpu))
    # Sines, sums and divisions round differently, so one value in 10,000 may be off by a pixel or a level.
    assert ((ours - theirs).abs() * min(STD) > 1e-4).float().mean() < 1e-4
    graph = torch.cuda.CUDAGraph()
    torch.cuda.set_sync_debug_mode("error")
    with torch.cuda.graph(graph):
        captured = augmenter.apply(images, params)
    fresh = augmenter.draw(256, torch.Generator(DEVICE).manual_seed(2))
    for old, new in zip(params, fresh, strict=True):
        for key, value in old.items():
            value.copy_(new[key])
    graph.replay()
    expected = augmenter.apply(images, fresh)
    torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(torch.cat(captured), torch.cat(expected), rtol=0, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize(("channels", "side", "size"), [(3, 32, 32), (1, 28, 28), (3, 64, 64), (3, 96, 64)])
def test_thousands_of_drawn_views(channels: int, side: int, size: int) -> None:
    automatic = AutoAugment(image_size=side, channels=channels)
    assert_equal_but_for_ties(automatic, smooth_images(2000, channels, side, side), drawn(automatic, 4000))
    policy = SimAugment(image_size=size, channels=channels, solarize=0.2)
    assert_close(policy, random_images(2000, channels, side, side), drawn(policy, 4000))
