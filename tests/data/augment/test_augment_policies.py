"""What every policy does, policies as text, the views of an Augmenter, and crops for streaming."""

import pytest
import torch
from augment_cases import MEAN, STD, random_images, smooth_images
from torch import Tensor

from contune.data.augment import (
    POLICIES,
    Augmenter,
    Mix,
    build_policy,
    eval_transform,
    normalize,
    resize,
)
from contune.data.augment.autoaugment import CropFlip
from contune.data.augment.ops import Params, Policy, crop_flip
from contune.data.augment.policies import Digits
from contune.data.augment.simaugment import SimAugment
from contune.data.decode import Piece, cut_out
from contune.device import torchvision
from contune.errors import UserError

TF = torchvision.transforms.functional
SIZE = 16


def policy(text: str) -> Policy:
    return build_policy(text, image_size=SIZE, channels=3)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# ---------------------------------------------------------------------------- every policy


@pytest.mark.parametrize(("channels", "height", "width"), [(3, 32, 32), (1, 8, 8), (3, 15, 20)])
@pytest.mark.parametrize("name", list(POLICIES))
def test_every_policy(name: str, channels: int, height: int, width: int) -> None:
    """Float views in [0, 1]; a slice of the parameters gives the slice of the views, so no sample sees another."""
    kind = build_policy(name, image_size=height, channels=channels)
    images = random_images(24, channels, height, width)
    before, state = images.clone(), torch.random.get_rng_state()
    params = kind.draw(24, generator())
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(len(value) == 24 for value in params.values())
    views = kind.apply(images, params)
    assert views.shape == (24, channels, height, height)
    assert views.dtype == torch.float32
    assert views.min() >= 0
    assert views.max() <= 1
    assert torch.equal(images, before)
    assert torch.equal(views, kind.apply(images, kind.draw(24, generator())))
    parts = [
        kind.apply(images[i : i + 8], {name: value[i : i + 8] for name, value in params.items()}) for i in (0, 8, 16)
    ]
    torch.testing.assert_close(torch.cat(parts), views, rtol=0, atol=1e-6)
    changed = torch.cat([images[:1], 255 - images[1:]])
    assert torch.equal(kind.apply(changed, params)[0], views[0])
    assert kind.apply(images[:0], kind.draw(0, generator())).shape == (0, channels, height, height)


def test_digits_moves_pixels_as_torchvision_does() -> None:
    kind = Digits(image_size=9, channels=1, rotation=20, translation=0.2, scale=(0.7, 1.3), shear=20, brightness=0)
    images = random_images(20, 1, 9, 9)
    params = kind.draw(20, generator(3)) | {"contrast": torch.ones(20)}
    for row, ours in enumerate(kind.apply(images, params)):
        theirs = TF.affine(
            images[row] / 255,
            angle=params["angle"][row].item(),
            translate=params["translation"][row].tolist(),
            scale=params["scale"][row].item(),
            shear=[params["shear"][row].item(), 0.0],
            interpolation=torchvision.transforms.InterpolationMode.BILINEAR,
        )
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-5)


# ---------------------------------------------------------------------------- policies as text


def test_options_are_parsed_by_their_types() -> None:
    kind = policy("simaugment blur=0 crop_scale=0.2,1")
    assert isinstance(kind, SimAugment)
    assert (kind.blur, kind.crop_scale, kind.image_size) == (0.0, (0.2, 1.0), SIZE)
    padded = policy("  crop-flip   padding=2 ")
    assert isinstance(padded, CropFlip)
    assert padded.padding == 2
    assert policy("simaugment size=8").image_size == 8


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "unknown augmentation"),
        ("autoaugmnt", "autoaugment"),
        ("autoaugment paddin=2", "padding"),
        ("none flip=0.5", "flip"),
        ("simaugment blur", "KEY=VALUE"),
        ("simaugment blur=much", "number"),
        ("simaugment size=half", "whole number"),
        ("simaugment size=0", "image_size"),
        ("simaugment channels=3", "channels"),
        ("crop-flip flip=1.5", "flip"),
        ("crop-flip flip=nan", "flip"),
        ("crop-flip padding=-1", "padding"),
        ("simaugment crop_scale=0.9,0.2", "crop_scale"),
        ("simaugment crop_scale=0,1", "crop_scale"),
        ("simaugment crop_scale=0.2", "crop_scale"),
        ("simaugment jitter=0.4,0.4", "jitter"),
        ("simaugment jitter=0.4,0.4,0.4,0.7", "hue"),
        ("simaugment interpolation=cubic", "bicubic"),
        ("simaugment blur_sigma=0,2", "blur_sigma"),
        ("digits shear=90", "shear"),
    ],
)
def test_bad_policies_are_refused(text: str, word: str) -> None:
    with pytest.raises(UserError, match=word):
        policy(text)


# ---------------------------------------------------------------------------- shared operations


@pytest.mark.parametrize(("channels", "height", "width", "padding"), [(3, 32, 32, 4), (1, 7, 11, 2), (3, 5, 4, 0)])
def test_crop_flip_equals_torchvision_in_any_memory_layout(
    channels: int, height: int, width: int, padding: int
) -> None:
    images = random_images(20, channels, height, width)
    start = torch.randint(0, 2 * padding + 1, (20, 2), generator=generator())
    flip = torch.arange(20) % 2 == 0
    result = crop_flip(images, start, flip, padding)
    for image, (top, left), mirrored, ours in zip(images, start.tolist(), flip.tolist(), result, strict=True):
        theirs = TF.crop(TF.pad(image, [padding] * 4), top, left, height, width)
        assert torch.equal(ours, TF.hflip(theirs) if mirrored else theirs)
    for other in (images.to(memory_format=torch.channels_last), images.mT.contiguous().mT):
        assert torch.equal(crop_flip(other, start, flip, padding), result)


@pytest.mark.parametrize(("height", "width", "size"), [(40, 31, 16), (9, 9, 20), (16, 16, 16)])
def test_resize_and_eval_transform_equal_torchvision(height: int, width: int, size: int) -> None:
    images = random_images(4, 3, height, width)
    theirs = TF.resize(images, [size, size], antialias=True)
    assert torch.equal(resize(images, size), theirs)
    normal = TF.normalize(theirs / 255, MEAN, STD)
    torch.testing.assert_close(eval_transform(images, size, MEAN, STD), normal, rtol=0, atol=1e-6)


# ---------------------------------------------------------------------------- the Augmenter


def test_gradients_flow_after_an_evaluation_in_inference_mode() -> None:
    mean, std = (0.11, 0.12, 0.13), (0.21, 0.22, 0.23)
    with torch.inference_mode():
        eval_transform(random_images(2, 3, SIZE, SIZE), SIZE, mean, std)
    images = torch.rand(2, 3, SIZE, SIZE, requires_grad=True)
    normalize(images, mean, std).sum().backward()
    assert images.grad is not None
    torch.testing.assert_close(images.grad[0, :, 0, 0], 1 / torch.tensor(std))


def test_ranks_with_slices_of_one_draw_see_the_whole_batch() -> None:
    kind = policy("autoaugment")
    augmenter = Augmenter([kind, kind, policy("simaugment")], MEAN, STD)
    images = random_images(8, 3, SIZE, SIZE)
    whole = augmenter.apply(images, augmenter.draw(8, generator(1)))
    rows = (slice(4), slice(4, 8))
    ranks = [augmenter.apply(images[half], augmenter.draw(8, generator(1), half)) for half in rows]
    for view, parts in zip(whole, zip(*ranks, strict=True), strict=True):
        torch.testing.assert_close(torch.cat(parts), view, rtol=0, atol=1e-5)


# ---------------------------------------------------------------------------- crops for streaming


def streamed(augmenter: Augmenter, images_BCHW: Tensor, params: list[Params]) -> list[Tensor]:
    """The views of crops (V, B, C, S, S) as workers cut them out of the decoded images."""
    crops, (height, width) = augmenter.crops(params), images_BCHW.shape[2:]
    x = [
        torch.from_numpy(cut_out(image.permute(1, 2, 0).numpy(), crops.pieces(row, height, width), height, width, SIZE))
        for row, image in enumerate(images_BCHW)
    ]
    return augmenter.apply(torch.stack(x, dim=1).movedim(-1, -3).contiguous(), params)


def test_views_of_crops_are_the_views_of_whole_images() -> None:
    """Half a level of rounding in the crop, which the strongest jitter brightens 1.8-fold three times over."""
    images = smooth_images(12, 3, 40, 60) // 2 + 60  # overshoot between the two axes would be clamped
    plain = Augmenter([policy("simaugment jitter_probability=0 gray=0 blur=0")], (0, 0, 0), (1, 1, 1))
    params = plain.draw(12, generator())
    assert params[0]["flip"].any()
    assert (streamed(plain, images, params)[0] - plain.apply(images, params)[0]).abs().max() < 1.5 / 255
    kind, weak = policy("simaugment"), policy("crop-flip")
    augmenter = Augmenter([kind, weak, kind, build_policy("simaugment", image_size=8, channels=3)], MEAN, STD)
    params = augmenter.draw(12, generator())
    ours, theirs = streamed(augmenter, images, params), augmenter.apply(images, params)
    assert [view.shape[-1] for view in ours] == [view.shape[-1] for view in theirs] == [SIZE, SIZE, SIZE, 8]
    for view in (0, 2):
        off = (ours[view] - theirs[view]).abs() * 255 * min(STD)
        assert off.mean() < 1.0
        assert off.quantile(0.999) < 1.8**3
    assert (ours[1] - theirs[1]).abs().max() < 1.01 / 255 / min(STD), "a level of the resize at most"
    assert augmenter.crops(params).pieces(0, 40, 60)[1] == Piece(0, 0, 40, 60, "bilinear")


# ---------------------------------------------------------------------------- CutMix and Mixup


@pytest.mark.parametrize("kind", ["cutmix", "mixup"])
def test_mixed_views_are_what_their_labels_say(kind: str) -> None:
    """Image i has the value i and the class i, so a view's mean and its labels both say how much of whom is in it."""
    num, value_N = 64, torch.arange(64.0)
    views = [value_N[:, None, None, None].expand(num, 3, size, size).contiguous() for size in (SIZE, SIZE)]
    (first, second), labels_NK = Mix(kind, 1.0, 0.7, num)(views, torch.arange(num), generator())
    assert labels_NK is not None
    torch.testing.assert_close(labels_NK.sum(dim=1), torch.ones(num))
    expected_N = labels_NK @ value_N
    torch.testing.assert_close(first.mean(dim=(1, 2, 3)), expected_N, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(second.mean(dim=(1, 2, 3)), expected_N, rtol=1e-4, atol=1e-3)
    share_N = 1 - labels_NK.diagonal()
    assert 0.4 < (share_N > 0).float().mean() < 0.9
    if kind == "mixup":
        return
    assert not torch.equal(first, second), "the square lies elsewhere in each view"
    for view, own in zip(first, value_N, strict=True):
        pasted = (view[0] != own).nonzero()
        if len(pasted):  # a filled square
            height, width = (pasted.amax(0) - pasted.amin(0) + 1).tolist()
            assert (height, len(pasted)) == (width, height * width)
            assert len(view.unique()) == (1 if len(pasted) == SIZE**2 else 2)
