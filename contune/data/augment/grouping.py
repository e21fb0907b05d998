"""An operation only for the samples that have it, where it costs nothing to ask which these are: on a CPU.

A GPU would have to tell the host, which would have to wait, and in a CUDA graph it cannot. There, all samples go
through every operation at once, with parameters under which all but their own keep them.

B: samples, S: steps.
"""

from collections.abc import Callable

import torch
from torch import Tensor

Operate = Callable[[int, int, Tensor, Tensor], Tensor]
"""From a step, a kind, the images of that kind and their numbers in the batch to the changed images."""

KEEP = 0
"""The kind of the samples that a step leaves as they are."""


def can_ask(images: Tensor) -> bool:
    """Whether the host sees the values of a tensor without waiting for a device."""
    return images.device.type == "cpu"


def each_kind(images_BCHW: Tensor, kind_BS: Tensor, operate: Operate) -> Tensor:
    """Step after step, `operate` once for each kind that occurs, on all its samples together.

    The images are put in the order of their kinds, so that a kind is a slice, and back in their own at the end.
    """
    number_B = torch.arange(len(kind_BS))
    for step, kind_B in enumerate(kind_BS.unbind(1)):
        kind_B = kind_B.index_select(0, number_B)
        order_B = kind_B.argsort()
        images_BCHW, number_B = images_BCHW.index_select(0, order_B), number_B.index_select(0, order_B)
        sizes = kind_B.bincount().tolist()
        for kind, (some, numbers) in enumerate(zip(images_BCHW.split(sizes), number_B.split(sizes), strict=True)):
            if kind != KEEP and len(some):
                some.copy_(operate(step, kind, some, numbers))
    return images_BCHW.index_select(0, number_B.argsort())


def where_chosen(images_BCHW: Tensor, chosen_B: Tensor, change: Callable[..., Tensor], *amounts_B: Tensor) -> Tensor:
    """`change(images, *amounts)` of the chosen samples; the others stay."""
    if not can_ask(images_BCHW):
        return torch.where(chosen_B[:, None, None, None], change(images_BCHW, *amounts_B), images_BCHW)

    def operate(step: int, kind: int, some_BCHW: Tensor, numbers_B: Tensor) -> Tensor:
        return change(some_BCHW, *(amount_B.index_select(0, numbers_B) for amount_B in amounts_B))

    return each_kind(images_BCHW, chosen_B.long()[:, None], operate)
