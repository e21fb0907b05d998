"""DINO (Caron et al. 2021): the student predicts, from one view, what its own slow average outputs for another.

Shapes: N = V · B rows, B images, V views of each, of which the first T are global; K prototypes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from contune import distributed
from contune.methods.base import MomentumMethod, Output, at_least_float32, check_views
from contune.models.heads import Prototypes, ema_copy, mlp
from contune.settings import ranged


class DINO(MomentumMethod):
    """Algorithm 1 of the paper, with solo-learn's values for small images.

    Centering the teacher's outputs and a low temperature keep it from giving the same output for all images.
    """

    @dataclass(kw_only=True)
    class Settings(MomentumMethod.Settings):
        temperature: float = ranged(0.1, above=0.0)
        """Temperature of the student."""
        teacher_temperature: float = ranged(0.07, above=0.0)
        """Temperature of the teacher. Below the student's, it sharpens the targets."""
        first_teacher_temperature: float = ranged(0.04, above=0.0)
        """The teacher's temperature at the start, if teacher_warmup_epochs is above 0."""
        teacher_warmup_epochs: float = ranged(0.0, low=0.0)
        """Epochs over which the teacher's temperature rises. The paper uses 30 where training is unstable."""
        momentum: float = ranged(0.9995, low=0.0, high=1.0)
        centre_momentum: float = ranged(0.9, low=0.0, high=1.0)
        """Momentum of the running mean that is subtracted from the teacher's outputs."""
        frozen_epochs: float = ranged(1.0, low=0.0)
        """Epochs for which the prototypes, the last layer, keep their initial values."""
        projector_hidden: int = ranged(2048, low=1)
        num_prototypes: int = ranged(4096, low=2)
        """Number of prototypes."""
        global_views: int = ranged(2, low=2)
        """The first views, which the teacher sees. Only the student sees the others, which may be small crops."""

    settings: Settings
    centre_K: Tensor

    def __init__(self, encoder: nn.Module, num_features: int, num_classes: int, settings: Settings) -> None:
        super().__init__(encoder, num_features, num_classes, settings)
        sizes = [num_features, settings.projector_hidden, settings.projector_hidden, settings.projector_dim]
        self.projector = mlp(sizes, norm=False, activation=nn.GELU)
        # torch's random biases are the same for all images and outweigh what differs: outputs would become uniform.
        for layer in self.projector:
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)
        self.prototypes = Prototypes(settings.projector_dim, settings.num_prototypes, settings.frozen_epochs)
        self.teacher = ema_copy(nn.ModuleList([self.encoder, self.projector, self.prototypes]))
        self.register_buffer("centre_K", torch.zeros(settings.num_prototypes))

    def forward(self, views: Sequence[Tensor], labels_B: Tensor | None) -> Output:
        num_global = self.settings.global_views
        check_views(views, num_global)
        with torch.no_grad():
            encoder, projector, prototypes = self.teacher.children()
            teacher_NK = prototypes(projector(self.encode(views[:num_global], encoder)))
        features_ND = self.encode(views)
        student_NK = self.prototypes(self.projector(features_ND))
        temperature: float | Tensor = self.settings.teacher_temperature
        if warmup := self.settings.teacher_warmup_epochs:  # step by step; the authors raise it once per epoch
            first = self.settings.first_teacher_temperature
            temperature = first + (self.epoch / warmup).clamp(max=1) * (temperature - first)
        loss = dino_loss(
            student_NK.unflatten(0, (len(views), -1)),
            teacher_NK.unflatten(0, (num_global, -1)),
            self.centre_K,
            student_temperature=self.settings.temperature,
            teacher_temperature=temperature,
        )
        return Output(loss=loss, features_ND=features_ND.detach(), state={"teacher_K": teacher_NK.mean(dim=0)})

    @torch.no_grad()
    def after_step(self, output: Output) -> None:
        self.prototypes.after_step(self.epoch)
        self.follow(self.teacher, self.encoder, self.projector, self.prototypes)
        self.centre_K.lerp_(distributed.mean(output.state["teacher_K"]), 1 - self.settings.centre_momentum)


def dino_loss(
    student_VBK: Tensor,
    teacher_TBK: Tensor,
    centre_K: Tensor,
    *,
    student_temperature: float = 0.1,
    teacher_temperature: float | Tensor = 0.04,
) -> Tensor:
    """Equation 3, as a mean over pairs of views and images.

        for each global view t, each other view v ≠ t, each image b:
            loss_tvb = - Σ_k softmax((teacher_tb - centre) / τ_t)_k · log softmax(student_vb / τ_s)_k

    The center keeps one output from winning everywhere. A low τ_t keeps the targets from becoming uniform.
    student_VBK: outputs for all views, the global views first. teacher_TBK: outputs for the T global views.
    """
    with torch.autocast(student_VBK.device.type, enabled=False):
        teacher_TBK = at_least_float32(teacher_TBK.detach())
        targets_TBK = ((teacher_TBK - centre_K.to(teacher_TBK.dtype)) / teacher_temperature).softmax(dim=2)
        return other_views_loss(targets_TBK, at_least_float32(student_VBK) / student_temperature)


def other_views_loss(targets_TBK: Tensor, logits_VBK: Tensor) -> Tensor:
    """The mean cross-entropy between a view's target and the predictions from the other views of its image.

        for each view t with targets, each other view v ≠ t, each image b:
            loss_tvb = - Σ_k targets_tbk · log softmax(logits_vb)_k

    Targets, of the first T views, take no gradient.
    """
    num_targets, num_views = len(targets_TBK), len(logits_VBK)
    with torch.autocast(logits_VBK.device.type, enabled=False):
        log_p_VBK = at_least_float32(logits_VBK).log_softmax(dim=2)
        others_TBK = log_p_VBK.sum(dim=0) - log_p_VBK[:num_targets]
        num_compared = num_targets * (num_views - 1) * targets_TBK.shape[1]
        return (targets_TBK.detach() * others_TBK).sum() / -num_compared
