"""The pair losses block by block: plain torch, any device, never more than a few rows of the N×N matrix.

Both passes walk over blocks of anchors. With labels, anchors and candidates are sorted, so that the positives of
a block lie in one narrow band of columns and everything outside the band is a negative. The derivation is in
README.md beside this file.

Shapes: R anchors, C candidates, B anchors of a block, K columns of its band, D embedding size.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from contune.kernels.block import Block, Side, block_coefficients, block_statistics
from contune.kernels.lengths import lengths
from contune.kernels.problem import Anchors, Knobs, Pairs, Statistics, exponent_is_safe

BLOCK_ELEMENTS = 2**19
"""Entries of the similarity matrix that are alive at once on a CPU: 2 MiB in float32, which stays in cache."""
DEVICE_BLOCK_ELEMENTS = 2**25
"""The same elsewhere: enough to fill a GPU."""


def prepared(z_ND: Tensor, normalize: bool, knobs: Knobs) -> tuple[Tensor, Tensor | None]:
    """Embeddings in float32 or better, of length 1 when asked, and the lengths they had."""
    x_ND = z_ND if z_ND.dtype == torch.float64 else z_ND.float()
    if not normalize:
        return x_ND, None
    norm_N1 = lengths(x_ND)
    return x_ND / norm_N1, norm_N1.squeeze(1)


def reduced(stats: Statistics, reduction: str) -> tuple[Tensor, Tensor]:
    """Sum or mean of the losses, and the number of usable anchors, at least 1."""
    num_usable = (stats.total_R > 0).sum().clamp(min=1).to(stats.loss_R.dtype)
    total = stats.loss_R.sum()
    return (total / num_usable if reduction == "mean" else total), num_usable


def through_norm(grad_x_ND: Tensor, x_ND: Tensor, norm_N: Tensor | None) -> Tensor:
    """Back through x = z / |z|: what points along x is lost."""
    if norm_N is None:
        return grad_x_ND
    along_N1 = (grad_x_ND * x_ND).sum(dim=1, keepdim=True)
    return (grad_x_ND - x_ND * along_N1) / norm_N[:, None]


class Plan:
    """Anchors and candidates in an order that keeps positives together, block by block."""

    def __init__(self, x_RD: Tensor, y_CD: Tensor, pairs: Pairs, knobs: Knobs, bound: float | None) -> None:
        """bound: the largest |similarity|, if known."""
        self.knobs = knobs
        self.plain = exponent_is_safe(len(y_CD), knobs, bound, x_RD.dtype)
        self.weights_RC = pairs.weights_RC
        if pairs.labels_R is None or pairs.labels_C is None:
            self.row_order = torch.arange(len(x_RD), device=x_RD.device)
            self.column_order = torch.arange(len(y_CD), device=x_RD.device)
        else:
            self.row_order = pairs.labels_R.argsort(stable=True)
            self.column_order = pairs.labels_C.argsort(stable=True)
            self.labels_R = pairs.labels_R[self.row_order]
            self.labels_C = pairs.labels_C[self.column_order]
        self.x_RD, self.y_CD = x_RD[self.row_order], y_CD[self.column_order]
        own_R = None if pairs.self_start is None else self.row_order + pairs.self_start
        self.self_R = None if own_R is None else self.column_order.argsort()[own_R]

    def statistics(self) -> Statistics:
        # Results go to one tensor made beforehand: kept apart, they would pin the heap between large temporaries.
        found_4R = self.x_RD.new_empty(4, len(self.x_RD))
        for block in self._blocks():
            found_4R[:, block.rows] = torch.stack(block_statistics(block, self.knobs, self.plain))
        return Statistics(*(self._unsorted(column_R) for column_R in found_4R))

    def gradient(
        self, rows: Anchors | None, columns: Anchors | None, norm_R: Tensor | None, dtype: torch.dtype
    ) -> Tensor:
        """From the losses of the rows as anchors and of the columns as anchors."""
        row_side = None if rows is None else Side.of(rows, self.row_order, self.plain).as_column()
        column_side = None if columns is None else Side.of(columns, self.column_order, self.plain)
        grad_RD = torch.empty_like(self.x_RD)
        for block in self._blocks():
            h_BC = block_coefficients(block, self.knobs, self.plain, row_side, column_side)
            torch.mm(h_BC, self.y_CD, out=grad_RD[block.rows])
        grad_RD /= self.knobs.temperature
        norm_R = None if norm_R is None else norm_R[self.row_order]
        return self._unsorted(through_norm(grad_RD, self.x_RD, norm_R)).to(dtype)

    def _unsorted(self, values: Tensor) -> Tensor:
        result = torch.empty_like(values)
        result[self.row_order] = values
        return result

    def _blocks(self) -> Iterator[Block]:
        num_rows, num_columns = len(self.x_RD), len(self.y_CD)
        elements = BLOCK_ELEMENTS if self.x_RD.device.type == "cpu" else DEVICE_BLOCK_ELEMENTS
        size = max(16, elements // num_columns)
        starts = list(range(0, num_rows, size))
        bands = self._bands(starts, size)
        for start, band in zip(starts, bands, strict=True):
            rows = slice(start, min(start + size, num_rows))
            logits_BC = (self.x_RD[rows] / self.knobs.temperature) @ self.y_CD.T
            self_B1 = None if self.self_R is None else self.self_R[rows, None]
            if self_B1 is not None:
                logits_BC.scatter_(1, self_B1, -math.inf)
            yield Block(rows, logits_BC, band, *self._weights(rows, band, self_B1))

    def _bands(self, starts: list[int], size: int) -> list[slice]:
        """One look at the labels for all blocks: on a GPU each look would make the host wait."""
        if self.weights_RC is not None:
            return [slice(0, len(self.y_CD))] * len(starts)
        first = torch.tensor(starts, dtype=torch.int64, device=self.labels_R.device)  # also where there are none
        last = (first + size - 1).clamp(max=len(self.labels_R) - 1)
        low = torch.searchsorted(self.labels_C, self.labels_R[first])
        high = torch.searchsorted(self.labels_C, self.labels_R[last], right=True)
        return [slice(*ends) for ends in torch.stack([low, high], dim=1).tolist()]

    def _weights(self, rows: slice, band: slice, self_B1: Tensor | None) -> tuple[Tensor, Tensor]:
        if self.weights_RC is None:
            positive_BK = self.labels_R[rows, None] == self.labels_C[None, band]
            if self_B1 is not None:
                positive_BK &= torch.arange(band.start, band.stop, device=self_B1.device) != self_B1
            return positive_BK, positive_BK
        by_row_BK = self.weights_RC[rows]
        if self_B1 is None:
            return by_row_BK, by_row_BK
        # In the square case a column is an anchor too, and its positives stand in the matrix's other half.
        zero = torch.zeros((), dtype=by_row_BK.dtype, device=by_row_BK.device)
        return (
            by_row_BK.scatter(1, self_B1, zero.expand(self_B1.shape)),
            self.weights_RC[:, rows].T.scatter(1, self_B1, zero.expand(self_B1.shape)),
        )
