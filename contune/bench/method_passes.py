"""What a method asks of its encoders in a step, seen by hooks on them and not taken from what it should be."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from contune.methods import Method


class Pass(NamedTuple):
    """Images that go through an encoder at once."""

    images: int
    size: int
    """Their side in pixels."""
    trained: bool
    """Whether a gradient will come back."""

    def __str__(self) -> str:
        return f"{self.images} {'trained' if self.trained else 'forward'} at {self.size} px"


def encoder_passes(method: Method, views: Sequence[Tensor], labels_B: Tensor | None) -> list[Pass]:
    """Of one forward pass of the method, in their order: its encoder's, and those of the copies that follow it."""
    passes: list[Pass] = []

    def note(encoder: nn.Module, inputs: tuple[Tensor], features_ND: Tensor) -> None:
        (images_NCHW,) = inputs
        passes.append(Pass(len(images_NCHW), images_NCHW.shape[-1], features_ND.requires_grad))

    hooks = [encoder.register_forward_hook(note) for encoder in _of_type(type(method.encoder), method)]
    try:
        method(views, labels_B)
    finally:
        for hook in hooks:
            hook.remove()
    return passes


def passes_in_words(counts: Mapping[str, Any]) -> str:
    """Of images `trained` and those that only went `forward`, such as `512 trained + 512 forward`."""
    return " + ".join(f"{counts[kind]:,} {kind}" for kind in ("trained", "forward") if counts[kind])


def num_images(passes: Sequence[Pass], *, trained: bool) -> int:
    return sum(one.images for one in passes if one.trained == trained)


def _of_type(kind: type[nn.Module], module: nn.Module) -> Iterator[nn.Module]:
    """The outermost ones: an encoder may have parts of its own type."""
    if type(module) is kind:
        yield module
    else:
        for child in module.children():
            yield from _of_type(kind, child)
