"""What is exported: a trained encoder, and what is known of how it was made."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contune.models import load_encoder
from contune.models.classifier import CLASSIFIER_FILE, Classifier, load_classifier
from contune.models.saved import EncoderSpec, ImageEncoder
from contune.run import RunFolder


@dataclass(frozen=True, kw_only=True)
class Source:
    """A trained encoder and what its run left beside it."""

    encoder: ImageEncoder
    result: dict[str, Any] | None = None
    """None where the run has not been measured."""
    classifier: Classifier | None = None
    """None where there were no labels."""

    @property
    def spec(self) -> EncoderSpec:
        return self.encoder.spec

    @property
    def small_stem(self) -> bool:
        """Whether a ResNet's first convolution and pooling were replaced for small images."""
        stem = getattr(self.encoder.backbone, "conv1", None)
        return getattr(stem, "kernel_size", None) == (3, 3) and getattr(stem, "stride", None) == (1, 1)


@dataclass(frozen=True, kw_only=True)
class Written:
    """What a format has put into its folder."""

    usage: str
    """Markdown that says how to load it; its Python runs inside the folder."""
    deviation: float
    """How far the features are from the run's: the largest difference over the largest feature, or over 1."""
    library: str
    """What loads it, as model hubs name it."""


def open_source(run: Path) -> Source:
    """The encoder of a run folder, or of a folder that was exported as safetensors."""
    has_classifier = (run / CLASSIFIER_FILE).exists()
    return Source(
        encoder=load_encoder(run),
        result=RunFolder(run).result(),
        classifier=load_classifier(run) if has_classifier else None,
    )
