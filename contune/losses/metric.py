"""The two older pair losses that the supervised contrastive papers compare with: triplet and N-pair."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from contune.losses.checks import check_not_negative, check_positive, check_tensors, embeddings
from contune.losses.pairs import Batch
from contune.losses.reduction import POSITIVE_AND_NEGATIVE, reduce_anchors


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
    check_tensors(embeddings=z)
    check_not_negative("margin", margin)
    with torch.autocast(z.device.type, enabled=False):
        z_ND = embeddings(z, normalize=normalize)
        weights_NN, negative_NN = _pairs(z_ND, labels, positives)
        positive_NN = weights_NN > 0
        if not len(z_ND):  # of nothing there is no farthest
            return reduce_anchors(z_ND.sum(dim=1), positive_NN.any(dim=1), reduction, POSITIVE_AND_NEGATIVE)
        distance_NN = _distances(z_ND)
        usable_N = positive_NN.any(dim=1) & negative_NN.any(dim=1)
        farthest_N = distance_NN.masked_fill(~positive_NN, 0.0).amax(dim=1)
        nearest_N = distance_NN.masked_fill(~negative_NN, torch.finfo(z_ND.dtype).max).amin(dim=1)
        loss_N = torch.where(usable_N, F.relu(margin + farthest_N - nearest_N), 0.0)
        return reduce_anchors(loss_N, usable_N, reduction, POSITIVE_AND_NEGATIVE)


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
    products (`normalize=False, temperature=1`) and one pair per class in a batch; on unit embeddings a
    temperature is needed, as in every later contrastive loss, so that is the default here.
    """
    check_tensors(embeddings=z)
    check_positive("temperature", temperature)
    with torch.autocast(z.device.type, enabled=False):
        z_ND = embeddings(z, normalize=normalize)
        weights_NN, negative_NN = _pairs(z_ND, labels, positives)
        logits_NN = z_ND @ z_ND.T / temperature
        usable_N = (weights_NN > 0).any(dim=1) & negative_NN.any(dim=1)
        negatives_N1 = (
            logits_NN.masked_fill(~negative_NN, -math.inf)
            .masked_fill(~usable_N[:, None], 0.0)
            .logsumexp(dim=1, keepdim=True)
        )
        total_N = weights_NN.sum(dim=1).masked_fill(~usable_N, 1.0)
        loss_N = (weights_NN * F.softplus(negatives_N1 - logits_NN)).sum(dim=1) / total_N
        return reduce_anchors(torch.where(usable_N, loss_N, 0.0), usable_N, reduction, POSITIVE_AND_NEGATIVE)


def _pairs(z_ND: Tensor, labels: Tensor | None, positives: Tensor | None) -> tuple[Tensor, Tensor]:
    """Weights of the positives, and which pairs are negative."""
    batch = Batch(z_ND, labels, positives)
    batch.check()
    itself_NN = batch.itself()
    assert itself_NN is not None
    weights_NN = batch.weights(z_ND.dtype).masked_fill(itself_NN, 0.0)
    return weights_NN, ~((weights_NN > 0) | itself_NN)


def _distances(z_ND: Tensor) -> Tensor:
    # Not through a matrix product: near-duplicates would lose their distance to rounding.
    return torch.cdist(z_ND, z_ND, compute_mode="donot_use_mm_for_euclid_dist")
