"""The two older pair losses that the supervised contrastive papers compare with: triplet and N-pair."""

import torch
import torch.nn.functional as F
from torch import Tensor

from contune.errors import check_known
from contune.kernels import normalized
from contune.kernels.dense import row_logsumexp
from contune.losses import dispatch


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
    z_ND, weights_NN, negative_NN = _pairs(z, labels, positives, normalize, reduction)
    positive_NN = weights_NN > 0
    with torch.autocast(z.device.type, enabled=False):
        # Not through a matrix product: near-duplicates would lose their distance to rounding.
        distance_NN = torch.cdist(z_ND, z_ND, compute_mode="donot_use_mm_for_euclid_dist")
        usable_N = positive_NN.any(dim=1) & negative_NN.any(dim=1)
        farthest_N = distance_NN.masked_fill(~positive_NN, 0.0).amax(dim=1)
        nearest_N = distance_NN.masked_fill(~negative_NN, torch.finfo(z_ND.dtype).max).amin(dim=1)
        loss_N = torch.where(usable_N, F.relu(margin + farthest_N - nearest_N), 0.0)
        return dispatch.reduce_anchors(loss_N, usable_N, reduction, dispatch.POSITIVE_AND_NEGATIVE)


def npair_loss(
    z: Tensor,
    labels: Tensor | None = None,
    *,
    positives: Tensor | None = None,
    temperature: float = 0.1,
    normalize: bool = True,
    reduction: str = "mean",
) -> Tensor:
    """Multi-class N-pair loss (Sohn 2016, equation 6), with any number of positives per anchor.

        for each anchor i with a positive and a negative:
            loss_i = mean over positives p of log(1 + Σ_n exp((s_in - s_ip) / τ))

    Each positive competes with the negatives alone, never with the other positives. Sohn uses raw dot
    products (`normalize=False, temperature=1`) and one pair per class in a batch. Unit embeddings need a
    temperature, as in every later contrastive loss, so that is the default here.
    """
    dispatch.check_number("temperature", temperature, zero=False)
    z_ND, weights_NN, negative_NN = _pairs(z, labels, positives, normalize, reduction)
    with torch.autocast(z.device.type, enabled=False):
        logits_NN = z_ND @ z_ND.T / temperature
        usable_N = (weights_NN > 0).any(dim=1) & negative_NN.any(dim=1)
        negatives_N = row_logsumexp(logits_NN, negative_NN, ~usable_N[:, None])
        total_N = weights_NN.sum(dim=1).masked_fill(~usable_N, 1.0)
        loss_N = (weights_NN * F.softplus(negatives_N[:, None] - logits_NN)).sum(dim=1) / total_N
        return dispatch.reduce_anchors(
            torch.where(usable_N, loss_N, 0.0), usable_N, reduction, dispatch.POSITIVE_AND_NEGATIVE
        )


def _pairs(
    z: Tensor, labels: Tensor | None, positives: Tensor | None, normalize: bool, reduction: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Checked embeddings, weights of the positives, and which pairs are negative."""
    check_known("reduction", reduction, dispatch.CHOICES["reduction"])
    z, labels, positives, *_ = dispatch.check_pairs(z, labels, positives)
    with torch.autocast(z.device.type, enabled=False):
        z_ND, _ = normalized(z, normalize)
    if labels is not None:
        positives = dispatch.overlap(labels, labels)
    assert positives is not None
    itself_NN = torch.eye(len(z), dtype=torch.bool, device=z.device)
    weights_NN = positives.to(z.device, z_ND.dtype).masked_fill(itself_NN, 0.0)
    return z_ND, weights_NN, ~((weights_NN > 0) | itself_NN)
