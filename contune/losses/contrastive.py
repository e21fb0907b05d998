"""The tuned contrastive loss, its special cases SupCon and NT-Xent, and the losses that papers compare with them."""

from collections.abc import Callable
from inspect import signature
from typing import Any, Literal, TypedDict, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contune.errors import check_known
from contune.kernels import LossSettings, normalized
from contune.losses import dispatch

Number = float | Literal["auto"]
VARIANTS = ("out", "in")


class _Shared(TypedDict, total=False):
    """The settings that all losses have; `tcl_loss` explains them."""

    normalize: bool
    reduction: str
    backend: str
    precision: str
    distributed: bool


class _Arguments(_Shared, total=False):
    positives: Tensor | None
    candidates: Tensor | None
    candidate_labels: Tensor | None


def tcl_settings(temperature: float, k1: Number, k2: Number, r: float) -> LossSettings:
    """TCL, with r in place of what is `auto`."""
    dispatch.check_number("r", r)
    first, second = r if k1 == "auto" else k1, 1 + r if k2 == "auto" else k2
    return LossSettings(temperature, first, second, "auto" if k1 == "auto" and r > 0 else "out")


def tcl_loss(
    z: Tensor,
    labels: Tensor | None = None,
    *,
    positives: Tensor | None = None,
    candidates: Tensor | None = None,
    candidate_labels: Tensor | None = None,
    temperature: float = 0.1,
    k1: Number = "auto",
    k2: Number = "auto",
    r: float = 0.3,
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
        z: (N, d) embeddings, all views stacked; or (B, V, d) for V views of B samples. Labels and positives are then
            those of the samples, and `none` returns B·V values, sample by sample.
        labels: (N,) integers in a tensor, array or list; the same label makes two embeddings positives of each other.
            Or an (N, C) matrix of memberships in C classes, multi-hot or soft: it equals positives=Y @ Y.T, and no
            backend but `dense` writes out that product.
        positives: instead of labels, an (N, N) bool mask, or weights: row i says who is positive for anchor i
            and how much each counts in the mean. It need not be symmetric, and its diagonal is ignored. Weights that
            require a gradient get it from `dense`, which `auto` then chooses.
        candidates: (M, d) embeddings to compare the anchors with instead of each other (a queue, a momentum
            batch). They get a gradient if they require one.
        candidate_labels: (M,) integers, theirs; or give (N, M) positives.
        temperature: τ. A parameter that requires a gradient gets it from `dense`.
        k1: above 0, pulls harder on positives. `auto`: r Σ_p exp(s_ip / τ) / Σ_p exp(-s_ip) for each anchor, taken as
            a constant, so that its term of D is r times the positives' from the first step to the last.
        k2: above 1, pushes harder on negatives. `auto`: 1 + r, with which negatives are pushed as by SupCon.
        r: of `auto`. 0 is SupCon; a larger r weakens what pushes positives apart in SupCon.
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
    return dispatch.pair_loss(
        z,
        labels,
        tcl_settings(temperature, k1, k2, r),
        positives=positives,
        candidates=candidates,
        candidate_labels=candidate_labels,
        normalize=normalize,
        reduction=reduction,
        backend=backend,
        precision=precision,
        distributed=distributed,
    )


def supcon_loss(
    z: Tensor,
    labels: Tensor | None = None,
    *,
    temperature: float = 0.1,
    variant: str = "out",
    **others: Unpack[_Arguments],
) -> Tensor:
    """The supervised contrastive loss, equation 2 of the paper; arguments as in `tcl_loss`.

    Args:
        variant: `out` has the mean over positives outside the logarithm (L_out, the paper's and the better one);
            `in` has it inside, which some libraries call SupCon.
    """
    check_known("variant", variant, VARIANTS)
    return dispatch.pair_loss(z, labels, LossSettings(temperature, 0.0, 1.0, variant), **others)


def ntxent_loss(
    z: Tensor,
    ids: Tensor,
    *,
    candidates: Tensor | None = None,
    candidate_ids: Tensor | None = None,
    temperature: float = 0.2,
    **others: Unpack[_Shared],
) -> Tensor:
    """SimCLR's loss: SupCon where only the views of one sample, those with the same id, are positives.

    Args:
        ids: (N,) integers, one per sample, repeated for its views: `torch.arange(batch).repeat(num_views)`.
    """
    return supcon_loss(z, ids, candidates=candidates, candidate_labels=candidate_ids, temperature=temperature, **others)


def sincere_loss(
    z: Tensor, labels: Tensor | None = None, *, temperature: float = 0.1, **others: Unpack[_Arguments]
) -> Tensor:
    """SINCERE (Feeney and Hughes 2023): no positive pushes another one away; arguments as in `tcl_loss`.

    for each anchor i that has a positive and a negative:
        loss_i = - mean over positives p of log(exp(s_ip / τ) / (exp(s_ip / τ) + Σ_n exp(s_in / τ)))
    """
    return eps_supinfonce_loss(z, labels, temperature=temperature, epsilon=0.0, **others)


def eps_supinfonce_loss(
    z: Tensor,
    labels: Tensor | None = None,
    *,
    temperature: float = 0.1,
    epsilon: float = 0.25,
    **others: Unpack[_Arguments],
) -> Tensor:
    """ε-SupInfoNCE (Barbano et al. 2023): SINCERE with a margin; arguments as in `tcl_loss`.

        for each anchor i that has a positive and a negative:
            loss_i = - mean over positives p of log(exp(s_ip / τ) / (exp(s_ip / τ - ε) + Σ_n exp(s_in / τ)))

    Args:
        epsilon: ε, in units of s / τ. 0 is SINCERE, and `dcl_loss` is the limit of infinity.
    """
    return dispatch.pair_loss(z, labels, LossSettings(temperature, 0.0, 1.0, "sincere", epsilon), **others)


def dcl_loss(
    z: Tensor, labels: Tensor | None = None, *, temperature: float = 0.1, **others: Unpack[_Arguments]
) -> Tensor:
    """Decoupled contrastive learning (Yeh et al. 2022) with labels; arguments as in `tcl_loss`.

    for each anchor i that has a positive and a negative:
        loss_i = - mean over positives p of log(exp(s_ip / τ) / Σ_n exp(s_in / τ))
    """
    return dispatch.pair_loss(z, labels, LossSettings(temperature, 0.0, 1.0, "dcl"), **others)


def npair_loss(
    z: Tensor, labels: Tensor | None = None, *, temperature: float = 0.1, **arguments: Unpack[_Arguments]
) -> Tensor:
    """Multi-class N-pair loss (Sohn 2016, equation 6), with any number of positives per anchor.

        for each anchor i with a positive and a negative:
            loss_i = mean over positives p of log(1 + Σ_n exp((s_in - s_ip) / τ))

    Each positive competes with the negatives alone, never with the other positives. That is `sincere_loss`, which was
    found later. Sohn uses raw dot products (`normalize=False, temperature=1`) and one pair per class in a batch.
    """
    return sincere_loss(z, labels, temperature=temperature, **arguments)


def triplet_loss(
    z: Tensor,
    labels: Tensor | None = None,
    *,
    positives: Tensor | None = None,
    margin: float = 0.3,
    normalize: bool = True,
    reduction: str = "mean",
) -> Tensor:
    """Batch-hard triplet loss (Hermans et al. 2017, equation 5) on Euclidean distances.

        for each anchor i with a positive and a negative:
            loss_i = max(0, margin + distance to its farthest positive - distance to its nearest negative)

    Arguments as in `tcl_loss`; weights only say who is positive.
    """
    dispatch.check_number("margin", margin)
    check_known("reduction", reduction, dispatch.CHOICES["reduction"])
    z, labels, positives, *_ = dispatch.check_pairs(z, labels, positives)
    positive_NN = (dispatch.overlap(labels, labels) if positives is None else positives) > 0
    itself_NN = torch.eye(len(z), dtype=torch.bool, device=z.device)
    positive_NN, negative_NN = positive_NN & ~itself_NN, ~(positive_NN | itself_NN)
    with torch.autocast(z.device.type, enabled=False):
        z_ND, _ = normalized(z, normalize)
        # Not through a matrix product: near-duplicates would lose their distance to rounding.
        distance_NN = torch.cdist(z_ND, z_ND, compute_mode="donot_use_mm_for_euclid_dist")
        usable_N = positive_NN.any(dim=1) & negative_NN.any(dim=1)
        if not len(z):
            return dispatch.reduce_anchors(distance_NN.sum(dim=1), usable_N, reduction, dispatch.POSITIVE_AND_NEGATIVE)
        farthest_N = distance_NN.masked_fill(~positive_NN, 0.0).amax(dim=1)
        nearest_N = distance_NN.masked_fill(~negative_NN, torch.finfo(z_ND.dtype).max).amin(dim=1)
        loss_N = torch.where(usable_N, F.relu(margin + farthest_N - nearest_N), 0.0)
        return dispatch.reduce_anchors(loss_N, usable_N, reduction, dispatch.POSITIVE_AND_NEGATIVE)


class _LossModule(nn.Module):
    """Keeps the settings of a loss function as attributes and passes them on."""

    function: Callable[..., Tensor]

    def __init__(self, shared: _Shared, **own: Any) -> None:
        super().__init__()
        parameters = signature(dispatch.pair_loss).parameters
        common = {name: parameters[name].default for name in _Shared.__annotations__}
        if unknown := shared.keys() - common.keys():
            raise TypeError(f"{type(self).__name__} has no setting {', '.join(unknown)}")
        settings: dict[str, Any] = own | common | dict(shared)
        self.names = tuple(settings)
        for name, value in settings.items():
            setattr(self, name, value)
        numbers = {"k1": 0.0, "k2": 1.0, "r": 0.0} | settings
        checked = tcl_settings(*(numbers[name] for name in ("temperature", "k1", "k2", "r")))
        words = {name: settings[name] for name in ("precision", "reduction", "epsilon") if name in settings}
        dispatch.check_settings(checked._replace(**words), settings["backend"])

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
        k1: Number = "auto",
        k2: Number = "auto",
        r: float = 0.3,
        **shared: Unpack[_Shared],
    ) -> None:
        super().__init__(shared, temperature=temperature, k1=k1, k2=k2, r=r)


class SupConLoss(_LossModule):
    """`supcon_loss` as a Module."""

    function = staticmethod(supcon_loss)

    def __init__(self, *, temperature: float = 0.1, variant: str = "out", **shared: Unpack[_Shared]) -> None:
        check_known("variant", variant, VARIANTS)
        super().__init__(shared, temperature=temperature, variant=variant)


class NTXentLoss(_LossModule):
    """`ntxent_loss` as a Module."""

    function = staticmethod(ntxent_loss)

    def __init__(self, *, temperature: float = 0.2, **shared: Unpack[_Shared]) -> None:
        super().__init__(shared, temperature=temperature)

    def forward(  # type: ignore[override]  # ids instead of labels
        self, z: Tensor, ids: Tensor, candidates: Tensor | None = None, candidate_ids: Tensor | None = None
    ) -> Tensor:
        return ntxent_loss(z, ids, candidates=candidates, candidate_ids=candidate_ids, **self.settings)


class SINCERELoss(_LossModule):
    """`sincere_loss` as a Module."""

    function = staticmethod(sincere_loss)

    def __init__(self, *, temperature: float = 0.1, **shared: Unpack[_Shared]) -> None:
        super().__init__(shared, temperature=temperature)


class EpsSupInfoNCELoss(_LossModule):
    """`eps_supinfonce_loss` as a Module."""

    function = staticmethod(eps_supinfonce_loss)

    def __init__(self, *, temperature: float = 0.1, epsilon: float = 0.25, **shared: Unpack[_Shared]) -> None:
        super().__init__(shared, temperature=temperature, epsilon=epsilon)


class DCLLoss(SINCERELoss):
    """`dcl_loss` as a Module."""

    function = staticmethod(dcl_loss)
