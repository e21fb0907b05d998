"""The tuned contrastive loss and the two losses it contains: SupCon (k1 = 0, k2 = 1) and NT-Xent."""

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from contune.errors import UserError, unknown
from contune.kernels import LossSettings
from contune.losses import dispatch

VARIANTS = ("out", "in")


def tcl_loss(
    z: Tensor,
    labels: Tensor | None = None,
    *,
    positives: Tensor | None = None,
    candidates: Tensor | None = None,
    candidate_labels: Tensor | None = None,
    temperature: float = 0.1,
    k1: float = 5000.0,
    k2: float = 1.0,
    normalize: bool = True,
    reduction: str = "mean",
    backend: str = "auto",
    precision: str = "fast",
    distributed: bool = False,
) -> Tensor:
    """The tuned contrastive loss, equations 7 to 9 of the paper, averaged over anchors.

        for each anchor i:
            D = Σ_p exp(s_ip / τ) + k1 Σ_p exp(-s_ip) + k2 Σ_n exp(s_in / τ)
            loss_i = - mean over positives p of log(exp(s_ip / τ) / D)

    Args:
        z: (N, d) embeddings, all views stacked.
        labels: (N,) integers; the same label makes two embeddings positives of each other.
        positives: instead of labels, an (N, N) bool mask, or weights: row i says who is positive for anchor i
            and how much each counts in the mean. It need not be symmetric, and its diagonal is ignored. Weights that
            require a gradient get it from `dense`, which `auto` then chooses.
        candidates: (M, d) embeddings to compare the anchors with instead of each other (a queue, a momentum
            batch). They get a gradient if they require one.
        candidate_labels: (M,) integers, theirs; or give (N, M) positives.
        temperature: τ. A parameter that requires a gradient gets it from `dense`.
        k1: above 0, pulls harder on positives.
        k2: above 1, pushes harder on negatives.
        normalize: L2-normalize the embeddings first.
        reduction: `mean` over anchors that have a positive, `sum`, or `none` for one value per anchor.
        backend: `dense` writes out the N×N matrix and can be differentiated twice; `chunked` and `fused` (CUDA)
            never hold it; `auto` chooses the fastest that fits.
        precision: of `fused`: `fast` multiplies in the tensor cores' 11-bit mantissa, `high` to float32, whatever
            torch's global TF32 setting is.
        distributed: z and labels are this process's part of a batch that is spread over all processes. The loss is
            that of the whole batch. Its gradient, averaged over processes, is that of one process with all of it.

    An anchor without a positive contributes 0. The paper writes a sum over anchors where its authors' code
    and this function take the mean. float16 and bfloat16 are computed in float32, also under autocast. NaN in
    the embeddings comes out as NaN.
    """
    settings = LossSettings(temperature, k1, k2, "out", precision, normalize, reduction)
    return _pair_loss(z, labels, positives, candidates, candidate_labels, settings, backend, distributed)


def supcon_loss(
    z: Tensor,
    labels: Tensor | None = None,
    *,
    positives: Tensor | None = None,
    candidates: Tensor | None = None,
    candidate_labels: Tensor | None = None,
    temperature: float = 0.1,
    variant: str = "out",
    normalize: bool = True,
    reduction: str = "mean",
    backend: str = "auto",
    precision: str = "fast",
    distributed: bool = False,
) -> Tensor:
    """The supervised contrastive loss, equation 2 of the paper; arguments as in `tcl_loss`.

    Args:
        variant: `out` has the mean over positives outside the logarithm (L_out, the paper's and the better one);
            `in` has it inside, which some libraries call SupCon.
    """
    settings = LossSettings(temperature, 0.0, 1.0, variant, precision, normalize, reduction)
    return _pair_loss(z, labels, positives, candidates, candidate_labels, settings, backend, distributed)


def ntxent_loss(
    z: Tensor,
    ids: Tensor,
    *,
    candidates: Tensor | None = None,
    candidate_ids: Tensor | None = None,
    temperature: float = 0.2,
    normalize: bool = True,
    reduction: str = "mean",
    backend: str = "auto",
    precision: str = "fast",
    distributed: bool = False,
) -> Tensor:
    """SimCLR's loss: SupCon where only the views of one sample, those with the same id, are positives.

    Args:
        ids: (N,) integers, one per sample, repeated for its views: `torch.arange(batch).repeat(num_views)`.
    """
    settings = LossSettings(temperature, 0.0, 1.0, "out", precision, normalize, reduction)
    return _pair_loss(z, ids, None, candidates, candidate_ids, settings, backend, distributed)


class _LossModule(nn.Module):
    """Keeps the settings of a loss function as attributes and passes them on."""

    function: Callable[..., Tensor]

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.names = tuple(settings)
        for name, value in settings.items():
            setattr(self, name, value)
        shared = {name: value for name, value in settings.items() if name in LossSettings._fields}
        check_settings(LossSettings(**{"k1": 0.0, "k2": 1.0} | shared), settings["backend"])

    @property
    def settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.names}

    def forward(
        self,
        z: Tensor,
        labels: Tensor | None = None,
        positives: Tensor | None = None,
        candidates: Tensor | None = None,
        candidate_labels: Tensor | None = None,
    ) -> Tensor:
        apart = {"candidates": candidates, "candidate_labels": candidate_labels}
        return type(self).function(z, labels, positives=positives, **apart, **self.settings)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.settings.items())


class TCLLoss(_LossModule):
    """`tcl_loss` as a Module."""

    function = staticmethod(tcl_loss)

    def __init__(
        self,
        *,
        temperature: float = 0.1,
        k1: float = 5000.0,
        k2: float = 1.0,
        normalize: bool = True,
        reduction: str = "mean",
        backend: str = "auto",
        precision: str = "fast",
        distributed: bool = False,
    ) -> None:
        super().__init__(
            temperature=temperature, k1=k1, k2=k2, normalize=normalize, reduction=reduction, backend=backend,
            precision=precision, distributed=distributed,
        )  # fmt: skip


class SupConLoss(_LossModule):
    """`supcon_loss` as a Module."""

    function = staticmethod(supcon_loss)

    def __init__(
        self,
        *,
        temperature: float = 0.1,
        variant: str = "out",
        normalize: bool = True,
        reduction: str = "mean",
        backend: str = "auto",
        precision: str = "fast",
        distributed: bool = False,
    ) -> None:
        super().__init__(
            temperature=temperature, variant=variant, normalize=normalize, reduction=reduction, backend=backend,
            precision=precision, distributed=distributed,
        )  # fmt: skip


class NTXentLoss(_LossModule):
    """`ntxent_loss` as a Module."""

    function = staticmethod(ntxent_loss)

    def __init__(
        self,
        *,
        temperature: float = 0.2,
        normalize: bool = True,
        reduction: str = "mean",
        backend: str = "auto",
        precision: str = "fast",
        distributed: bool = False,
    ) -> None:
        super().__init__(
            temperature=temperature, normalize=normalize, reduction=reduction, backend=backend,
            precision=precision, distributed=distributed,
        )  # fmt: skip

    def forward(  # type: ignore[override]  # ids instead of labels
        self, z: Tensor, ids: Tensor, candidates: Tensor | None = None, candidate_ids: Tensor | None = None
    ) -> Tensor:
        return ntxent_loss(z, ids, candidates=candidates, candidate_ids=candidate_ids, **self.settings)


def _pair_loss(
    z: Tensor,
    labels: Tensor | None,
    positives: Tensor | None,
    candidates: Tensor | None,
    candidate_labels: Tensor | None,
    settings: LossSettings,
    backend: str,
    distributed: bool,
) -> Tensor:
    """Check, choose the backend, compute."""
    settings = check_settings(settings, backend)
    check_pairs(z, labels, positives, candidates, candidate_labels)
    if distributed and (positives is not None or candidates is not None):
        raise UserError("distributed=True needs labels and no candidates. Gather positives and candidates yourself.")
    if candidates is not None and candidates.dtype != z.dtype:  # a float32 queue and what autocast gives
        dtype = torch.promote_types(z.dtype, candidates.dtype)
        z, candidates = z.to(dtype), candidates.to(dtype)
    labels, candidate_labels = (
        None if y is None else y.to(z.device, torch.int64).contiguous() for y in (labels, candidate_labels)
    )
    return dispatch.pair_loss(z, labels, positives, candidates, candidate_labels, settings, backend, distributed)


def check_settings(settings: LossSettings, backend: str = "auto") -> LossSettings:
    """The settings with numbers as floats. A temperature that requires a gradient stays a tensor."""
    for name, value, choices in (
        ("variant", settings.variant, VARIANTS),
        ("reduction", settings.reduction, dispatch.REDUCTIONS),
        ("backend", backend, dispatch.BACKENDS),
        ("precision", settings.precision, dispatch.PRECISIONS),
    ):
        if value not in choices:
            raise unknown(name, value, choices)
    temperature: Any = settings.temperature
    number = check_number("temperature", temperature, zero=False)
    learnt = isinstance(temperature, Tensor) and temperature.requires_grad
    k1, k2 = (check_number(name, getattr(settings, name)) for name in ("k1", "k2"))
    for name in ("k1", "k2"):
        if isinstance(getattr(settings, name), Tensor) and getattr(settings, name).requires_grad:
            raise UserError(f"{name} is not differentiable. Pass {name}.item().")
    return settings._replace(temperature=temperature if learnt else number, k1=k1, k2=k2)


def check_number(name: str, value: object, *, zero: bool = True) -> float:
    """A finite number of at least 0, or above 0 without `zero`; also from a tensor with one element."""
    number = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
    if not isinstance(number, Real) or not 0 <= float(number) < math.inf or (number == 0 and not zero):
        raise UserError(f"{name} must be a finite number {'of at least' if zero else 'above'} 0, got {value!r}")
    return float(number)


def check_pairs(
    z: Tensor,
    labels: Tensor | None,
    positives: Tensor | None,
    candidates: Tensor | None = None,
    candidate_labels: Tensor | None = None,
) -> None:
    """Raise a UserError unless these are embeddings with either labels or positives, of shapes that fit."""
    problem = _problem(z, labels, positives, candidates, candidate_labels)
    if problem is not None:
        raise UserError(problem)


def _problem(z: Any, labels: Any, positives: Any, candidates: Any, candidate_labels: Any) -> str | None:
    for name, rows in (("embeddings", z), ("candidates", candidates)):
        if rows is None and name == "candidates":
            continue
        if not isinstance(rows, Tensor) or rows.dim() != 2 or not rows.is_floating_point():
            return (
                f"{name} must be a floating point tensor of shape (N, d), got {_described(rows)}. "
                "Stack views with torch.cat([z1, z2])."
            )
        if rows.shape[1] != z.shape[1]:
            return f"candidates must have the embeddings' size {z.shape[1]}, got {rows.shape[1]}"
    if (labels is None) == (positives is None):
        return "Pass either labels or positives, so that each anchor's positives are known."
    if candidate_labels is not None and (candidates is None or positives is not None):
        return "candidate_labels need candidates and labels, and no positives."
    if labels is not None and candidates is not None and candidate_labels is None:
        return "candidates need candidate_labels, or positives instead of labels."
    others = z if candidates is None else candidates
    for name, values, rows in (("labels", labels, z), ("candidate_labels", candidate_labels, others)):
        if values is None:
            continue
        if not isinstance(values, Tensor) or values.is_floating_point() or values.is_complex():
            return (
                f"{name} must be a tensor of integers, got {_described(values)}. To number class names use "
                f"torch.as_tensor(numpy.unique({name}, return_inverse=True)[1]). For soft labels use positives=."
            )
        if values.shape != (len(rows),):
            return (
                f"{name} must have one entry for each of the {len(rows)} embeddings, got {_described(values)}. "
                "With several views use labels.repeat(num_views)."
            )
    if positives is not None:
        shape = (len(z), len(others))
        if not isinstance(positives, Tensor) or positives.shape != shape or positives.is_complex():
            return f"positives must be a bool mask or real weights of shape {shape}, got {_described(positives)}"
        # Looking at the values would make a GPU wait for the host, so only the CPU checks them.
        if positives.dtype.is_signed and positives.device.type == "cpu":
            bad = ~(positives >= 0) | positives.isinf()
            if bad.any():
                return f"positives must be finite weights of at least 0, got {positives[bad][0].item():g}"
    return None


def _described(value: object) -> str:
    return f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
