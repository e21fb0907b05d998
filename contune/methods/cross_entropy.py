"""Cross-entropy, the baseline of contrastive learning: encoder and linear classifier, trained end to end."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from contune.methods.base import Method, Output, classification_loss, labels_of_views, top1
from contune.settings import ranged


class CrossEntropy(Method):
    """A linear classifier on the features of any number of views; for several labels per image, one sigmoid a class."""

    @dataclass(kw_only=True)
    class Settings(Method.Settings):
        label_smoothing: float = ranged(0.0, low=0.0, high=1.0)
        """Share of each target that is spread over all classes."""

    settings: Settings

    def __init__(self, encoder: nn.Module, num_features: int, num_classes: int, settings: Settings) -> None:
        super().__init__(encoder, num_features, num_classes, settings)
        self.classifier: nn.Linear = nn.Linear(num_features, num_classes)

    def forward(self, views: Sequence[Tensor], labels_B: Tensor | None) -> Output:
        features_ND = self.encode(views)
        labels_N = labels_of_views(labels_B, views)
        logits_NK = self.classifier(features_ND)
        # Each rank takes the mean over its own rows: the average over ranks is the mean over the global batch.
        loss = classification_loss(
            logits_NK.float(),
            labels_N,
            multilabel=self.multilabel,
            label_smoothing=self.settings.label_smoothing,
            class_weights_K=self.class_weights_K,
        )
        accuracy = top1(logits_NK.detach(), labels_N)
        return Output(loss=loss, features_ND=features_ND.detach(), metrics={"train_top1": accuracy})
