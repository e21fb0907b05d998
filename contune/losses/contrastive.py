"""The tuned contrastive loss and the two losses it contains: SupCon (k1 = 0, k2 = 1) and NT-Xent."""

from math import isfinite

import torch
import torch.nn.functional as F
from torch import Tensor

from contune.errors import UserError, unknown
from contune.kernels import dense
from contune.losses.pairs import positive_weights
from contune.losses.reduction import reduce_anchors

BACKENDS = ("auto", "dense")
VARIANTS = ("out", "in")


def tcl_loss(
    z: Tensor,
    labels: Tensor | None = None,
    *,
    positives: Tensor | None = None,
    temperature: float = 0.1,
    k1: float = 5000.0,
    k2: float = 1.0,
    normalize: bool = True,
    reduction: str = "mean",
    backend: str = "auto",
) -> Tensor:
    """The tuned contrastive loss, equations 6 to 8 of the paper, averaged over anchors.

        for each anchor i:
            D = Σ_p exp(s_ip / τ) + k1 Σ_p exp(-s_ip) + k2 Σ_n exp(s_in / τ)
            loss_i = - mean over positives p of log(exp(s_ip / τ) / D)

    Args:
        z: (N, d) embeddings, all views stacked. Scaled to length 1 here unless `normalize=False`.
        labels: (N,) integers; the same label makes two embeddings positives of each other.
        positives: instead of labels, an (N, N) bool mask, or weights: row i says who is positive for anchor i
            and how much each counts in the mean. It need not be symmetric, and its diagonal is ignored.
        temperature: τ. k1: above 0, pulls harder on positives. k2: above 1, pushes harder on negatives.
        reduction: `mean` over anchors that have a positive, `sum`, or `none` for one value per anchor.
        backend: `auto` or `dense`.

    An anchor without a positive contributes 0. The paper writes a sum over anchors where its authors' code
    and this function take the mean. float16 and bfloat16 are computed in float32, also under autocast. NaN in
    the embeddings comes out as NaN.
    """
    return _pair_loss(
        z, labels, positives, temperature=temperature, k1=k1, k2=k2, variant="out",
        normalize=normalize, reduction=reduction, backend=backend,
    )  # fmt: skip


def supcon_loss(
    z: Tensor,
    labels: Tensor | None = None,
    *,
    positives: Tensor | None = None,
    temperature: float = 0.1,
    variant: str = "out",
    normalize: bool = True,
    reduction: str = "mean",
    backend: str = "auto",
) -> Tensor:
    """The supervised contrastive loss, equation 2 of the paper; arguments as in `tcl_loss`.

    variant: `out` has the mean over positives outside the logarithm (L_out, the paper's and the better one);
    `in` has it inside, which some libraries call SupCon.
    """
    if variant not in VARIANTS:
        raise unknown("variant", variant, VARIANTS)
    return _pair_loss(
        z, labels, positives, temperature=temperature, k1=0.0, k2=1.0, variant=variant,
        normalize=normalize, reduction=reduction, backend=backend,
    )  # fmt: skip


def ntxent_loss(
    z: Tensor,
    ids: Tensor,
    *,
    temperature: float = 0.2,
    normalize: bool = True,
    reduction: str = "mean",
    backend: str = "auto",
) -> Tensor:
    """SimCLR's loss: SupCon where only the views of one sample, those with the same id, are positives.

    ids: (N,) integers, one per sample, repeated for its views: `torch.arange(batch).repeat(num_views)`.
    """
    return supcon_loss(z, ids, temperature=temperature, normalize=normalize, reduction=reduction, backend=backend)


def embeddings(z: Tensor, *, normalize: bool) -> Tensor:
    """`z`, checked, in float32 or better, of length 1 when asked."""
    if z.dim() != 2:
        raise UserError(f"embeddings must be (N, d), got shape {tuple(z.shape)}; stack the views: torch.cat([z1, z2])")
    if not z.is_floating_point():
        raise UserError(f"embeddings must be floating point, got {z.dtype}")
    z_ND = z if z.dtype == torch.float64 else z.float()
    return F.normalize(z_ND, dim=1) if normalize else z_ND


def check_positive(name: str, value: float) -> None:
    if not (value > 0 and isfinite(value)):
        raise UserError(f"{name} must be above 0 and finite, got {value:g}")


def check_not_negative(name: str, value: float) -> None:
    if not (value >= 0 and isfinite(value)):
        raise UserError(f"{name} must be 0 or above and finite, got {value:g}")


def _pair_loss(
    z: Tensor,
    labels: Tensor | None,
    positives: Tensor | None,
    *,
    temperature: float,
    k1: float,
    k2: float,
    variant: str,
    normalize: bool,
    reduction: str,
    backend: str,
) -> Tensor:
    check_positive("temperature", temperature)
    check_not_negative("k1", k1)
    check_not_negative("k2", k2)
    if backend not in BACKENDS:
        raise unknown("backend", backend, BACKENDS)
    with torch.autocast(z.device.type, enabled=False):
        z_ND = embeddings(z, normalize=normalize)
        weights_NN = positive_weights(z_ND, labels, positives)
        loss_N, usable_N = dense.tcl_per_anchor(
            z_ND @ z_ND.T, weights_NN, temperature=temperature, k1=k1, k2=k2, variant=variant
        )
        return reduce_anchors(loss_N, usable_N, reduction)
