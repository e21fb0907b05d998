"""The pair losses as Triton kernels: four launches for the forward pass, three for the backward one, no atomics.

For labels, in float32 and below. Tiles of the similarity matrix live and die in registers. The kernels themselves
are in tiles.py and rows.py, the derivation in README.md.

Shapes: R anchors, C candidates, D embedding size, S splits of the columns.
"""

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor

from contune.device import HAS_TRITON, interprets_triton
from contune.errors import UserError
from contune.kernels.problem import Anchors, Knobs, Pairs, Statistics, exponent_is_safe
from contune.kernels.wide import wide_product

LOG2_E = math.log2(math.e)
SORT_FROM = 4096
"""Candidates from which sorting by label pays: tiles without positives then need no comparisons."""
RESIDENT_DIM = 256
"""The largest embedding whose gradient a program can hold in registers."""
HALF_SCALE = 256.0
"""Keeps small gradient coefficients, which are at most a little over 2 in size, out of float16's subnormals."""
SMALLEST_K2, LARGEST_K2, LARGEST_K1 = 1e-30, 1e30, 1e38
"""The kernels multiply by them in float32, by k2 also sums over all candidates."""
COEFFICIENT_BYTES = 2**27
"""Memory for coefficients of embeddings larger than RESIDENT_DIM."""
ROW_BLOCK = 256
ROW_ELEMENTS = 4096
"""Anchors, and numbers of theirs, for a program of the row kernels."""


def is_supported(z: Tensor, positives: Tensor | None, knobs: Knobs) -> bool:
    return z.device.type == "cuda" and _reason_against(z, positives, knobs) is None


def check_supported(z: Tensor, positives: Tensor | None, knobs: Knobs) -> None:
    reason = _reason_against(z, positives, knobs)
    if reason is not None:
        raise UserError(f"backend='fused' {reason}; backend='auto' takes another")


def prepared(z_ND: Tensor, normalize: bool, knobs: Knobs) -> tuple[Tensor, Tensor | None]:
    """Embeddings as the kernels multiply them, of length 1 when asked, and the lengths they had.

    float16 for `fast`: of unit embeddings it keeps as much as TF32 does, at twice the rate.
    """
    if not normalize:
        return z_ND.float().contiguous(), None
    num, dim = z_ND.shape
    half = knobs.precision == "fast"
    x_ND = z_ND.new_empty(num, dim, dtype=torch.float16 if half else torch.float32)
    norm_N = z_ND.new_empty(num, dtype=torch.float32)
    rows = max(1, ROW_ELEMENTS // padded(dim))
    _row_kernels().prepare_kernel[(-(-num // rows),)](
        z_ND, x_ND, norm_N, num, *z_ND.stride(), D=dim, BD=padded(dim), BM=rows
    )
    return x_ND, norm_N


def reduced(stats: Statistics, reduction: str) -> tuple[Tensor, Tensor]:
    """Sum or mean of the losses, and the number of usable anchors, at least 1."""
    total, num_usable = stats.loss_R.new_empty(()), stats.loss_R.new_empty(())
    _row_kernels().reduce_kernel[(1,)](
        stats.loss_R, stats.total_R, total, num_usable, len(stats.loss_R), MEAN=reduction == "mean", BLOCK=1024
    )
    return total, num_usable


class Plan:
    """Anchors against candidates: everything that the kernels are started with."""

    def __init__(self, x_RD: Tensor, y_CD: Tensor, pairs: Pairs, knobs: Knobs, bound: float | None) -> None:
        """bound: the largest |similarity|, if known."""
        assert pairs.labels_R is not None
        assert pairs.labels_C is not None
        num_columns = len(y_CD)
        self.num_rows, self.dim = x_RD.shape
        self.knobs = knobs
        self.half = x_RD.dtype == torch.float16
        self.shifted = not exponent_is_safe(num_columns, knobs, bound, torch.float32)
        self.resident = self.dim <= RESIDENT_DIM
        tile = _tile(self.dim, self.half, self.resident)

        self.sorted = num_columns >= SORT_FROM
        same = pairs.labels_R is pairs.labels_C
        self.row_order = pairs.labels_R.argsort(stable=True) if self.sorted else pairs.labels_R
        self.column_order = self.row_order if same or not self.sorted else pairs.labels_C.argsort(stable=True)
        self.x_RD = self._in_order(x_RD, self.row_order)
        self.y_CD = self.x_RD if y_CD is x_RD and same else self._in_order(y_CD, self.column_order)
        row_labels = self._in_order(pairs.labels_R, self.row_order)
        column_labels = row_labels if same else self._in_order(pairs.labels_C, self.column_order)
        own = self._own_columns(pairs.self_start) if pairs.self_start is not None and self.sorted else row_labels
        bands = _bands(row_labels, column_labels, tile["BM"]) if self.sorted else row_labels
        self.inputs = (self.x_RD, self.y_CD, row_labels, column_labels, own, bands)

        blocks, tiles = -(-self.num_rows // tile["BM"]), -(-num_columns // tile["BN"])
        tiles_per_split = -(-tiles // min(tiles, max(1, 2 * num_processors(x_RD.device) // blocks)))
        self.num_splits = -(-tiles // tiles_per_split)
        self.grid = (blocks, self.num_splits)
        self.sizes = (self.num_rows, num_columns, tiles_per_split * tile["BN"], pairs.self_start or 0)
        self.options: dict[str, Any] = {
            "D": self.dim,
            "RESIDENT": self.resident,
            "SORTED": self.sorted,
            "HAS_SELF": pairs.self_start is not None,
            "SHIFTED": self.shifted,
            "PULLS": knobs.k1 > 0,
            "INNER": knobs.variant == "in",
            "PRECISION": "tf32x3" if knobs.precision == "high" else "tf32",
            **tile,
        }

    def statistics(self) -> Statistics:
        part_S6R = self._floats(self.num_splits, 6, self.num_rows)
        knobs = self.knobs
        _tile_kernels().statistics_kernel[self.grid](
            *self.inputs, part_S6R, *self.sizes, LOG2_E / knobs.temperature, knobs.k1, knobs.k2, **self.options
        )
        out_4R = self._floats(4, self.num_rows)
        _row_kernels().finish_statistics_kernel[(-(-self.num_rows // ROW_BLOCK),)](
            part_S6R, self.row_order, out_4R, self.num_rows, self.num_splits, knobs.temperature,
            SORTED=self.sorted, INNER=knobs.variant == "in", BLOCK=ROW_BLOCK,
        )  # fmt: skip
        return Statistics(*out_4R)

    def gradient(
        self, rows: Anchors | None, columns: Anchors | None, norm_R: Tensor | None, dtype: torch.dtype
    ) -> Tensor:
        """From the losses of the rows as anchors and of the columns as anchors."""
        scale = self._floats()
        largest = self._largest(rows, columns)
        row_5R = self._packed(rows, self.num_rows, self.row_order, largest, scale)
        if columns is rows:
            column_5C = row_5R
        else:
            column_5C = self._packed(columns, len(self.y_CD), self.column_order, largest, scale)
        knobs = self.knobs
        numbers = (LOG2_E / knobs.temperature, knobs.temperature * knobs.k1, knobs.k2)
        if self.resident:
            part_SRD = self._floats(self.num_splits, self.num_rows, self.dim)
            _tile_kernels().gradient_kernel[self.grid](
                *self.inputs, row_5R, column_5C, part_SRD, *self.sizes, *numbers, 0, self.num_rows, **self.options
            )
        else:
            part_SRD = self._by_library_product(row_5R, column_5C, numbers)[None]
        out_RD = self._floats(self.num_rows, self.dim, dtype=dtype)
        block = max(1, ROW_ELEMENTS // padded(self.dim))
        _row_kernels().finish_gradient_kernel[(-(-self.num_rows // block),)](
            part_SRD, self.x_RD, scale if norm_R is None else norm_R, self.row_order, scale, out_RD,
            self.num_rows, len(part_SRD), knobs.temperature,
            D=self.dim, BD=padded(self.dim), BM=block, SORTED=self.sorted, NORMALISED=norm_R is not None,
        )  # fmt: skip
        return out_RD

    def _largest(self, rows: Anchors | None, columns: Anchors | None) -> Tensor:
        """The largest upstream gradient, in size: what float16 coefficients are scaled by."""
        upstreams = [side.upstream for side in (rows, columns) if side is not None]
        # The same gradient for all anchors is one number, expanded; there the kernel need not be told more.
        if not self.half or (columns is rows and upstreams[0].stride() == (0,)):
            return upstreams[0]
        return torch.stack([upstream.abs().amax() for upstream in upstreams]).amax()

    def _packed(self, anchors: Anchors | None, num: int, order: Tensor, largest: Tensor, scale: Tensor) -> Tensor:
        """(5, num) numbers of the anchors on one side; none of them weighs anything where there are no anchors."""
        packed_5N = self._floats(5, num)
        if anchors is None:
            packed_5N.zero_()
            packed_5N[1] = packed_5N[4] = math.inf
            return packed_5N
        _row_kernels().pack_kernel[(-(-num // ROW_BLOCK),)](
            anchors.upstream, anchors.divisor, anchors.log_D, anchors.total, anchors.log_S, order, largest,
            scale, packed_5N, num, anchors.upstream.stride(0),
            SORTED=self.sorted, SHIFTED=self.shifted, HALF_SCALE=HALF_SCALE if self.half else 0.0, BLOCK=ROW_BLOCK,
        )  # fmt: skip
        return packed_5N

    def _by_library_product(self, row_5R: Tensor, column_5C: Tensor, numbers: tuple[float, float, float]) -> Tensor:
        """For embeddings too large for registers: coefficients of some rows at a time, times all candidates."""
        block, num_columns = self.options["BM"], len(self.y_CD)
        size = max(1, COEFFICIENT_BYTES // (num_columns * self.y_CD.element_size() * block)) * block
        grad_RD = self._floats(self.num_rows, self.dim)
        for start in range(0, self.num_rows, size):
            stop = min(start + size, self.num_rows)
            h_BC = self.y_CD.new_empty(stop - start, num_columns)
            _tile_kernels().gradient_kernel[(-(-(stop - start) // block), self.num_splits)](
                *self.inputs, row_5R, column_5C, h_BC, *self.sizes, *numbers, start, stop, **self.options
            )
            grad_RD[start:stop] = wide_product(h_BC, self.y_CD)
        return grad_RD

    def _floats(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=self.x_RD.device)

    def _in_order(self, values: Tensor, order: Tensor) -> Tensor:
        return values[order] if self.sorted else values.contiguous()

    def _own_columns(self, self_start: int) -> Tensor:
        """Where each anchor stands among the sorted columns."""
        position_of = torch.empty_like(self.column_order)
        position_of[self.column_order] = torch.arange(len(position_of), device=position_of.device)
        return position_of[self.row_order + self_start]


def _bands(row_labels: Tensor, column_labels: Tensor, block: int) -> Tensor:
    """(blocks, 2): the columns whose labels occur in each block of rows."""
    low = torch.searchsorted(column_labels, row_labels[::block].contiguous())
    last = torch.cat([row_labels[block - 1 :: block], row_labels[-1:]])[: len(low)]
    high = torch.searchsorted(column_labels, last.contiguous(), right=True)
    return torch.stack([low, high], dim=1)


def _tile(dim: int, half: bool, resident: bool) -> dict[str, int]:
    """Block and tile sizes that measured best on an H200 at 32,768 and 65,536 embeddings of 128."""
    if not resident:
        return {"BM": 128, "BN": 128, "BD": 64, "num_warps": 8, "num_stages": 3}
    if not half or dim > 128:
        return {"BM": 64, "BN": 32, "BD": padded(dim), "num_warps": 4, "num_stages": 2}
    return {"BM": 64, "BN": 64, "BD": padded(dim), "num_warps": 4, "num_stages": 3}


def padded(dim: int) -> int:
    """Triton wants powers of two, and its matrix product at least 16."""
    return max(16, 1 << (dim - 1).bit_length())


def _reason_against(z: Tensor, positives: Tensor | None, knobs: Knobs) -> str | None:
    if knobs.k2 == 0:
        return "needs k2 above 0"
    if not SMALLEST_K2 <= knobs.k2 <= LARGEST_K2:
        return f"needs k2 from {SMALLEST_K2:g} to {LARGEST_K2:g} and got {knobs.k2:g}"
    if knobs.k1 > LARGEST_K1:
        return f"needs k1 up to {LARGEST_K1:g} and got {knobs.k1:g}"
    if z.numel() >= 2**31:
        return f"takes fewer than 2^31 numbers and got {z.numel():,}"
    if positives is not None:
        return "goes by labels and not by a matrix of positives"
    if z.dtype == torch.float64:
        return "computes in float32 and got float64"
    if z.device.type != "cuda" and not interprets_triton():
        return f"needs a CUDA device and the embeddings are on {z.device.type}"
    if not HAS_TRITON:
        return "needs the package triton, which comes with torch for CUDA"
    return None


def _tile_kernels() -> Any:
    from contune.kernels import tiles  # needs triton, which a CPU-only torch does not bring

    return tiles


def _row_kernels() -> Any:
    from contune.kernels import rows  # likewise

    return rows


@cache
def num_processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4
