"""A matrix product that multiplies in half precision and adds in float32."""

import torch
from torch import Tensor


@torch.library.custom_op("contune::wide_product", mutates_args=())
def wide_product(a_NK: Tensor, b_KM: Tensor) -> Tensor:
    """Float32 where the factors are halves, whose sums need not fit a half; without gradient."""
    if a_NK.dtype == torch.float32 or a_NK.device.type != "cuda":
        return a_NK.float() @ b_KM.float()
    return torch.mm(a_NK, b_KM, out_dtype=torch.float32)


@wide_product.register_fake
def _(a_NK: Tensor, b_KM: Tensor) -> Tensor:
    return a_NK.new_empty((a_NK.shape[0], b_KM.shape[1]), dtype=torch.float32)
