"""Steps whose loss or gradient is no finite number, found and undone on the device: nothing here asks the host.

That is what lets a step be recorded as a CUDA graph with this inside it.
"""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn

from contune import distributed
from contune.train.graph import Step

Part = nn.Module | torch.optim.Optimizer
"""Something that a step changes."""


def largest_gradient(module: nn.Module) -> Tensor:
    """The largest absolute value in any gradient, NaN where one is NaN; a sum of squares would overflow before."""
    gradients = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    return torch.stack(torch._foreach_norm(gradients, float("inf"))).max()


def finite_everywhere(loss: Tensor, gradient: Tensor) -> Tensor:
    """Whether both are finite, in every process alike."""
    bad = ~(loss.detach().isfinite() & gradient.isfinite())
    return distributed.total(bad.float()) == 0


class Before:
    """What parts were before a step: weights, running statistics, queues, momenta."""

    def __init__(self, parts: Iterable[Part]) -> None:
        self.parts = list(parts)
        self.copies = {key: tensor.clone() for key, tensor in self._tensors()}

    @torch.no_grad()
    def restore_unless(self, fine: Tensor) -> None:
        """Everything as it was, bit for bit, where `fine` is not; what the step has made new becomes zeros.

        Zeros are what optimizers start their momenta and counters from.
        """
        for key, tensor in self._tensors():
            copy = self.copies.get(key)
            tensor.copy_(torch.where(fine, tensor, torch.zeros_like(tensor) if copy is None else copy))

    def _tensors(self) -> Iterator[tuple[tuple[int, object, str], Tensor]]:
        for number, part in enumerate(self.parts):
            if isinstance(part, nn.Module):
                named = [*part.named_parameters(), *part.named_buffers()]
                yield from (((number, None, name), tensor.detach()) for name, tensor in named)
            else:
                for parameter, state in part.state.items():
                    for name, value in state.items():
                        if isinstance(value, Tensor):
                            yield (number, parameter, name), value


CHECKED = "checked"
"""The entry of a checked step's outputs with its loss and its largest gradient."""
TAKEN = "taken"
"""1 for a step that was taken and 0 for one that was undone, whose other entries are 0 too."""


def checked(step: Step, method: nn.Module, changed: Iterable[Part], *, skip: bool) -> Step:
    """`step` with what tells whether it was finite; to `skip` is to undo all of what it `changed` where it was not."""
    changed = list(changed)

    def run(images_BCHW: Tensor, labels_B: Tensor | None) -> dict[str, Tensor]:
        before = Before(changed) if skip else None
        outputs = step(images_BCHW, labels_B)
        loss, gradient = outputs["loss"].detach().float(), largest_gradient(method)
        if before is not None:
            fine = finite_everywhere(loss, gradient)
            before.restore_unless(fine)
            outputs = {name: torch.where(fine, value.detach(), 0.0) for name, value in outputs.items()}
            outputs[TAKEN] = fine.float()
        return {**outputs, CHECKED: torch.stack([loss, gradient])}

    return run
