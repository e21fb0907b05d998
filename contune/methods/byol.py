"""BYOL: Bootstrap Your Own Latent (Grill et al. 2020).

Shapes: B images, V views of each, N = V · B rows, D embedding size.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from contune.methods.base import MomentumMethod, Output, ordered_pairs
from contune.methods.simsiam import negative_cosine_loss
from contune.models.heads import ema_copy, mlp
from contune.settings import ranged


class BYOL(MomentumMethod):
    """The online network predicts, from one view, the output of its slow copy, the target, for another view.

    The paper adds the losses of the two directions. We take twice the mean over directions: the same for two views, and
    of the same size for more.
    """

    @dataclass(kw_only=True)
    class Settings(MomentumMethod.Settings):
        predictor_hidden: int = ranged(4096, low=1)
        """Size of the predictor's hidden layer."""

    settings: Settings

    def __init__(self, encoder: nn.Module, num_features: int, num_classes: int, settings: Settings) -> None:
        super().__init__(encoder, num_features, num_classes, settings)
        dim = settings.projector_dim
        self.projector = mlp([num_features, settings.projector_hidden, dim])
        self.predictor = mlp([dim, settings.predictor_hidden, dim])
        self.target = ema_copy(nn.ModuleList([self.encoder, self.projector]))

    def forward(self, views: Sequence[Tensor], labels_B: Tensor | None) -> Output:
        features_ND = self.encode(views)
        q_VBD = self.predictor(self.projector(features_ND)).unflatten(0, (len(views), -1))
        with torch.no_grad():
            target_encoder, target_projector = self.target.children()
            z_VBD = target_projector(self.encode(views, target_encoder)).unflatten(0, (len(views), -1))
        loss = 2 * torch.stack([regression_loss(q_VBD[i], z_VBD[j]) for i, j in ordered_pairs(views)]).mean()
        return Output(loss=loss, features_ND=features_ND.detach())

    def after_step(self, output: Output) -> None:
        self.follow(self.target, self.encoder, self.projector)


def regression_loss(predictions_ND: Tensor, targets_ND: Tensor) -> Tensor:
    """The squared distance of unit vectors, equation 2, averaged over the batch.

        for each row i:
            loss_i = |q_i / |q_i| - z_i / |z_i||² = 2 - 2 cos(q_i, z_i)

    From 0 to 4. Unrelated directions, at an angle of 90°, give 2. The caller detaches the targets.
    """
    return 2 + 2 * negative_cosine_loss(predictions_ND, targets_ND)
