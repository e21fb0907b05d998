"""Sizes for any method with which a step on a CPU takes no time, and rounding has little to add up."""

from dataclasses import fields

from contune.methods import find_method

SIZES = {"projector_hidden": 64, "projector_dim": 64, "predictor_hidden": 16, "queue_size": 256, "num_prototypes": 48}
SIZES |= {"queue_epoch": 1, "frozen_epochs": 1}  # so that in two epochs the queue is used and prototypes move
SMALLER = {"w-mse": {"projector_dim": 16}}
"""Whitening takes more images than dimensions, and many more for rounding to stay what it is."""


def small_heads(name: str) -> dict[str, int]:
    """Those of the sizes that a method has."""
    known = {field.name for field in fields(find_method(name).Settings)}
    return {knob: size for knob, size in SIZES.items() if knob in known} | SMALLER.get(name, {})


def small_heads_as_text(name: str) -> list[str]:
    """As the command line takes them."""
    return [f"method.{knob}={size}" for knob, size in small_heads(name).items()]
