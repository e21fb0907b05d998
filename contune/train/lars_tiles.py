"""LARS's update of one weight matrix as a Triton kernel: everything is read and written once."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["number", "num_matrices"])
def update_kernel(
    weight_ptr, grad_ptr, momentum_ptr, norm_ptr, rate_ptr, number, num_matrices, size, momentum, decay, trust, epsilon,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """norm: (2, matrices), lengths of all weights and of all gradients; this matrix has the `number`."""
    weight_norm, grad_norm = tl.load(norm_ptr + number), tl.load(norm_ptr + num_matrices + number)
    rate = tl.load(rate_ptr)
    ratio = trust * weight_norm / (grad_norm + decay * weight_norm + epsilon)
    ratio = tl.where((weight_norm > 0) & (grad_norm > 0), ratio, 1.0)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    weight = tl.load(weight_ptr + at, mask=inside)
    grad = tl.load(grad_ptr + at, mask=inside)
    moved = momentum * tl.load(momentum_ptr + at, mask=inside)
    moved += (grad + decay * weight) * tl.minimum(ratio / rate, 1.0)
    tl.store(momentum_ptr + at, moved, mask=inside)
    tl.store(weight_ptr + at, weight - rate * moved, mask=inside)
