"""Cross-entropy between the views of an image: what one view is taken for, predicted from the others.

Shapes: B images, V views of each, of which the first T have targets, K outputs (DINO) or prototypes (SwAV).
"""

import torch
from torch import Tensor

from contune.errors import UserError
from contune.losses.checks import check_positive, check_tensors, compute_dtype


def check_views(**outputs: Tensor) -> None:
    """By the names that a person gave them, which say their shapes."""
    check_tensors("torch.stack", **outputs)
    for name, value in outputs.items():
        if value.dim() != 3:
            raise UserError(
                f"{name} must be (views, images, outputs), got shape {tuple(value.shape)}; "
                "stack the (images, outputs) matrices of the views: torch.stack([view1, view2])"
            )


def other_views_loss(targets_TBK: Tensor, logits_VBK: Tensor) -> Tensor:
    """The mean cross-entropy between a view's target and the predictions from the other views of its image.

        for each view t with targets, each other view v ≠ t, each image b:
            loss_tvb = - Σ_k targets_tbk · log softmax(logits_vb)_k

    Targets take no gradient.
    """
    num_targets, num_views = len(targets_TBK), len(logits_VBK)
    if num_views < 2 or num_targets > num_views or targets_TBK.shape[1:] != logits_VBK.shape[1:]:
        raise UserError(
            "the views of an image predict one another: give (V, B, K) predictions, V of 2 or more, and (T, B, K) "
            f"targets of the first T views, got {tuple(logits_VBK.shape)} and {tuple(targets_TBK.shape)}"
        )
    with torch.autocast(logits_VBK.device.type, enabled=False):
        log_p_VBK = logits_VBK.to(compute_dtype(logits_VBK)).log_softmax(dim=2)
        others_TBK = log_p_VBK.sum(dim=0) - log_p_VBK[:num_targets]
        num_compared = num_targets * (num_views - 1) * targets_TBK.shape[1]
        return (targets_TBK.detach() * others_TBK).sum() / -num_compared


def dino_targets(teacher_TBK: Tensor, centre_K: Tensor, *, temperature: float | Tensor) -> Tensor:
    """The teacher's outputs, centred and sharpened: softmax((teacher - centre) / τ_t), algorithm 1 of the paper.

    The centre keeps one output from winning everywhere, a low temperature all of them from winning alike.
    """
    with torch.autocast(teacher_TBK.device.type, enabled=False):
        dtype = compute_dtype(teacher_TBK)
        return ((teacher_TBK.detach().to(dtype) - centre_K.to(dtype)) / temperature).softmax(dim=2)


def dino_loss(
    student_VBK: Tensor,
    teacher_TBK: Tensor,
    centre_K: Tensor,
    *,
    student_temperature: float = 0.1,
    teacher_temperature: float | Tensor = 0.04,
) -> Tensor:
    """DINO (Caron et al. 2021), equation 3, as a mean over pairs of views and images.

        for each global view t, each other view v ≠ t, each image b:
            loss_tvb = - Σ_k softmax((teacher_tb - centre) / τ_t)_k · log softmax(student_vb / τ_s)_k

    student_VBK: outputs for all views, the global ones first. teacher_TBK: those for the T global views.
    teacher_temperature: a number, or a tensor of one where it changes in the course of a training.
    """
    check_views(student_VBK=student_VBK, teacher_TBK=teacher_TBK)
    check_tensors(centre_K=centre_K)
    check_positive("student_temperature", student_temperature)
    if not isinstance(teacher_temperature, Tensor):
        check_positive("teacher_temperature", teacher_temperature)
    targets_TBK = dino_targets(teacher_TBK, centre_K, temperature=teacher_temperature)
    return other_views_loss(targets_TBK, student_VBK.to(compute_dtype(student_VBK)) / student_temperature)
