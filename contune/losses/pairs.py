"""Who is positive for whom: the one place that decides it.

Every pair loss asks the same question of its batch, and there are three ways to answer: integer labels (same
label, positive), sample ids (views of one sample, positive; the same thing as labels) or an (N, N) matrix of
positives for everything else, such as multi-label data. All of them become one matrix of weights here.
"""

import torch
from torch import Tensor

from contune.errors import UserError


def positive_weights(z_ND: Tensor, labels: Tensor | None, positives: Tensor | None) -> Tensor:
    """The (N, N) weights of the positives of each anchor (row), zero on the diagonal and for negatives.

    A bool mask gives weights 0 and 1. A float matrix is taken as it is: an entry above 0 makes the pair
    positive and says how much it counts in the average over the anchor's positives.
    """
    num = z_ND.shape[0]
    if (labels is None) == (positives is None):
        raise UserError("give either labels or positives, one of the two, so that each anchor's positives are known")
    if labels is not None:
        weights_NN = same_label(checked_labels(labels, num)).to(z_ND.device, z_ND.dtype)
    else:
        assert positives is not None
        weights_NN = _checked_positives(positives, num).to(z_ND.device, z_ND.dtype)
    diagonal_NN = torch.eye(num, dtype=torch.bool, device=z_ND.device)
    return weights_NN.masked_fill(diagonal_NN, 0.0)


def same_label(labels_N: Tensor) -> Tensor:
    return labels_N[:, None] == labels_N[None, :]


def checked_labels(labels: Tensor, num: int) -> Tensor:
    if labels.dim() != 1 or labels.shape[0] != num:
        raise UserError(
            f"labels must have one entry for each of the {num} embeddings, got shape {tuple(labels.shape)}; "
            "with several views, repeat the labels once per view: labels.repeat(num_views)"
        )
    if labels.is_floating_point() or labels.is_complex():
        raise UserError(f"labels must be integers, got {labels.dtype}; for soft or multiple labels use positives=")
    return labels


def _checked_positives(positives: Tensor, num: int) -> Tensor:
    if positives.shape != (num, num):
        raise UserError(f"positives must be a ({num}, {num}) matrix, got shape {tuple(positives.shape)}")
    # Looking at the values would make a GPU wait for the host, so only the CPU is checked.
    if positives.is_floating_point() and positives.device.type == "cpu":
        bad = ~(positives >= 0) | positives.isinf()
        if bad.any():
            raise UserError(
                f"positives must hold finite weights of 0 and above, got {positives[bad][0].item():g}; "
                "0 marks a negative pair"
            )
    return positives
