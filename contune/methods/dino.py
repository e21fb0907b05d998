"""DINO (Caron et al. 2021): the student predicts from one view what its own slow average says of another.

Shapes: N = V · B rows, B images, V views of each, of which the first T are global; K prototypes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from contune import distributed
from contune.losses import dino_loss
from contune.methods.base import Guess, Method, Output, WithoutLabels, encoded
from contune.methods.frozen import Frozen
from contune.methods.multicrop import global_views
from contune.models.ema import cosine_momentum, follow, follower
from contune.models.heads import Prototypes, begin_small, mlp
from contune.settings import ranged


class DINO(Method):
    """Algorithm 1 of the paper, with solo-learn's values for small images.

    A centre that is subtracted from the teacher's outputs and a low temperature keep it from saying the same of all.
    """

    @dataclass(kw_only=True)
    class Settings(WithoutLabels):
        temperature: float = ranged(0.1, above=0.0)
        """Of the student."""
        teacher_temperature: float = ranged(0.07, above=0.0)
        first_teacher_temperature: float = ranged(0.04, above=0.0)
        """Where the teacher's temperature begins, when teacher_warmup_epochs is not 0."""
        teacher_warmup_epochs: float = ranged(0.0, low=0.0)
        """Epochs over which the teacher's temperature rises; the paper takes 30 where training is unsteady."""
        momentum: float = ranged(0.9995, low=0.0, high=1.0)
        """How much the teacher keeps of itself in the first step; a cosine from here to the last one's."""
        last_momentum: float = ranged(1.0, low=0.0, high=1.0)
        centre_momentum: float = ranged(0.9, low=0.0, high=1.0)
        frozen_epochs: float = ranged(1.0, low=0.0)
        """Epochs for which the prototypes, the last layer, stay as they began."""
        projector_hidden: int = ranged(2048, low=1)
        projector_dim: int = ranged(256, low=1)
        num_prototypes: int = ranged(4096, low=2)
        global_views: int = ranged(2, low=2)
        """The first views, which the teacher sees; further ones, small crops perhaps, are the student's alone."""

    settings: Settings
    centre_K: Tensor

    def __init__(self, encoder: nn.Module, num_features: int, num_classes: int, settings: Settings) -> None:
        super().__init__(encoder, num_features, num_classes, settings)
        sizes = [num_features, settings.projector_hidden, settings.projector_hidden, settings.projector_dim]
        self.projector = mlp(sizes, norm=False, activation=nn.GELU)
        # Biases as torch draws them are the same for all images and outweigh what differs: outputs become uniform.
        begin_small(self.projector)
        self.prototypes = Prototypes(settings.projector_dim, settings.num_prototypes)
        self.teacher = follower(nn.ModuleList([self.encoder, self.projector, self.prototypes]))
        self.frozen = Frozen(self.prototypes.weight, settings.frozen_epochs)
        self.register_buffer("centre_K", torch.zeros(settings.num_prototypes))

    @property
    def guess(self) -> Guess:
        advice = "a longer method.teacher_warmup_epochs or a lower method.teacher_temperature"
        return Guess(math.log(self.settings.num_prototypes), advice)

    def forward(self, views: Sequence[Tensor], labels_B: Tensor | None) -> Output:
        knobs = self.settings
        teacher_NK = self._teach(global_views(views, knobs.global_views))
        features_ND = self.encode(views)
        student_NK = self.prototypes(self.projector(features_ND))
        loss = dino_loss(
            student_NK.unflatten(0, (len(views), -1)),
            teacher_NK.unflatten(0, (knobs.global_views, -1)),
            self.centre_K,
            student_temperature=knobs.temperature,
            teacher_temperature=self._teacher_temperature(),
        )
        return Output(loss=loss, features_ND=features_ND.detach(), state={"teacher_K": teacher_NK.mean(dim=0)})

    @torch.no_grad()
    def after_step(self, output: Output) -> None:
        knobs = self.settings
        self.frozen.put_back(self.prototypes.weight, self.epoch)
        momentum = cosine_momentum(self.share, knobs.momentum, knobs.last_momentum)
        follow(self.teacher, nn.ModuleList([self.encoder, self.projector, self.prototypes]), momentum)
        self.centre_K.lerp_(distributed.mean(output.state["teacher_K"]), 1 - knobs.centre_momentum)

    @torch.no_grad()
    def _teach(self, views: Sequence[Tensor]) -> Tensor:
        """The teacher's outputs for the global views, stacked."""
        encoder, projector, prototypes = self.teacher.children()
        teacher_NK: Tensor = prototypes(projector(encoded(encoder, views)))
        return teacher_NK

    def _teacher_temperature(self) -> float | Tensor:
        """The authors raise it once an epoch; here it rises at every step, to the same end."""
        knobs = self.settings
        if not knobs.teacher_warmup_epochs:
            return knobs.teacher_temperature
        done = (self.epoch / knobs.teacher_warmup_epochs).clamp(max=1)
        return knobs.first_teacher_temperature + done * (knobs.teacher_temperature - knobs.first_teacher_temperature)
