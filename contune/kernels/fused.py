"""The pair losses as Triton kernels: two launches for the forward pass, two for the backward one, no atomics.

The same two functions as `chunked`, for labels. Tiles of the similarity matrix live and die in registers. The
kernels themselves are in tiles.py, the derivation in README.md.

Shapes: R anchors, C candidates, D embedding size, S splits of the columns.
"""

import math
import os
from functools import cache
from typing import Any

import torch
from torch import Tensor

from contune.errors import UserError
from contune.kernels.problem import Anchors, Knobs, Pairs, Statistics, exponent_is_safe

LOG2_E = math.log2(math.e)
SORT_FROM = 4096
"""Candidates from which sorting by label pays: tiles without positives then need no comparisons."""
RESIDENT_DIM = 256
"""The largest embedding whose gradient a program can hold in registers."""
HALF_SCALE = 256.0
"""Keeps small gradient coefficients, which are at most a little over 2 in size, out of float16's subnormals."""
COEFFICIENT_BYTES = 2**27
"""Memory for coefficients of embeddings larger than RESIDENT_DIM."""


def is_supported(z: Tensor, positives: Tensor | None) -> bool:
    return z.device.type == "cuda" and _reason_against(z, positives) is None


def check_supported(z: Tensor, positives: Tensor | None) -> None:
    reason = _reason_against(z, positives)
    if reason is not None:
        raise UserError(f"backend='fused' {reason}; backend='auto' takes another")


def row_statistics(x_RD: Tensor, y_CD: Tensor, pairs: Pairs, knobs: Knobs, bound: float | None) -> Statistics:
    """The loss of each anchor, and what its gradient will need. `bound`: the largest |similarity|, if known."""
    launch = _Launch(x_RD, y_CD, pairs, knobs, bound)
    out_S5R = x_RD.new_empty(launch.num_splits, 5, len(x_RD))
    _tiles().statistics_kernel[launch.grid](
        *launch.inputs, out_S5R, *launch.sizes, LOG2_E / knobs.temperature, knobs.k1, knobs.k2, **launch.options
    )
    top_SR, part_SR, sums_S3R = out_S5R[:, 0], out_S5R[:, 1], out_S5R[:, 2:]
    top_R = top_SR.amax(dim=0)
    shrink_SR = (top_SR - top_R).exp2()
    log_D_R = ((part_SR * shrink_SR).sum(dim=0).log2() + top_R) / LOG2_E
    similarity_R, total_R, _ = sums_S3R.sum(dim=0)
    log_S_R = ((sums_S3R[:, 2] * shrink_SR).sum(dim=0).log2() + top_R) / LOG2_E
    if knobs.variant == "in":
        attraction_R = log_S_R - total_R.log()
    else:
        attraction_R = similarity_R / (knobs.temperature * total_R)
    loss_R = torch.where(total_R > 0, log_D_R - attraction_R, 0.0)
    return Statistics(*(launch.unsorted(part) for part in (loss_R, log_D_R, total_R, log_S_R)))


def row_gradient(
    x_RD: Tensor,
    y_CD: Tensor,
    pairs: Pairs,
    knobs: Knobs,
    bound: float | None,
    *,
    rows: Anchors | None,
    columns: Anchors | None,
) -> Tensor:
    """Gradient with respect to x, from the losses of its rows as anchors and of the columns as anchors."""
    launch = _Launch(x_RD, y_CD, pairs, knobs, bound)
    scale = launch.coefficient_scale(rows, columns)
    row_5R = launch.packed(rows, len(x_RD), launch.row_order, scale)
    column_5C = launch.packed(columns, len(y_CD), launch.column_order, scale)
    numbers = (LOG2_E / knobs.temperature, knobs.temperature * knobs.k1, knobs.k2)
    if launch.resident:
        out_SRD = x_RD.new_empty(launch.num_splits, *x_RD.shape)
        _tiles().gradient_kernel[launch.grid](
            *launch.inputs, row_5R, column_5C, out_SRD, *launch.sizes, *numbers, 0, len(x_RD), **launch.options
        )
        grad_RD = out_SRD.sum(dim=0) if launch.num_splits > 1 else out_SRD[0]
    else:
        grad_RD = launch.by_library_product(row_5R, column_5C, numbers)
    return launch.unsorted(grad_RD).div_(knobs.temperature * scale)


class _Launch:
    """Everything that the two kernels are started with."""

    def __init__(self, x_RD: Tensor, y_CD: Tensor, pairs: Pairs, knobs: Knobs, bound: float | None) -> None:
        assert pairs.labels_R is not None
        assert pairs.labels_C is not None
        num_rows, dim = x_RD.shape
        num_columns = len(y_CD)
        self.x_RD, self.y_CD, self.pairs = x_RD, y_CD, pairs
        self.half = knobs.precision == "fast" and bound is not None
        self.shifted = not exponent_is_safe(num_columns, knobs, bound, torch.float32)
        self.resident = dim <= RESIDENT_DIM
        tile = _tile(num_rows, dim, self.half, self.resident)
        sorted_by_label = num_columns >= SORT_FROM
        self.row_order = pairs.labels_R.argsort(stable=True) if sorted_by_label else None
        square = pairs.labels_R is pairs.labels_C
        self.column_order = self.row_order if square or not sorted_by_label else pairs.labels_C.argsort(stable=True)
        x_operand = self._operand(x_RD, self.row_order)
        y_operand = x_operand if y_CD is x_RD and square else self._operand(y_CD, self.column_order)
        row_labels, column_labels = _in_order(pairs.labels_R, self.row_order), _in_order(pairs.labels_C, self.column_order)
        self.inputs = (
            x_operand,
            y_operand,
            row_labels,
            column_labels,
            self._own_columns(row_labels),
            _bands(row_labels, column_labels, tile["BM"]) if sorted_by_label else row_labels,
        )
        blocks = -(-num_rows // tile["BM"])
        tiles = -(-num_columns // tile["BN"])
        wanted = max(1, 2 * _num_processors(x_RD.device) // blocks)
        tiles_per_split = -(-tiles // min(wanted, tiles))
        self.num_splits = -(-tiles // tiles_per_split)
        self.grid = (blocks, self.num_splits)
        self.sizes = (num_rows, num_columns, tiles_per_split * tile["BN"])
        self.options: dict[str, Any] = {
            "D": dim,
            "RESIDENT": self.resident,
            "SORTED": sorted_by_label,
            "HAS_SELF": pairs.self_R is not None,
            "SHIFTED": self.shifted,
            "PULLS": knobs.k1 > 0,
            "INNER": knobs.variant == "in",
            "PRECISION": "tf32x3" if knobs.precision == "high" else "tf32",
            **tile,
        }

    def unsorted(self, values: Tensor) -> Tensor:
        if self.row_order is None:
            return values
        result = torch.empty_like(values)
        result[self.row_order] = values
        return result

    def coefficient_scale(self, rows: Anchors | None, columns: Anchors | None) -> Tensor | float:
        """A factor that makes the largest coefficient a comfortable float16, whatever the upstream gradient is."""
        if not self.half:
            return 1.0
        largest = [side.weight.abs().amax() for side in (rows, columns) if side is not None]
        top = largest[0] if len(largest) == 1 or rows is columns else torch.maximum(*largest)
        return HALF_SCALE / top.clamp(min=torch.finfo(torch.float32).tiny * HALF_SCALE)

    def packed(self, anchors: Anchors | None, num: int, order: Tensor | None, scale: Tensor | float) -> Tensor:
        """(5, num): mass, shift, pull, inner mass and inner shift, as the kernel's `row_ptr` and `column_ptr`."""
        if anchors is None:
            none = self.x_RD.new_zeros(5, num)
            none[1] = none[4] = math.inf
            return none
        weight = anchors.weight * scale
        mass = weight if self.shifted else weight * (-anchors.log_D).exp()
        parts = (mass, anchors.log_D * LOG2_E, weight / anchors.total, weight, anchors.log_S * LOG2_E)
        stacked = torch.stack(parts)
        return stacked if order is None else stacked[:, order]

    def by_library_product(self, row_5R: Tensor, column_5C: Tensor, numbers: tuple[float, float, float]) -> Tensor:
        """For embeddings too large for registers: coefficients of some rows at a time, times all candidates."""
        num_rows, num_columns, _ = self.sizes
        block = self.options["BM"]
        y_operand = self.inputs[1]
        size = max(1, COEFFICIENT_BYTES // (num_columns * y_operand.element_size() * block)) * block
        grad_RD = torch.empty_like(self.x_RD)
        for start in range(0, num_rows, size):
            stop = min(start + size, num_rows)
            h_BC = y_operand.new_empty(stop - start, num_columns)
            _tiles().gradient_kernel[(-(-(stop - start) // block), self.num_splits)](
                *self.inputs, row_5R, column_5C, h_BC, *self.sizes, *numbers, start, stop, **self.options
            )
            grad_RD[start:stop] = _wide_product(h_BC, y_operand)
        return grad_RD

    def _operand(self, x: Tensor, order: Tensor | None) -> Tensor:
        """float16 for `fast`: of unit embeddings it keeps as much as TF32 does, at twice the rate."""
        x = x.half() if self.half else x
        return x.contiguous() if order is None else x[order]

    def _own_columns(self, row_labels: Tensor) -> Tensor:
        if self.pairs.self_R is None:
            return row_labels
        if self.column_order is None or self.row_order is None:
            return self.pairs.self_R
        position_of = torch.empty_like(self.column_order)
        position_of[self.column_order] = torch.arange(len(position_of), device=position_of.device)
        return position_of[self.pairs.self_R[self.row_order]]


def _in_order(values: Tensor, order: Tensor | None) -> Tensor:
    return values.contiguous() if order is None else values[order]


def _bands(row_labels: Tensor, column_labels: Tensor, block: int) -> Tensor:
    """(blocks, 2): the columns whose labels occur in each block of rows."""
    low = torch.searchsorted(column_labels, row_labels[::block].contiguous())
    last = torch.cat([row_labels[block - 1 :: block], row_labels[-1:]])[: len(low)]
    high = torch.searchsorted(column_labels, last.contiguous(), right=True)
    return torch.stack([low, high], dim=1)


def _tile(num_rows: int, dim: int, half: bool, resident: bool) -> dict[str, int]:
    """Block and tile sizes that measured well; see benchmarks/README.md."""
    padded = max(16, 1 << (dim - 1).bit_length())
    if not resident:
        return {"BM": 128, "BN": 128, "BD": 64, "num_warps": 8, "num_stages": 3}
    if not half:
        return {"BM": 64, "BN": 32, "BD": padded, "num_warps": 4, "num_stages": 2}
    small = num_rows < SORT_FROM
    return {"BM": 64 if small else 128, "BN": 64, "BD": padded, "num_warps": 4 if small else 8, "num_stages": 3}


def _wide_product(h_BC: Tensor, y_CD: Tensor) -> Tensor:
    """Half precision in, float32 out: the sum over candidates would not fit float16."""
    if h_BC.dtype == torch.float32 or h_BC.device.type != "cuda":
        return h_BC.float() @ y_CD.float()
    return torch.mm(h_BC, y_CD, out_dtype=torch.float32)


def _reason_against(z: Tensor, positives: Tensor | None) -> str | None:
    if positives is not None:
        return "goes by labels and not by a matrix of positives"
    if z.dtype == torch.float64:
        return "computes in float32 and got float64"
    if z.device.type != "cuda" and not _interpreted():
        return f"needs a CUDA device and the embeddings are on {z.device.type}"
    if not _has_triton():
        return "needs the package triton, which comes with torch for CUDA"
    return None


def _interpreted() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"


@cache
def _has_triton() -> bool:
    try:
        import triton  # noqa: F401  (only asked for)
    except ImportError:
        return False
    return True


def _tiles() -> Any:
    from contune.kernels import tiles  # needs triton, which a CPU-only torch does not bring

    return tiles


@cache
def _num_processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4
