"""A policy as a person writes it."""

import pytest

from contune.config import Config
from contune.data.augment import build_policy
from contune.data.augment.autoaugment import CropFlip
from contune.data.augment.simaugment import SimAugment
from contune.errors import UserError


def test_options_are_read_by_their_types() -> None:
    policy = build_policy("simaugment blur=0 crop_scale=0.2,1", image_size=32, channels=3)
    assert isinstance(policy, SimAugment)
    assert (policy.blur, policy.crop_scale, policy.image_size) == (0.0, (0.2, 1.0), 32)
    padded = build_policy("  crop-flip   padding=2 ", image_size=28, channels=1)
    assert isinstance(padded, CropFlip)
    assert padded.padding == 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "unknown augmentation ''"),
        ("simaugmnt", "unknown augmentation 'simaugmnt'; did you mean simaugment"),
        ("simaugment blurr=0", "unknown option of augmentation 'simaugment', 'blurr'; did you mean blur"),
        ("simaugment blur", "'blur' is not KEY=VALUE"),
        ("simaugment blur=much", "simaugment blur must be a number, got 'much'"),
        ("simaugment blur=2", "blur=2.0 is not a probability"),
        ("simaugment crop_scale=0.2", "crop_scale=(0.2,) is not a range"),
        ("crop-flip padding=-1", "padding=-1 is out of range"),
    ],
)
def test_what_is_no_policy(text: str, sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        build_policy(text, image_size=32, channels=3)
    assert str(caught.value).startswith(sentence)


def test_a_view_may_have_a_size_of_its_own() -> None:
    small = build_policy("simaugment size=16 blur=0", image_size=32, channels=3)
    assert (small.image_size, small.blur) == (16, 0.0)  # type: ignore[attr-defined]  # SimAugment's
    with pytest.raises(UserError, match="whole number"):
        build_policy("simaugment size=half", image_size=32, channels=3)


def test_policies_of_views_are_separated_by_semicolons_where_options_have_commas() -> None:
    config = Config().override(["augment.views=2", "augment.per_view=simaugment crop_scale=0.2,1; crop-flip"])
    assert config.augment.per_view == ("simaugment crop_scale=0.2,1", "crop-flip")
