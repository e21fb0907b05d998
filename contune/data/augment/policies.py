"""The policies by name, as a config writes them."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from contune.data.augment.authors import AuthorsAutoAugment
from contune.data.augment.autoaugment import AutoAugment
from contune.data.augment.crop_flip import CropFlip, ResizeOnly
from contune.data.augment.digits import Digits
from contune.data.augment.policy import Policy
from contune.data.augment.simaugment import SimAugment
from contune.errors import UserError, unknown

PolicyClass = (
    type[ResizeOnly] | type[CropFlip] | type[AutoAugment] | type[AuthorsAutoAugment] | type[SimAugment] | type[Digits]
)

POLICIES: dict[str, tuple[PolicyClass, Mapping[str, Any]]] = {
    "none": (ResizeOnly, {}),
    "crop-flip": (CropFlip, {}),
    "autoaugment": (AutoAugment, {}),
    "autoaugment-authors": (AuthorsAutoAugment, {}),
    "simaugment": (SimAugment, {}),
    # The supervised form in the code of the paper's authors.
    "simaugment-supervised": (
        SimAugment,
        {"crop_scale": (0.2, 1.0), "jitter": (0.4, 0.4, 0.4, 0.1), "blur": 0.0, "interpolation": "bilinear"},
    ),
    "digits": (Digits, {}),
}
"""Name to a class and the options in which it differs from the class's own defaults."""


def policy_options(name: str) -> dict[str, Any]:
    """The options of a policy and their defaults."""
    if name not in POLICIES:
        raise unknown("augmentation", name, POLICIES)
    policy_class, changed = POLICIES[name]
    own = {field.name: field.default for field in fields(policy_class)}
    return {option: changed.get(option, own[option]) for option in own if option not in ("image_size", "channels")}


def build_policy(name: str, *, image_size: int, channels: int, **options: Any) -> Policy:
    """The policy `name` for square views of `image_size` pixels, with some of its options changed."""
    defaults = policy_options(name)
    for option in options:
        if not defaults:
            raise UserError(f"augmentation {name!r} has no options; leave out {option!r}")
        if option not in defaults:
            raise unknown(f"option of augmentation {name!r},", option, defaults)
    given = {option: tuple(value) if isinstance(value, list) else value for option, value in options.items()}
    policy_class, changed = POLICIES[name]
    return policy_class(image_size=image_size, channels=channels, **{**changed, **given})
