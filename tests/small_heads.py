"""Small head sizes for any method, so that a step on a CPU is fast and rounding errors stay small."""

from dataclasses import fields

from contune.methods import find_method

SIZES = {"projector_hidden": 64, "projector_dim": 64, "predictor_hidden": 16, "queue_size": 256, "num_prototypes": 48}
SIZES |= {"queue_epoch": 1, "frozen_epochs": 1}  # so that in two epochs the queue is used and prototypes move
SMALLER = {"w-mse": {"projector_dim": 16}}
"""Whitening needs more images than dimensions, and many more to keep rounding errors small."""


def small_heads(name: str) -> dict[str, int]:
    """The sizes that a method has as settings."""
    known = {field.name for field in fields(find_method(name).Settings)}
    return {knob: size for knob, size in SIZES.items() if knob in known} | SMALLER.get(name, {})


def small_heads_as_text(name: str) -> list[str]:
    """As KEY=VALUE for the command line."""
    return [f"method.{knob}={size}" for knob, size in small_heads(name).items()]
