"""Who is positive for whom: the one place that decides it.

Every pair loss asks the same question of its batch, and there are three ways to answer: integer labels (same
label, positive), sample ids (views of one sample, positive; the same thing as labels) or a matrix of positives
for everything else, such as multi-label data.
"""

import torch
from torch import Tensor

from contune.errors import UserError


def check_pairs(
    num: int,
    labels: Tensor | None,
    positives: Tensor | None,
    num_candidates: int | None = None,
    candidate_labels: Tensor | None = None,
) -> None:
    """Raises a sentence unless exactly one of labels and positives is there, in the right shape."""
    if (labels is None) == (positives is None):
        raise UserError("give either labels or positives, one of the two, so that each anchor's positives are known")
    if labels is not None:
        _check_labels("labels", labels, num)
        if num_candidates is not None:
            if candidate_labels is None:
                raise UserError("candidates that are compared by labels need candidate_labels")
            _check_labels("candidate_labels", candidate_labels, num_candidates)
    if positives is not None:
        _check_positives(positives, (num, num if num_candidates is None else num_candidates))


def positive_weights(
    z_ND: Tensor, labels: Tensor | None, positives: Tensor | None, candidate_labels: Tensor | None = None
) -> Tensor:
    """Labels or positives as one matrix of weights.

    A bool mask gives weights 0 and 1. A float matrix is taken as it is: an entry above 0 makes the pair positive
    and says how much it counts in the average over the anchor's positives.
    """
    if labels is not None:
        columns = labels if candidate_labels is None else candidate_labels
        positives = labels[:, None] == columns[None, :]
    assert positives is not None
    return positives.to(z_ND.device, z_ND.dtype)


def itself(z_ND: Tensor) -> Tensor:
    """The pairs of an anchor with itself, in a batch whose embeddings are each other's candidates."""
    return torch.eye(len(z_ND), dtype=torch.bool, device=z_ND.device)


def _check_labels(name: str, labels: Tensor, num: int) -> None:
    if labels.dim() != 1 or labels.shape[0] != num:
        raise UserError(
            f"{name} must have one entry for each of the {num} embeddings, got shape {tuple(labels.shape)}; "
            "with several views, repeat the labels once per view: labels.repeat(num_views)"
        )
    if labels.is_floating_point() or labels.is_complex():
        raise UserError(f"{name} must be integers, got {labels.dtype}; for soft or multiple labels use positives=")


def _check_positives(positives: Tensor, shape: tuple[int, int]) -> None:
    if positives.shape != shape:
        raise UserError(f"positives must be a {shape} matrix, got shape {tuple(positives.shape)}")
    # Looking at the values would make a GPU wait for the host, so only the CPU is checked.
    if positives.is_floating_point() and positives.device.type == "cpu":
        bad = ~(positives >= 0) | positives.isinf()
        if bad.any():
            raise UserError(
                f"positives must hold finite weights of 0 and above, got {positives[bad][0].item():g}; "
                "0 marks a negative pair"
            )
