"""Who is positive for whom: the one place that decides it.

Every pair loss asks the same question of its batch, and there are three ways to answer: integer labels (same
label, positive), sample ids (views of one sample, positive; the same thing as labels) or a matrix of positives
for everything else, such as multi-label data.
"""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from contune.errors import UserError
from contune.losses.checks import check_tensors


class Batch(NamedTuple):
    """What a pair loss is given: anchors, what they are compared with, and who is positive for whom."""

    z: Tensor
    labels: Tensor | None
    positives: Tensor | None
    candidates: Tensor | None = None
    candidate_labels: Tensor | None = None

    @property
    def num_candidates(self) -> int:
        """Without candidates apart, the embeddings are each other's."""
        return (self.z if self.candidates is None else self.candidates).shape[0]

    @property
    def learns_positives(self) -> bool:
        """Whether somebody will ask for the gradient of the positives' weights."""
        return self.positives is not None and self.positives.requires_grad and torch.is_grad_enabled()

    def check(self) -> None:
        """Raises a sentence unless exactly one of labels and positives is there, in the right shape."""
        if (self.labels is None) == (self.positives is None):
            raise UserError(
                "give either labels or positives, one of the two, so that each anchor's positives are known"
            )
        if self.candidate_labels is not None:
            self._check_candidate_labels_have_a_use()
        if self.labels is not None:
            _check_labels("labels", self.labels, self.z.shape[0])
            if self.candidates is not None:
                if self.candidate_labels is None:
                    raise UserError("candidates that are compared by labels need candidate_labels")
                _check_labels("candidate_labels", self.candidate_labels, len(self.candidates))
        if self.positives is not None:
            _check_positives(self.positives, (self.z.shape[0], self.num_candidates))

    def _check_candidate_labels_have_a_use(self) -> None:
        if self.candidates is None:
            raise UserError(
                "candidate_labels are those of candidates, and there are none; give candidates= too, "
                "or labels alone to compare the embeddings with each other"
            )
        if self.positives is not None:
            raise UserError(
                "positives already say which candidates are positive for whom; leave candidate_labels out, "
                "or give labels instead of positives"
            )

    def weights(self, dtype: torch.dtype) -> Tensor:
        """Labels or positives as one matrix.

        A bool mask gives weights 0 and 1. Numbers are taken as they are: an entry above 0 makes the pair positive and
        says how much it counts in the average over the anchor's positives.
        """
        positives = self.positives
        if self.labels is not None:
            columns = self.labels if self.candidate_labels is None else self.candidate_labels
            positives = self.labels[:, None] == columns[None, :]
        assert positives is not None
        return positives.to(self.z.device, dtype)

    def itself(self) -> Tensor | None:
        """The pairs of an anchor with itself; None where candidates are something else."""
        if self.candidates is not None:
            return None
        return torch.eye(len(self.z), dtype=torch.bool, device=self.z.device)


def _check_labels(name: str, labels: Tensor, num: int) -> None:
    _check_no_names(name, labels)
    check_tensors(**{name: labels})
    if labels.dim() != 1 or labels.shape[0] != num:
        raise UserError(
            f"{name} must have one entry for each of the {num} embeddings, got shape {tuple(labels.shape)}; "
            "with several views, repeat the labels once per view: labels.repeat(num_views)"
        )
    if labels.is_floating_point() or labels.is_complex():
        raise UserError(f"{name} must be integers, got {labels.dtype}; for soft or multiple labels use positives=")


def _check_no_names(name: str, labels: object) -> None:
    if isinstance(labels, Tensor | str) or not isinstance(labels, Iterable):
        return
    if any(isinstance(label, str) for label in labels):
        together = ", labels and candidate_labels in one call" if name == "candidate_labels" else ""
        raise UserError(
            f"{name} must be a tensor of integers, got a {type(labels).__name__} of str; "
            f"torch.as_tensor(numpy.unique({name}, return_inverse=True)[1]) numbers the classes{together}"
        )


def _check_positives(positives: Tensor, shape: tuple[int, int]) -> None:
    check_tensors(positives=positives)
    if positives.shape != shape:
        raise UserError(f"positives must be a {shape} matrix, got shape {tuple(positives.shape)}")
    if positives.is_complex():
        raise UserError(f"positives must be a bool mask or real weights, got {positives.dtype}")
    # Looking at the values would make a GPU wait for the host, so only the CPU is checked.
    if positives.dtype.is_signed and positives.device.type == "cpu":
        bad = ~(positives >= 0) | positives.isinf()
        if bad.any():
            raise UserError(
                f"positives must hold finite weights of 0 and above, got {positives[bad][0].item():g}; "
                "0 marks a negative pair"
            )
