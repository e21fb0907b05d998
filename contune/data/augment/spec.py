"""A policy as a person writes it: its name, then its options, `simaugment blur=0 crop_scale=0.2,1`."""

from contune.data.augment.policies import POLICIES, build_policy, policy_options
from contune.data.augment.policy import Policy
from contune.errors import unknown
from contune.settings import annotations_of, parse, split_assignment

SIZE = "size"
"""An option of every policy: the side of this view where it is not that of all views, for small crops."""


def policy_from_text(text: str, *, image_size: int, channels: int) -> Policy:
    name, *assignments = text.split() or [""]
    known = policy_options(name)
    annotations = annotations_of(POLICIES[name][0])
    options = {}
    for assignment in assignments:
        option, value = split_assignment(assignment)
        if option == SIZE:
            image_size = int(str(parse(value, int, f"{name} {SIZE}")))
            continue
        if option not in known:
            raise unknown(f"option of augmentation {name!r},", option, [*known, SIZE])
        options[option] = parse(value, annotations[option], f"{name} {option}")
    return build_policy(name, image_size=image_size, channels=channels, **options)
