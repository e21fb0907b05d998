"""The pair losses as Triton kernels: four launches for the forward pass (SINCERE: five), three for the backward pass.

For labels, integers or a matrix of them, in float32 and below. Tiles of the similarity matrix live and die in
registers. The kernels are in triton_kernels.py, the derivation is in README.md.

Up to a few thousand embeddings a GPU waits for Python, so the number of launches counts. `loss_and_gradient` does with
two, both in the forward pass: the gradient of a sum or mean is known up to one upstream number.

Shapes: R anchors, C candidates, D embedding size, S splits of the columns.
"""

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor

from contune.device import HAS_TRITON, interprets_triton
from contune.kernels import LossSettings, Pairs
from contune.kernels.dense import exponent_is_safe

LOG2_E = math.log2(math.e)
SORT_FROM = 4096
"""Candidates from which sorting by label pays: tiles without positives then need no comparisons."""
RESIDENT_DIM = 256
"""The largest embedding whose gradient a program can hold in registers."""
RESIDENT_CLASSES = 128
"""The largest number of classes in a label matrix of which a program holds whole rows."""
SMALL_BATCH = 4096
"""Up to here `loss_and_gradient` is faster; above, the device is slower than Python again."""
SMALL_ROW_BLOCK = 16
HALF_SCALE = 256.0
"""Keeps small gradient coefficients out of float16's subnormals. The largest is below 2 (1 + τ) before it."""
K1_LIMIT, K2_LIMITS, TAU_LIMIT = 1e38, (1e-30, 1e30), 100.0
"""The kernels multiply by k1 and k2 in float32, by k2 also sums. Up to this τ, coefficients fit float16."""
COEFFICIENT_BYTES = 2**28
"""Memory for coefficients of embeddings larger than RESIDENT_DIM."""
ROW_BLOCK = 256
ROW_ELEMENTS = 4096
"""Anchors, and their numbers, per program of the kernels that go row by row."""


def unsupported(z: Tensor, labels: Tensor | None, settings: LossSettings) -> str | None:
    """Why these kernels cannot compute a loss; None if they can."""
    if z.device.type != "cuda" and not interprets_triton():
        return f"needs a CUDA device, and the embeddings are on {z.device.type}"
    if not HAS_TRITON:
        return "needs the package triton, which comes with torch for CUDA"
    if labels is None or labels.shape[1:] == (0,):
        return "needs labels, integers or a matrix of them, and not positives"
    if z.dtype == torch.float64:
        return "computes in float32, and the embeddings are float64"
    if (num := max(z.numel(), labels.numel())) >= 2**31:
        return f"takes fewer than 2^31 numbers, and got {num:,}"
    fits_float32 = K2_LIMITS[0] <= settings.k2 <= K2_LIMITS[1] and settings.k1 <= K1_LIMIT
    if not fits_float32 or settings.temperature > TAU_LIMIT:
        return f"needs k1 <= {K1_LIMIT:g}, {K2_LIMITS[0]:g} <= k2 <= {K2_LIMITS[1]:g}, temperature <= {TAU_LIMIT:g}"
    return None


def prepare(z_ND: Tensor, settings: LossSettings) -> tuple[Tensor, Tensor | None]:
    """float16 for `fast`: for unit embeddings it keeps as many digits as TF32, at twice the rate."""
    if not settings.normalize:
        return z_ND.float().contiguous(), None
    num, dim = z_ND.shape
    x_ND = z_ND.new_empty(num, dim, dtype=torch.float16 if settings.precision == "fast" else torch.float32)
    norm_N = z_ND.new_empty(num, dtype=torch.float32)
    rows = max(1, ROW_ELEMENTS // padded(dim))
    _kernels().prepare_kernel[(-(-num // rows),)](
        z_ND, x_ND, norm_N, num, *z_ND.stride(), D=dim, BD=padded(dim), BM=rows
    )
    return x_ND, norm_N


def arrange(pairs: Pairs, settings: LossSettings) -> Pairs:
    labels_R, labels_C = pairs.labels_R, pairs.labels_C
    assert labels_R is not None
    assert labels_C is not None
    if labels_R.dim() == 2:
        if settings.precision == "high" or labels_R.dtype == torch.float16:
            return pairs
        # All processes scale the labels of a batch alike, because they see each other's sums of weights.
        largest_R, largest_C = (labels_R if pairs.self_start is None else labels_C).amax(), labels_C.amax()
        return pairs._replace(labels_R=_half_labels(labels_R, largest_R), labels_C=_half_labels(labels_C, largest_C))
    if pairs.order_R is None and len(pairs.y_CD) >= SORT_FROM:
        pairs = pairs.sorted_by_label()
    return pairs if pairs.order_R is None else pairs.with_bands(_tile(pairs.x_RD)["BM"])


def _half_labels(labels_NC: Tensor, largest: Tensor) -> Tensor:
    """In float16, scaled to its range: only ratios of weights matter. What is above 0 stays above 0."""
    scaled_NC = labels_NC * (2.0**14 / largest.clamp(min=1e-30))
    return torch.where(labels_NC > 0, scaled_NC.clamp(min=6e-8), 0.0).half()


def statistics(pairs: Pairs, settings: LossSettings) -> Tensor:
    grid, (inputs, sizes), options = _launch(pairs, settings)
    num_rows, order_R = len(pairs.x_RD), pairs.order_R
    part_SKR = _floats(pairs, grid[1], 7, num_rows)
    to_log2, (k1, _) = LOG2_E / settings.temperature, _first_number(settings)
    _kernels().statistics_kernel[grid](*inputs, part_SKR, *sizes, to_log2, k1, settings.k2, **options)
    stats_4R = _floats(pairs, 4, num_rows)
    order = stats_4R if order_R is None else order_R
    _kernels().finish_statistics_kernel[(-(-num_rows // ROW_BLOCK),)](
        part_SKR, order, stats_4R, num_rows, grid[1], settings.temperature,
        SORTED=options["SORTED"], KIND=options["KIND"], BLOCK=ROW_BLOCK,
    )  # fmt: skip
    if settings.kind == "sincere":
        once = {name: value for name, value in options.items() if name not in ("SHIFTED", "PULLS", "KIND")}
        (num_rows, num_columns, _, self_start) = sizes
        _kernels().margins_kernel[grid[:1]](
            *inputs, order, stats_4R, num_rows, num_columns, self_start, to_log2, k1, **once
        )
    return stats_4R


def reduce(stats_4R: Tensor, reduction: str) -> tuple[Tensor, Tensor]:
    """Sum or mean of the losses, and the number of usable anchors, at least 1."""
    total, num_usable = stats_4R.new_empty(()), stats_4R.new_empty(())
    _kernels().reduce_kernel[(1,)](
        stats_4R[0], stats_4R[2], total, num_usable, stats_4R.shape[1], MEAN=reduction == "mean", BLOCK=1024
    )
    return total, num_usable


def gradient(
    pairs: Pairs,
    settings: LossSettings,
    rows: tuple[Tensor, Tensor] | None,
    columns: tuple[Tensor, Tensor] | None,
    divisor: Tensor,
    norm_R: Tensor | None,
    dtype: torch.dtype,
) -> Tensor:
    """From the losses of the rows as anchors and of the columns as anchors: (upstream gradient, statistics) each."""
    grid, (inputs, sizes), options = _launch(pairs, settings, gradient=True)
    (num_rows, dim), half = pairs.x_RD.shape, pairs.x_RD.dtype == torch.float16
    # float16 coefficients are scaled by the largest upstream gradient. One number, expanded, is its own largest.
    upstreams = [side[0] for side in (rows, columns) if side is not None]
    largest = upstreams[0]
    if half and not (columns is rows and largest.stride() == (0,)):
        largest = torch.cat([*upstreams, largest.new_zeros(1)]).abs().amax()  # a process may have no rows
    scale = _floats(pairs)

    def factors(side: tuple[Tensor, Tensor] | None, num: int, order: Tensor | None) -> Tensor:
        packed_5N = _floats(pairs, 5, num)
        if side is None:  # nothing weighs anything
            packed_5N.zero_()
            packed_5N[1] = packed_5N[4] = math.inf
            return packed_5N
        upstream_N, stats_4N = side
        _kernels().pack_kernel[(-(-num // ROW_BLOCK),)](
            upstream_N, divisor, stats_4N, stats_4N if order is None else order, largest, scale, packed_5N,
            num, upstream_N.stride(0), SORTED=options["SORTED"], SHIFTED=options["SHIFTED"],
            KIND=options["KIND"], HALF_SCALE=HALF_SCALE if half else 0.0, BLOCK=ROW_BLOCK,
        )  # fmt: skip
        return packed_5N

    row_5R = factors(rows, num_rows, pairs.order_R)
    column_5C = row_5R if columns is rows else factors(columns, len(pairs.y_CD), pairs.order_C)
    numbers = (LOG2_E / settings.temperature, _first_number(settings)[1], settings.k2)
    if options["RESIDENT"]:
        part_SRD = _floats(pairs, grid[1], num_rows, dim)
        _kernels().gradient_kernel[grid](*inputs, row_5R, column_5C, part_SRD, *sizes, *numbers, 0, num_rows, **options)
    else:  # coefficients of some rows at a time, times all candidates
        part_SRD, block = _floats(pairs, 1, num_rows, dim), options["BM"]
        row_bytes = len(pairs.y_CD) * pairs.y_CD.element_size()
        size = max(1, COEFFICIENT_BYTES // (row_bytes * block)) * block
        for start in range(0, num_rows, size):
            stop = min(start + size, num_rows)
            h_BC = pairs.y_CD.new_empty(stop - start, len(pairs.y_CD))
            _kernels().gradient_kernel[(-(-(stop - start) // block), grid[1])](
                *inputs, row_5R, column_5C, h_BC, *sizes, *numbers, start, stop, **options
            )
            _product(h_BC, pairs.y_CD, part_SRD[0, start:stop])
    grad_RD = _floats(pairs, num_rows, dim, dtype=dtype)
    block = max(1, ROW_ELEMENTS // padded(dim))
    _kernels().finish_gradient_kernel[(-(-num_rows // block),)](
        part_SRD, pairs.x_RD, scale if norm_R is None else norm_R, scale if pairs.order_R is None else pairs.order_R,
        scale, grad_RD, num_rows, len(part_SRD), settings.temperature,
        D=dim, BD=padded(dim), BM=block, SORTED=options["SORTED"], NORMALIZED=norm_R is not None,
    )  # fmt: skip
    return grad_RD


def _launch(pairs: Pairs, settings: LossSettings, *, gradient: bool = False) -> tuple[Any, Any, dict[str, Any]]:
    """Grid, tensors and sizes, and options of the two kernels that walk over tiles."""
    (num_rows, dim), num_columns = pairs.x_RD.shape, len(pairs.y_CD)
    assert pairs.labels_C is not None
    tile = _tile(pairs.x_RD, matrix=pairs.labels_C.dim() == 2, gradient=gradient)
    blocks, tiles = -(-num_rows // tile["BM"]), -(-num_columns // tile["BN"])
    # Few blocks would leave multiprocessors idle, so the columns are split.
    splits = min(tiles, 2 * num_processors(pairs.x_RD.device) // max(1, blocks))
    tiles_per_split = -(-tiles // max(1, splits))
    unused = pairs.labels_R
    inputs = (
        pairs.x_RD, pairs.y_CD, pairs.labels_R, pairs.labels_C,
        unused if pairs.own_R is None else pairs.own_R, unused if pairs.bands_K2 is None else pairs.bands_K2,
    )  # fmt: skip
    sizes = (num_rows, num_columns, tiles_per_split * tile["BN"], pairs.self_start or 0)
    options = {
        "D": dim,
        "RESIDENT": dim <= RESIDENT_DIM,
        "SORTED": pairs.order_R is not None,
        "HAS_SELF": pairs.self_start is not None,
        "SHIFTED": not exponent_is_safe(num_columns, settings),
        "PULLS": settings.k1 > 0 and settings.kind != "auto",
        "KIND": settings.kind,
        "PRECISION": "tf32x3" if settings.precision == "high" else "tf32",
        **tile,
        **_classes(*pairs.labels_C.shape[1:], fit=dim <= 128 or pairs.x_RD.dtype == torch.float16),
    }
    return (blocks, -(-tiles // max(1, tiles_per_split))), (inputs, sizes), options


def _classes(classes: int = 0, *, fit: bool = True) -> dict[str, int]:
    """Columns of a label matrix, and how many of them a program takes at a time: all, if they fit in shared memory."""
    columns = {"CLASSES": classes, "BC": padded(classes) if classes <= (RESIDENT_CLASSES if fit else 64) else 64}
    return columns if fit or not classes else {**columns, "num_stages": 1}


def _first_number(settings: LossSettings) -> tuple[float, float]:
    """What the kernels call k1, and `pull_factor`."""
    if settings.kind == "sincere":
        return settings.epsilon * LOG2_E, settings.epsilon * LOG2_E
    return settings.k1, settings.k1 * settings.temperature


def _tile(x_RD: Tensor, *, matrix: bool = False, gradient: bool = False) -> dict[str, int]:
    """Block and tile sizes that measured best on an H200 at 32,768 and 65,536 embeddings of size 128.

    matrix: of labels, whose rows take as much shared memory again. With these tiles it fits smaller GPUs too.
    """
    dim = x_RD.shape[1]
    if dim > RESIDENT_DIM:
        return {"BM": 128, "BN": 128, "BD": 64, "num_warps": 8, "num_stages": 3}
    if x_RD.dtype != torch.float16 or dim > 128:
        return {"BM": 64, "BN": 32, "BD": padded(dim), "num_warps": 4, "num_stages": 2}
    if matrix and not gradient:
        return {"BM": 128, "BN": 32, "BD": padded(dim), "num_warps": 8, "num_stages": 2}
    return {"BM": 64, "BN": 64, "BD": padded(dim), "num_warps": 4, "num_stages": 2 if matrix else 3}


def _product(h_BC: Tensor, y_CD: Tensor, out_BD: Tensor) -> None:
    """Halves by the library. float32 by a kernel: the library would follow torch's global flag for TF32."""
    if h_BC.dtype == torch.float16:
        out_BD.copy_(wide_product(h_BC, y_CD))
        return
    (num_rows, num_columns), dim = h_BC.shape, y_CD.shape[1]
    block = 128 if -(-num_rows // 128) * -(-dim // 64) >= 128 else 64  # what measured best, and fills an H200
    _kernels().product_kernel[(-(-num_rows // block), -(-dim // 64))](
        h_BC, y_CD, out_BD, num_rows, num_columns,
        D=dim, BD=64, BM=block, BN=32, PRECISION="tf32x3", num_warps=4, num_stages=3,
    )  # fmt: skip


@torch.library.custom_op("contune::wide_product", mutates_args=())
def wide_product(a_NK: Tensor, b_KM: Tensor) -> Tensor:
    """The product of float16 matrices in float32, without gradient: its sums need not fit float16."""
    if a_NK.dtype == torch.float32 or a_NK.device.type != "cuda":
        return a_NK.float() @ b_KM.float()
    return torch.mm(a_NK, b_KM, out_dtype=torch.float32)


@wide_product.register_fake
def _(a_NK: Tensor, b_KM: Tensor) -> Tensor:
    return a_NK.new_empty((a_NK.shape[0], b_KM.shape[1]), dtype=torch.float32)


_compiled: dict[tuple[object, ...], tuple[Any, Any]] = {}
"""The small kernels as Triton compiled them, by all that it looks at. Looking takes longer than a launch."""


def is_small(z_ND: Tensor, settings: LossSettings) -> bool:
    """Whether `loss_and_gradient` can and should compute the loss of a plain batch.

    A step that is captured in a CUDA graph does not wait for Python. The other kernels keep the device busier there.
    """
    num, dim = z_ND.shape
    return (
        0 < num <= SMALL_BATCH
        and dim <= RESIDENT_DIM
        and settings.normalize
        and settings.reduction != "none"
        and z_ND.requires_grad
        and torch.is_grad_enabled()
        and not (z_ND.is_cuda and torch.cuda.is_current_stream_capturing())
        and exponent_is_safe(num, settings)
    )


def loss_and_gradient(z_ND: Tensor, labels_N: Tensor, settings: LossSettings) -> tuple[Tensor, Tensor, Tensor]:
    """The sum or mean, for each anchor the number of its positives, and the gradient in float32."""
    num, dim = z_ND.shape
    temperature, _, k2, kind, _, precision = settings[:6]
    (k1, pull_factor), pulls = _first_number(settings), settings.k1 > 0 and kind != "auto"
    mean, scale = settings.reduction == "mean", HALF_SCALE if precision == "fast" else 1.0
    to_log2 = LOG2_E / temperature
    anchors_7N = torch.empty((7, num), device=z_ND.device)
    loss, grad_ND = torch.empty((), device=z_ND.device), torch.empty((num, dim), device=z_ND.device)
    statistics_arguments = (anchors_7N, num, *z_ND.stride(), to_log2, temperature, k1, k2, scale)
    gradient_arguments = (
        anchors_7N, loss, grad_ND, num, *z_ND.stride(), to_log2, temperature, pull_factor, k2, scale, mean
    )  # fmt: skip
    constants = _small_constants(dim, precision, kind, pulls, *labels_N.shape[1:])
    aligned = (z_ND.data_ptr() % 16 == 0, labels_N.data_ptr() % 16 == 0)  # what torch.empty hands out always is
    shapes = (z_ND.shape, z_ND.stride(), labels_N.shape[1:])
    key = (z_ND.device, z_ND.dtype, *shapes, aligned, precision, kind, pulls, mean)
    grid = (-(-num // SMALL_ROW_BLOCK), 1, 1)
    known = _compiled.get(key)
    if known is None:
        # The interpreter compiles nothing: there these are None, and the dictionary stays empty.
        kernels, options = _kernels(), {**constants, "num_warps": 4, "num_stages": 2}
        first = kernels.small_statistics_kernel[grid](z_ND, labels_N, *statistics_arguments, **options)
        second = kernels.small_gradient_kernel[grid](z_ND, labels_N, *gradient_arguments, **options)
        if first is not None:
            _compiled[key] = (first, second)
    else:
        known[0][grid](z_ND, labels_N, *statistics_arguments, *constants.values())
        known[1][grid](z_ND, labels_N, *gradient_arguments, *constants.values())
    return loss, anchors_7N[1], grad_ND


@cache
def _small_constants(dim: int, precision: str, kind: str, pulls: bool, classes: int = 0) -> dict[str, Any]:
    """In the order of the kernels' arguments."""
    half = precision == "fast"
    return {
        "D": dim,
        "BD": padded(dim),
        "BM": SMALL_ROW_BLOCK,
        "BN": 64 if half and dim <= 128 else 32,
        "PULLS": pulls,
        "KIND": kind,
        "HALF": half,
        "PRECISION": "tf32" if half else "tf32x3",
        **_classes(classes),
    }


def padded(dim: int) -> int:
    """Triton wants powers of two, and its matrix product at least 16."""
    return max(16, 1 << (dim - 1).bit_length())


@cache
def num_processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4


def _floats(pairs: Pairs, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=pairs.x_RD.device)


def _kernels() -> Any:
    from contune.kernels import triton_kernels  # needs triton, which a CPU-only torch does not bring

    return triton_kernels
