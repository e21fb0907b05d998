"""The largest tensor that a computation makes, forward and backward."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LargestTensor(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.num_elements: int = 0

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        made = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.num_elements = max([self.num_elements, *made])
        return result


def largest_tensor(compute: Callable[[Tensor], Tensor], z_ND: Tensor) -> int:
    """Elements of the largest tensor that `compute` and its gradient make."""
    leaf = z_ND.detach().requires_grad_()
    largest = LargestTensor()
    with largest:
        torch.autograd.grad(compute(leaf), leaf)
    return largest.num_elements
