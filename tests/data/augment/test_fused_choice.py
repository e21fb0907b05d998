"""When the Augmenter takes the kernels, what it says when it cannot, and that views come out the same either way."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from fused_cases import DEVICE, MEAN, STD, assert_rounded, blobs
from torch import Tensor

from contune.data.augment import Augmenter, Params, build_policy, fused, slice_params, views
from contune.errors import UserError

IMAGES = blobs(3, 3, 16)


def augmenter_of(*names: str, backend: str = "fused") -> Augmenter:
    policies = {name: build_policy(name, image_size=16, channels=3) for name in names}
    return Augmenter([policies[name] for name in names], MEAN, STD, backend)


def drawn(augmenter: Augmenter, num: int = 3) -> list[Params]:
    return augmenter.draw(num, torch.Generator(DEVICE).manual_seed(0))


@pytest.fixture
def fused_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the policies that kernels were asked for."""
    calls: list[str] = []
    original: Callable[..., Tensor] = fused.fused_views

    def recorded(policy: Any, *args: Any, **options: Any) -> Tensor:
        calls.append(type(policy).__name__)
        return original(policy, *args, **options)

    monkeypatch.setattr(views, "fused_views", recorded)
    return calls


@pytest.mark.parametrize(
    "names",
    [
        ("autoaugment", "autoaugment"),
        ("autoaugment-authors", "autoaugment", "autoaugment-authors"),
        ("crop-flip", "none", "crop-flip"),
        ("none", "none"),
        ("autoaugment",),
    ],
)
def test_both_backends_give_the_same_views(names: tuple[str, ...], fused_calls: list[str]) -> None:
    by_kernel, by_torch = augmenter_of(*names), augmenter_of(*names, backend="torch")
    params = drawn(by_kernel)
    ours = by_kernel.apply(IMAGES.to(DEVICE), params)
    assert len(fused_calls) == len(set(names))
    theirs = by_torch.apply(IMAGES.to(DEVICE), params)
    assert len(fused_calls) == len(set(names))
    assert [view.shape for view in ours] == [(3, 3, 16, 16)] * len(names)
    # On CUDA a sine or a tie may differ in torch itself, and so may the last bit of a division.
    assert ((torch.cat(ours) - torch.cat(theirs)).abs() > 1e-5).float().mean() <= 1e-3
    for dtype in (torch.float32, torch.bfloat16):
        stacked = by_kernel.stacked(IMAGES.to(DEVICE), params, dtype)
        assert stacked.dtype == dtype
        assert stacked.is_contiguous(memory_format=torch.channels_last)
        assert_rounded(stacked, torch.cat(ours))


@pytest.mark.parametrize("backend", ["fused", "torch"])
def test_views_of_one_policy_are_parts_of_one_tensor(backend: str) -> None:
    augmenter = augmenter_of("crop-flip", "crop-flip", backend=backend)
    first, second = augmenter.apply(IMAGES.to(DEVICE), drawn(augmenter))
    assert first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()


def test_auto_takes_kernels_on_cuda_only(fused_calls: list[str]) -> None:
    augmenter = augmenter_of("autoaugment", "digits", backend="auto")
    augmenter.apply(IMAGES.to(DEVICE), drawn(augmenter))
    assert fused_calls == (["AutoAugment"] if DEVICE.type == "cuda" else [])


def test_views_on_the_cpu_are_contiguous_float32_by_default() -> None:
    augmenter = augmenter_of("autoaugment", "crop-flip", backend="auto")
    params = augmenter.draw(3, torch.Generator().manual_seed(0))
    for view in augmenter.apply(IMAGES, params):
        assert view.dtype == torch.float32
        assert view.is_contiguous()
    assert augmenter.stacked(IMAGES, params, torch.bfloat16).dtype == torch.bfloat16


def test_ranks_with_slices_of_one_draw_see_the_whole_batch() -> None:
    augmenter = augmenter_of("autoaugment", "autoaugment")
    images, params = blobs(6, 3, 16).to(DEVICE), drawn(augmenter, 6)
    whole = augmenter.apply(images, params)
    for start in (0, 3):
        part = augmenter.apply(images[start : start + 3], [slice_params(view, start, start + 3) for view in params])
        for view, slice_of_it in zip(whole, part, strict=True):
            assert torch.equal(view[start : start + 3], slice_of_it)


def test_parameters_drawn_together_are_not_copied() -> None:
    rows = torch.arange(12).view(6, 2)
    joined = views._joined([rows[:3], rows[3:]])
    assert torch.equal(joined, rows)
    assert joined.data_ptr() == rows.data_ptr()
    assert torch.equal(views._joined([rows[:2], rows[3:5]]), rows[[0, 1, 3, 4]])
    assert torch.equal(views._joined([rows[3:], rows[:3]]), rows[[3, 4, 5, 0, 1, 2]])


def test_resizing_is_left_to_torch() -> None:
    for name in ("autoaugment", "autoaugment-authors", "crop-flip", "none"):
        policy = build_policy(name, image_size=16, channels=3)
        assert fused.is_supported(policy, IMAGES.to(DEVICE))
        assert not fused.is_supported(policy, IMAGES[:, :, :12].to(DEVICE))
    large = torch.zeros(1, 3, 160, 160, dtype=torch.uint8, device=DEVICE)
    assert not fused.is_supported(build_policy("autoaugment", image_size=160, channels=3), large)
    assert not fused.is_supported(build_policy("autoaugment-authors", image_size=160, channels=3), large)
    assert fused.is_supported(build_policy("crop-flip", image_size=160, channels=3), large)


def message(augmenter: Augmenter, images: Tensor) -> str:
    with pytest.raises(UserError) as error:
        augmenter.apply(images.to(DEVICE), drawn(augmenter))
    return str(error.value)


def test_what_cannot_be_done_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert message(augmenter_of("digits"), IMAGES) == (
        "backend='fused' has no kernel for Digits; backend='auto' takes another"
    )
    assert message(augmenter_of("crop-flip"), IMAGES[:, :, :12]) == (
        "backend='fused' has no kernel for CropFlip of 16 pixels from 12×16; backend='auto' takes another"
    )
    monkeypatch.setattr(fused, "HAS_TRITON", False)
    assert "needs the package triton" in message(augmenter_of("crop-flip"), IMAGES)
    with pytest.raises(UserError, match="unknown backend 'fussed'; did you mean fused"):
        augmenter_of("none", backend="fussed")


def test_the_interpreter_has_to_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "interprets_triton", lambda: False)
    policy = build_policy("none", image_size=16, channels=3)
    assert not fused.is_supported(policy, IMAGES)
    with pytest.raises(UserError, match="needs a CUDA device and the images are on cpu"):
        fused.check_supported(policy, IMAGES)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["autoaugment", "autoaugment-authors", "crop-flip"])
def test_a_graph_replays_with_other_images_and_parameters(name: str) -> None:
    augmenter = augmenter_of(name, name)
    images, params = blobs(64, 3, 16).to(DEVICE), drawn(augmenter, 64)
    augmenter.stacked(images, params)  # compiles the kernel and makes the constants
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = augmenter.stacked(images, params)
    fresh = augmenter.draw(64, torch.Generator(DEVICE).manual_seed(1))
    images.copy_(blobs(64, 3, 16, seed=8))
    for old, new in zip(params, fresh, strict=True):
        for key, value in old.items():
            value.copy_(new[key])
    graph.replay()
    assert torch.equal(captured, augmenter.stacked(images, fresh))
