"""What every policy promises, the digits policy, and the sentences for wrong options."""

import pytest
import torch
from torch import Tensor

from contune.data.augment import POLICIES, build_policy, policy_options, slice_params
from contune.data.augment.digits import inverse_affine
from contune.data.augment.geometry import sample_affine
from contune.device import torchvision
from contune.errors import UserError

RANDOM_POLICIES = [name for name in POLICIES if name != "none"]
SHAPES = [(3, 32, 32), (1, 8, 8), (3, 15, 20)]


def random_images(num: int, channels: int, height: int, width: int) -> Tensor:
    generator = torch.Generator().manual_seed(11)
    return torch.randint(0, 256, (num, channels, height, width), generator=generator, dtype=torch.uint8)


@pytest.mark.parametrize(("channels", "height", "width"), SHAPES)
@pytest.mark.parametrize("name", list(POLICIES))
class TestEveryPolicy:
    def test_gives_float_images_between_zero_and_one(self, name: str, channels: int, height: int, width: int) -> None:
        policy = build_policy(name, image_size=height, channels=channels)
        images = random_images(64, channels, height, width)
        before = images.clone()
        params = policy.draw(64, torch.Generator().manual_seed(0))
        assert all(len(value) == 64 for value in params.values())
        views = policy.apply(images, params)
        assert views.shape == (64, channels, height, height)
        assert views.dtype == torch.float32
        assert views.min() >= 0
        assert views.max() <= 1
        assert torch.equal(images, before)

    def test_a_slice_of_the_parameters_gives_the_slice_of_the_views(
        self, name: str, channels: int, height: int, width: int
    ) -> None:
        policy = build_policy(name, image_size=height, channels=channels)
        images = random_images(24, channels, height, width)
        params = policy.draw(24, torch.Generator().manual_seed(0))
        whole = policy.apply(images, params)
        parts = [
            policy.apply(images[start : start + 8], slice_params(params, start, start + 8)) for start in (0, 8, 16)
        ]
        torch.testing.assert_close(torch.cat(parts), whole, rtol=0, atol=1e-6)

    def test_a_sample_does_not_see_the_others(self, name: str, channels: int, height: int, width: int) -> None:
        policy = build_policy(name, image_size=height, channels=channels)
        images = random_images(10, channels, height, width)
        params = policy.draw(10, torch.Generator().manual_seed(0))
        changed = images.clone()
        changed[1:] = 255 - images[1:]
        assert torch.equal(policy.apply(images, params)[0], policy.apply(changed, params)[0])

    def test_the_seed_decides(self, name: str, channels: int, height: int, width: int) -> None:
        policy = build_policy(name, image_size=height, channels=channels)
        images = random_images(16, channels, height, width)
        first, second = (policy.apply(images, policy.draw(16, torch.Generator().manual_seed(5))) for _ in range(2))
        assert torch.equal(first, second)


@pytest.mark.parametrize("name", list(POLICIES))
def test_no_images_give_no_views(name: str) -> None:
    policy = build_policy(name, image_size=16, channels=3)
    views = policy.apply(random_images(0, 3, 16, 16), policy.draw(0, torch.Generator()))
    assert views.shape == (0, 3, 16, 16)


@pytest.mark.parametrize("name", RANDOM_POLICIES)
def test_equal_images_in_a_batch_get_different_views(name: str) -> None:
    policy = build_policy(name, image_size=16, channels=3)
    image = random_images(1, 3, 16, 16)
    views = policy.apply(image.repeat(32, 1, 1, 1), policy.draw(32, torch.Generator().manual_seed(0)))
    assert len(views.flatten(1).unique(dim=0)) > 24


def test_drawing_leaves_the_global_generator_alone() -> None:
    state = torch.random.get_rng_state()
    for name in POLICIES:
        build_policy(name, image_size=16, channels=3).draw(4, torch.Generator().manual_seed(0))
    assert torch.equal(torch.random.get_rng_state(), state)


def test_none_is_the_image() -> None:
    images = random_images(3, 3, 16, 16)
    policy = build_policy("none", image_size=16, channels=3)
    assert torch.equal(policy.apply(images, policy.draw(3, torch.Generator())), images / 255)


def test_crop_flip_without_flip_never_mirrors() -> None:
    params = build_policy("crop-flip", image_size=16, channels=1, flip=0).draw(1000, torch.Generator())
    assert not params["flip"].any()


def test_supervised_simaugment_is_simaugment_with_options() -> None:
    plain, supervised = policy_options("simaugment"), policy_options("simaugment-supervised")
    different = {option: supervised[option] for option in plain if plain[option] != supervised[option]}
    assert different == {
        "crop_scale": (0.2, 1.0),
        "jitter": (0.4, 0.4, 0.4, 0.1),
        "blur": 0.0,
        "interpolation": "bilinear",
    }


def test_affine_sampling_equals_torchvision() -> None:
    transforms = torchvision.transforms
    generator = torch.Generator().manual_seed(3)
    images = random_images(20, 1, 9, 9) / 255
    angle, shear = (40 * torch.rand(20, generator=generator) - 20 for _ in range(2))
    scale = 0.7 + 0.6 * torch.rand(20, generator=generator)
    move = 4 * torch.rand(20, 2, generator=generator) - 2
    result = sample_affine(images, inverse_affine(angle, scale, shear, move), "bilinear")
    for row, ours in enumerate(result):
        theirs = transforms.functional.affine(
            images[row],
            angle=angle[row].item(),
            translate=move[row].tolist(),
            scale=scale[row].item(),
            shear=[shear[row].item(), 0.0],
            interpolation=transforms.InterpolationMode.BILINEAR,
        )
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-5)


def test_digits_without_strength_is_the_image() -> None:
    images = random_images(5, 1, 8, 8)
    off = {"rotation": 0, "translation": 0, "scale": (1, 1), "shear": 0, "contrast": 0, "brightness": 0}
    policy = build_policy("digits", image_size=8, channels=1, **off)
    views = policy.apply(images, policy.draw(5, torch.Generator()))
    torch.testing.assert_close(views, images / 255, rtol=0, atol=1e-5)


def test_digits_strengths_bound_what_is_drawn() -> None:
    policy = build_policy("digits", image_size=8, channels=1, rotation=5, translation=0.25, scale=[0.5, 0.6])
    params = policy.draw(5000, torch.Generator().manual_seed(0))
    assert 4.9 < params["angle"].abs().max() <= 5
    assert 1.95 < params["translation"].abs().max() <= 2
    assert params["scale"].min() >= 0.5
    assert params["scale"].max() <= 0.6
    assert abs(params["angle"].mean().item()) < 4 * (10 / 12**0.5) / 5000**0.5


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("autoaugmnt", {}, r"unknown augmentation 'autoaugmnt'; did you mean autoaugment"),
        ("autoaugment", {"paddin": 2}, r"unknown option .*'paddin'; did you mean padding\?"),
        ("none", {"flip": 0.5}, "'none' has no options; leave out 'flip'"),
        ("crop-flip", {"flip": 1.5}, "flip=1.5 is not a probability"),
        ("crop-flip", {"flip": True}, "flip=True is not a probability"),
        ("crop-flip", {"padding": -1}, "padding=-1 is out of range; give a whole number of at least 0"),
        ("simaugment", {"crop_scale": (0.9, 0.2)}, "crop_scale=.* is not a range"),
        ("simaugment", {"crop_scale": (0.0, 1.0)}, "above 0 and at most 1"),
        ("simaugment", {"crop_scale": 0.5}, "crop_scale=0.5 is not a range"),
        ("simaugment", {"jitter": (0.4, 0.4)}, "is not four strengths"),
        ("simaugment", {"jitter": (0.4, 0.4, 0.4, 0.7)}, "jitter of hue=0.7 is out of range"),
        ("simaugment", {"interpolation": "cubic"}, "unknown interpolation 'cubic'; did you mean bicubic"),
        ("simaugment", {"blur_sigma": (0.0, 2.0)}, "blur_sigma=.* is not a range"),
        ("digits", {"shear": 90}, "shear=90 is out of range; give a number from 0 to 80"),
    ],
)
def test_wrong_options_say_what_is_right(name: str, options: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        build_policy(name, image_size=16, channels=3, **options)


def test_wrong_image_sizes_and_channels() -> None:
    with pytest.raises(UserError, match="channels=4 is not supported; give 1"):
        build_policy("crop-flip", image_size=16, channels=4)
    with pytest.raises(UserError, match="image_size=2 is out of range; give a whole number of at least 3"):
        build_policy("autoaugment", image_size=2, channels=3)
