"""Methods that compare every pair of embeddings in the global batch. They differ only in their loss.

Shapes: B images, N rows of all stacked views, D embedding size.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from contune import distributed
from contune.errors import UserError
from contune.kernels import LossSettings
from contune.methods.base import Method, Output, classification_loss, labels_of_views, row_weights, top1
from contune.models.heads import mlp
from contune.settings import ranged

TINY = 1e-12


class PairwiseMethod(Method):
    """Encoder, projector, and a loss on embeddings grouped by label or, without labels, by image."""

    @dataclass(kw_only=True)
    class Settings(Method.Settings):
        projector_hidden: int | None = ranged(None, low=0)
        """Size of the projector's hidden layer. None: the encoder's number of features. 0: a linear projector."""
        projector_dim: int = ranged(128, low=1)
        """Size of the embedding that the loss sees."""
        cross_entropy: float = ranged(0.0, low=0.0)
        """Weight of a linear classifier's cross-entropy on the features, added to the loss; helps with few images."""

    settings: Settings
    function: ClassVar[Callable[..., Tensor]]
    """The loss of embeddings and their groups."""
    parameters_of_loss: ClassVar[tuple[str, ...]] = ()
    """Names of the settings that `function` takes."""
    gathers: ClassVar[bool] = False
    """Whether `function` needs the rows of all processes. Otherwise it takes `distributed=True`."""

    def __init__(self, encoder: nn.Module, num_features: int, num_classes: int, settings: Settings) -> None:
        super().__init__(encoder, num_features, num_classes, settings)
        if settings.cross_entropy:
            if not settings.needs_labels:
                raise UserError("method.cross_entropy needs labels; set it to 0")
            self.classifier = nn.Linear(num_features, num_classes)
        self.knobs: LossSettings | None = getattr(settings, "knobs", None)
        """Temperature, k1 and k2 if the loss is TCL or a special case of it."""
        # The paper: "a MLP with one hidden layer", without batch-norm.
        hidden = num_features if settings.projector_hidden is None else settings.projector_hidden
        self.projector = mlp([num_features, *([hidden] if hidden else []), settings.projector_dim], norm=False)

    def pair_loss(self, z_ND: Tensor, groups_N: Tensor, reduction: str = "mean") -> Tensor:
        """The loss of the global batch, given this process's rows. Rows of one group are positives.

        reduction: `none` for one value per given row or, if the method `gathers`, per row of the global batch.
        """
        own = {name: getattr(self.settings, name) for name in self.parameters_of_loss}
        if self.gathers:
            z_ND, groups_N = distributed.gather(z_ND), distributed.gather(groups_N)
        else:
            own["distributed"] = True
        return type(self).function(z_ND, groups_N, **own, reduction=reduction)

    def weighted_loss(self, z_ND: Tensor, groups_N: Tensor, class_weights_K: Tensor) -> Tensor:
        """Σ w_i loss_i / Σ w_i over the anchors i of the global batch that have a positive; w_i is that of its class.

        Equal weights give `pair_loss`, unless mixed labels leave an anchor without the negative that some losses need.
        """
        weight_N, usable_N = row_weights(groups_N, class_weights_K)
        weight_N = weight_N * usable_N
        loss_N = self.pair_loss(z_ND, groups_N, "none")
        if self.gathers:
            weight_N = distributed.gather(weight_N)
            return (weight_N * loss_N).sum() / weight_N.sum().clamp(min=TINY)
        # The gradient of each process's part is right (see `tcl_loss`); the value is completed by the other parts.
        part = (weight_N * loss_N).sum() / distributed.total(weight_N.sum()).clamp(min=TINY)
        return part + (distributed.total(part.detach()) - part.detach())

    def forward(self, views: Sequence[Tensor], labels_B: Tensor | None) -> Output:
        features_ND = self.encode(views)
        if self.settings.needs_labels:
            groups_N = labels_of_views(labels_B, views)
        else:  # an integer that only the views of one image share, across all processes
            num = len(views[0])
            ids_B = torch.arange(num, device=views[0].device) + distributed.rank() * num
            groups_N = ids_B.repeat(len(views))
        z_ND = self.projector(features_ND)
        compared = {"z_ND": z_ND.detach(), "groups_N": groups_N}
        metrics, weights_K = {}, self.class_weights_K
        loss = self.pair_loss(z_ND, groups_N) if weights_K is None else self.weighted_loss(z_ND, groups_N, weights_K)
        if self.classifier is not None:
            logits_NK = self.classifier(features_ND).float()
            wrong = classification_loss(logits_NK, groups_N, multilabel=self.multilabel, class_weights_K=weights_K)
            loss = loss + self.settings.cross_entropy * wrong
            metrics = {"train_top1": top1(logits_NK.detach(), groups_N)}
        return Output(loss=loss, features_ND=features_ND.detach(), metrics=metrics, state=compared)


class SoftmaxMethod(PairwiseMethod):
    """A loss over the exponentials of similarities divided by a temperature."""

    @dataclass(kw_only=True)
    class Settings(PairwiseMethod.Settings):
        temperature: float = ranged(0.1, above=0.0)
        """Similarities are divided by it. Lower values give hard pairs more weight."""

    settings: Settings
    parameters_of_loss: ClassVar[tuple[str, ...]] = ("temperature",)
