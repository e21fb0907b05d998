"""ReSSL: relational self-supervised learning (Zheng et al. 2021).

Shapes: B images, V strong views of each, N = V · B rows, D embedding size, K embeddings in the queue.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contune.methods.base import MomentumMethod, Output, check_views, unit_rows
from contune.models.heads import Queue, ema_copy, mlp
from contune.settings import ranged


class ReSSL(MomentumMethod):
    """The student gives strong views the similarities to earlier images that the teacher finds for a weak view.

    The last view is the weak one (`augment.per_view=simaugment; crop-flip`), the others are strong. The student does
    not see the weak view, so its features in the output are the teacher's.
    """

    @dataclass(kw_only=True)
    class Settings(MomentumMethod.Settings):
        temperature: float = ranged(0.1, above=0.0)
        """Temperature of the student."""
        teacher_temperature: float = ranged(0.04, above=0.0)
        """Temperature of the teacher. Below the student's, it sharpens the targets."""
        queue_size: int = ranged(65536, low=1)
        """Number of weak views of earlier images to compare with."""

    settings: Settings

    def __init__(self, encoder: nn.Module, num_features: int, num_classes: int, settings: Settings) -> None:
        super().__init__(encoder, num_features, num_classes, settings)
        self.projector = mlp([num_features, settings.projector_hidden, settings.projector_dim], norm=False)
        self.teacher = ema_copy(nn.ModuleList([self.encoder, self.projector]))
        self.queue = Queue(settings.queue_size, settings.projector_dim)

    def forward(self, views: Sequence[Tensor], labels_B: Tensor | None) -> Output:
        check_views(views)
        *strong, weak = views
        features_ND = self.encode(strong)
        with torch.no_grad():
            teacher_encoder, teacher_projector = self.teacher.children()
            teacher_features_BD = self.encode([weak], teacher_encoder)
            k_BD = F.normalize(teacher_projector(teacher_features_BD).float(), dim=1)
        q_VBD = self.projector(features_ND).unflatten(0, (len(strong), -1))
        temperatures = {"temperature": self.settings.temperature, "key_temperature": self.settings.teacher_temperature}
        losses = [relation_loss(q_BD, k_BD, self.queue.values_KD, **temperatures) for q_BD in q_VBD]
        features_ND = torch.cat([features_ND.detach(), teacher_features_BD])
        return Output(loss=torch.stack(losses).mean(), features_ND=features_ND, state={"k_BD": k_BD})

    def after_step(self, output: Output) -> None:
        self.queue.push(output.state["k_BD"])
        self.follow(self.teacher, self.encoder, self.projector)


def relation_loss(
    queries_BD: Tensor, keys_BD: Tensor, queue_KD: Tensor, *, temperature: float = 0.1, key_temperature: float = 0.04
) -> Tensor:
    """The relational consistency, averaged over the batch. Nothing pulls q_i to k_i itself.

        for each query i:
            for each place n of the queue:
                p_in = exp(k_i·queue_n / τ_k) / Σ_m exp(k_i·queue_m / τ_k)      the teacher's relation
                s_in = exp(q_i·queue_n / τ) / Σ_m exp(q_i·queue_m / τ)          the student's
            loss_i = -Σ_n p_in log s_in

    queue_KD holds unit vectors. key_temperature: τ_k, below τ. A sharper target than the prediction makes only the
    nearest images matter. The caller detaches the keys.
    """
    with torch.autocast(queries_BD.device.type, enabled=False):
        q_BD, k_BD = unit_rows(queries_BD), unit_rows(keys_BD)
        queue_KD = queue_KD.to(q_BD.dtype)
        # Σ_n p_n (q·queue_n) is the product of q with the mean of the queue under p.
        target_BD = (k_BD / key_temperature @ queue_KD.T).softmax(dim=1) @ queue_KD
        attraction_B = (q_BD * target_BD).sum(dim=1) / temperature
        return ((q_BD / temperature @ queue_KD.T).logsumexp(dim=1) - attraction_B).mean()
