"""The pair losses without the N×N matrix. README.md in this folder derives them.

`dense` writes the matrix out: the oracle. `chunked` walks over blocks of rows in plain torch, `fused` over tiles in
Triton. These two have the same functions, which `autograd` calls:

    prepare(z_ND, settings)         embeddings as the backend multiplies them, and the lengths they had
    arrange(pairs, settings)        pairs in the order in which the backend walks over them
    statistics(pairs, settings)     (4, R): loss, log D, total weight of positives and log S of each anchor;
                                    the weight is 0 if the loss is undefined, and README.md says what S is
    reduce(stats_4R, reduction)     the losses as one number, and the number of usable anchors
    gradient(pairs, settings, …)    with respect to what x was before it was normalized

Shapes: R anchors (rows), C candidates (columns), D embedding size.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

APART = ("dcl", "sincere")
"""Kinds of losses in which D has negatives only."""
SHORTEST = 1e-12
"""Shorter embeddings have no direction: they become 0, and so does their gradient."""


class LossSettings(NamedTuple):
    """Which loss: TCL by equations 8 and 9 of the paper, or one of its relatives."""

    temperature: float
    k1: float
    k2: float
    kind: str = "out"
    """`out` or `in`: whether the mean over positives is outside or inside the logarithm. The others are like `out`.

    `auto`: k1 is a multiple of P/A for each anchor (README.md), through which no gradient flows.
    `dcl`: D has negatives only. `sincere`: and each positive adds its own exp(s/τ - ε).
    """
    epsilon: float = 0.0
    precision: str = "fast"
    """Of `fused`: `fast` or `high`."""
    normalize: bool = True
    reduction: str = "mean"


class Pairs(NamedTuple):
    """Anchors x, candidates y, and who is positive for whom: by labels or by a matrix of weights.

    In a plain batch anchors and candidates are the same embeddings. All fields but the last are tensors, so that
    autograd can save them.
    """

    x_RD: Tensor
    y_CD: Tensor
    labels_R: Tensor | None = None
    """(R,) integers, equal for positives; or (R, classes) weights, and their product weighs a pair."""
    labels_C: Tensor | None = None
    weights_RC: Tensor | None = None
    order_R: Tensor | None = None
    """Row i is row order_R[i] of the caller; None if rows and columns are in the caller's order."""
    order_C: Tensor | None = None
    own_R: Tensor | None = None
    """The column in which each anchor meets itself."""
    bands_K2: Tensor | None = None
    """For each block of rows, the range of columns that contains all of its positives."""
    self_start: int | None = None
    """In the caller's order anchor i is candidate self_start + i. None if anchors and candidates are different."""

    def sorted_by_label(self) -> "Pairs":
        assert self.labels_R is not None
        assert self.labels_C is not None
        same = self.labels_C is self.labels_R and self.y_CD is self.x_RD
        order_R = self.labels_R.argsort(stable=True)
        order_C = order_R if same else self.labels_C.argsort(stable=True)
        x_RD, labels_R = self.x_RD[order_R], self.labels_R[order_R]
        y_CD, labels_C = (x_RD, labels_R) if same else (self.y_CD[order_C], self.labels_C[order_C])
        own_R = None
        if self.self_start is not None:
            position_C = torch.empty_like(order_C)
            position_C[order_C] = torch.arange(len(order_C), device=order_C.device)
            own_R = position_C[order_R + self.self_start]
        return Pairs(x_RD, y_CD, labels_R, labels_C, None, order_R, order_C, own_R, None, self.self_start)

    def with_bands(self, block: int) -> "Pairs":
        """Of pairs sorted by label, for blocks of so many rows."""
        assert self.labels_R is not None
        assert self.labels_C is not None
        low_K = torch.searchsorted(self.labels_C, self.labels_R[::block].contiguous())
        last_K = torch.cat([self.labels_R[block - 1 :: block], self.labels_R[-1:]])[: len(low_K)]
        high_K = torch.searchsorted(self.labels_C, last_K.contiguous(), right=True)
        return self._replace(bands_K2=torch.stack([low_K, high_K], dim=1))

    def transposed(self) -> "Pairs":
        """Candidates as rows; only for candidates that are not the anchors."""
        assert self.self_start is None
        weights_CR = None if self.weights_RC is None else self.weights_RC.T
        return Pairs(self.y_CD, self.x_RD, self.labels_C, self.labels_R, weights_CR, self.order_C, self.order_R)


def normalized(z_ND: Tensor, normalize: bool) -> tuple[Tensor, Tensor | None]:
    """Embeddings in float32 or better, L2-normalized if asked for, and their lengths (N, 1).

    A length is infinite for an embedding that is too short to have a direction, NaN for one that is too long: squares
    overflow beyond 1.8e19 in float32. NaN, as of any embedding that is not finite, is noticed; 0 was not.
    """
    x_ND = z_ND.to(torch.float64 if z_ND.dtype == torch.float64 else torch.float32)
    if not normalize:
        return x_ND, None
    norm_N1 = torch.linalg.vector_norm(x_ND, dim=1, keepdim=True)
    norm_N1 = norm_N1.masked_fill(norm_N1 == torch.inf, torch.nan).masked_fill(norm_N1 < SHORTEST, torch.inf)
    return x_ND / norm_N1, norm_N1


def without_autocast(device_type: str) -> AbstractContextManager[Any]:
    """torch's own context costs a small batch a tenth of its time even where there is no autocast to switch off."""
    return torch.autocast(device_type, enabled=False) if torch.is_autocast_enabled(device_type) else nullcontext()
