"""Crops made where images are decoded: the same boxes, and all that follows them is the policy's own."""

import pickle

import pytest
import torch
from torch import Tensor

from contune.data.augment import Augmenter, build_policy
from contune.data.augment.crops import begin_with_crops, crops_of
from contune.data.augment.policy import CropsFirst, Policy
from contune.data.cut import Piece, cut_out

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
SIZE = 16
CROPPING = ("simaugment", "simaugment-supervised")


def policy(name: str, **options: object) -> Policy:
    return build_policy(name, image_size=SIZE, channels=3, **options)


def random_images(num: int, height: int, width: int) -> Tensor:
    generator = torch.Generator().manual_seed(height * width)
    coarse = torch.rand(num, 3, 5, 5, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bicubic").clamp(0.1, 0.9)
    return (smooth * 255).to(torch.uint8)


def cut(images_BCHW: Tensor, pieces: list[list[Piece]]) -> Tensor:
    """(V, B, C, S, S), as a loader that streams hands them over."""
    height, width = images_BCHW.shape[2:]
    x = [
        torch.from_numpy(cut_out(image.permute(1, 2, 0).numpy(), chosen, height, width, SIZE))
        for image, chosen in zip(images_BCHW, pieces, strict=True)
    ]
    return torch.stack(x, dim=1).movedim(-1, -3).contiguous()


@pytest.mark.parametrize("name", CROPPING)
def test_boxes_are_those_of_the_policy(name: str) -> None:
    kind = policy(name)
    assert isinstance(kind, CropsFirst)
    params = [kind.draw(9, torch.Generator().manual_seed(seed)) for seed in (0, 1)]
    crops = crops_of([kind, kind], params)
    for height, width in ((40, 60), (60, 40), (17, 200)):
        for view, drawn in enumerate(params):
            start_B2, size_B2 = kind.boxes(drawn, height, width)
            for sample in range(9):
                piece = crops.pieces(sample, height, width)[view]
                assert [piece.top, piece.left] == start_B2[sample].tolist()
                assert [piece.height, piece.width] == size_B2[sample].tolist()
                assert piece.interpolation == kind.interpolation


def test_views_of_several_sizes_are_of_their_sizes_whoever_crops_them() -> None:
    large, small = policy("simaugment"), build_policy("simaugment", image_size=8, channels=3)
    augmenter, images_BCHW = Augmenter([large, large, small], MEAN, STD), random_images(5, 30, 40)
    params = augmenter.draw(5, torch.Generator().manual_seed(0))
    crops = crops_of(augmenter.policies, params)
    streamed = augmenter.apply(cut(images_BCHW, [crops.pieces(sample, 30, 40) for sample in range(5)]), params)
    assert [view.shape for view in streamed] == [view.shape for view in augmenter.apply(images_BCHW, params)]
    assert [view.shape[-1] for view in streamed] == [SIZE, SIZE, 8]


@pytest.mark.parametrize("name", CROPPING)
def test_cropped_first_and_finished_after_is_the_view_to_half_a_level(name: str) -> None:
    """Half a level of rounding in the crop, which the strongest jitter brightens 1.8-fold three times over."""
    kind = policy(name)
    augmenter = Augmenter([kind, kind], MEAN, STD)
    images = random_images(12, 40, 60)
    params = augmenter.draw(12, torch.Generator().manual_seed(0))
    crops = crops_of(augmenter.policies, params)
    cropped = cut(images, [crops.pieces(sample, 40, 60) for sample in range(12)])
    assert cropped.shape == (2, 12, 3, SIZE, SIZE)
    for ours, whole in zip(augmenter.apply(cropped, params), augmenter.apply(images, params), strict=True):
        off = (ours - whole).abs() * 255 * min(STD)
        assert off.mean() < 1.0
        assert off.quantile(0.999) < 1.8**3


def test_without_colour_changes_only_the_rounding_is_left() -> None:
    kind = policy("simaugment", jitter_probability=0, gray=0, blur=0)
    augmenter = Augmenter([kind], (0, 0, 0), (1, 1, 1))
    images = random_images(12, 40, 60)
    params = augmenter.draw(12, torch.Generator().manual_seed(0))
    crops = crops_of(augmenter.policies, params)
    cropped = cut(images, [crops.pieces(sample, 40, 60) for sample in range(12)])
    (ours,), (whole,) = augmenter.apply(cropped, params), augmenter.apply(images, params)
    assert params[0]["flip"].any()
    assert (ours - whole).abs().max() < 1.5 / 255


def test_views_without_a_crop_see_all_of_the_image() -> None:
    weak, strong = policy("crop-flip"), policy("simaugment")
    augmenter = Augmenter([weak, strong, weak], MEAN, STD)
    images = random_images(4, 40, 60)
    params = augmenter.draw(4, torch.Generator().manual_seed(0))
    crops = crops_of(augmenter.policies, params)
    pieces = [crops.pieces(sample, 40, 60) for sample in range(4)]
    assert all(chosen[0] == chosen[2] == Piece(0, 0, 40, 60, "bilinear") for chosen in pieces)
    ours, theirs = augmenter.apply(cut(images, pieces), params), augmenter.apply(images, params)
    for view in (0, 2):
        assert (ours[view] - theirs[view]).abs().max() < 1.01 / 255 / min(STD), "a level of the squash at most"


def test_crops_travel_and_are_small() -> None:
    kind = policy("simaugment")
    crops = crops_of([kind] * 3, [kind.draw(64, torch.Generator().manual_seed(view)) for view in range(3)])
    sent = pickle.dumps(crops)
    assert pickle.loads(sent).pieces(5, 30, 50) == crops.pieces(5, 30, 50)
    assert len(sent) < 3 * 64 * 22 * 4 + 2000, "22 numbers for each view"


def test_who_begins_with_a_crop() -> None:
    assert begin_with_crops([policy("autoaugment"), policy("simaugment")])
    assert not begin_with_crops([policy(name) for name in ("none", "crop-flip", "autoaugment", "digits")])
