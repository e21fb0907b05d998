"""The Augmenter: views in order, grouped or not, normalised; and the test-time transform."""

import pytest
import torch
from torch import Tensor

from contune.data.augment import Augmenter, Params, build_policy, eval_transform, normalise, slice_params
from contune.data.augment.policy import Policy
from contune.device import torchvision

MEAN, STD = (0.49, 0.48, 0.44), (0.2, 0.19, 0.21)


def random_images(num: int, size: int = 16) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randint(0, 256, (num, 3, size, size), generator=generator, dtype=torch.uint8)


def policy(name: str) -> Policy:
    return build_policy(name, image_size=16, channels=3)


def test_normalise_equals_torchvision() -> None:
    images = random_images(4) / 255
    theirs = torchvision.transforms.functional.normalize(images, MEAN, STD)
    torch.testing.assert_close(normalise(images, MEAN, STD), theirs, rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", [16, 11])
def test_eval_transform_equals_torchvision(size: int) -> None:
    images = random_images(4)
    functional = torchvision.transforms.functional
    theirs = functional.normalize(functional.resize(images, [size, size], antialias=True) / 255, MEAN, STD)
    torch.testing.assert_close(eval_transform(images, size, MEAN, STD), theirs, rtol=0, atol=1e-6)


def test_gradients_flow_after_an_evaluation_in_inference_mode() -> None:
    mean, std = (0.11, 0.12, 0.13), (0.21, 0.22, 0.23)
    with torch.inference_mode():
        eval_transform(random_images(2), 16, mean, std)
    images = torch.rand(2, 3, 16, 16, requires_grad=True)
    normalise(images, mean, std).sum().backward()
    assert images.grad is not None
    torch.testing.assert_close(images.grad[0, :, 0, 0], 1 / torch.tensor(std))


def test_views_come_in_the_order_of_their_policies() -> None:
    strong, weak = policy("simaugment"), policy("crop-flip")
    augmenter = Augmenter([strong, weak, strong, policy("none")], MEAN, STD)
    images = random_images(6)
    params = augmenter.draw(6, torch.Generator().manual_seed(0))
    views = augmenter.apply(images, params)
    assert len(views) == len(params) == 4
    for kind, drawn, view in zip(augmenter.policies, params, views, strict=True):
        alone = normalise(kind.apply(images, drawn), MEAN, STD)
        torch.testing.assert_close(view, alone, rtol=0, atol=1e-5)


def test_views_of_one_policy_differ() -> None:
    kind = policy("autoaugment")
    augmenter = Augmenter([kind, kind], MEAN, STD)
    first, second = augmenter.apply(random_images(32), augmenter.draw(32, torch.Generator().manual_seed(0)))
    assert (first != second).flatten(1).any(1).float().mean() > 0.9


def test_ranks_with_slices_of_one_draw_see_the_whole_batch() -> None:
    kind = policy("autoaugment")
    augmenter = Augmenter([kind, kind, policy("simaugment")], MEAN, STD)
    images = random_images(8)

    def draw() -> list[Params]:
        return augmenter.draw(8, torch.Generator().manual_seed(1))

    whole = augmenter.apply(images, draw())
    ranks = [
        augmenter.apply(images[start : start + 4], [slice_params(view, start, start + 4) for view in draw()])
        for start in (0, 4)
    ]
    for view, parts in zip(whole, zip(*ranks, strict=True), strict=True):
        torch.testing.assert_close(torch.cat(parts), view, rtol=0, atol=1e-5)


def test_autocast_around_it_changes_nothing() -> None:
    kind = policy("simaugment")
    augmenter = Augmenter([kind, kind], MEAN, STD)
    images = random_images(8)
    params = augmenter.draw(8, torch.Generator().manual_seed(1))
    plain = augmenter.apply(images, params)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under_autocast = augmenter.apply(images, params)
    for a, b in zip(plain, under_autocast, strict=True):
        assert torch.equal(a, b)
