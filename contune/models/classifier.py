"""classifier.safetensors: the linear classifier on an encoder's features, with the names of its classes."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from contune.errors import UserError
from contune.files import whole_file

CLASSIFIER_FILE = "classifier.safetensors"


@dataclass(frozen=True, kw_only=True, eq=False)
class Classifier:
    """K classes from D features."""

    weight_KD: Tensor
    bias_K: Tensor
    class_names: tuple[str, ...]
    measure: str
    """Which of the measured ones it is: `linear`, `linear-fast`, or `classifier`, the one trained with the encoder."""

    def probabilities(self, features_ND: Tensor) -> Tensor:
        """(N, K)"""
        return torch.softmax(self._scores(features_ND), dim=1)

    def predict(self, features_ND: Tensor) -> Tensor:
        """The number of the most probable class of each, (N,)."""
        return self._scores(features_ND).argmax(dim=1)

    def _scores(self, features_ND: Tensor) -> Tensor:
        return features_ND.float() @ self.weight_KD.T + self.bias_K


def save_classifier(path: Path, classifier: Classifier) -> None:
    tensors = {"weight": classifier.weight_KD, "bias": classifier.bias_K}
    about = {"class_names": classifier.class_names, "measure": classifier.measure}
    content = save(
        {name: tensor.detach().float().cpu().contiguous() for name, tensor in tensors.items()},
        metadata={"contune": json.dumps(about)},
    )
    with whole_file(path) as part:
        part.write_bytes(content)


def load_classifier(run: Path) -> Classifier:
    file = run / CLASSIFIER_FILE
    if not file.exists():
        raise UserError(
            f"{run} has no classifier ({CLASSIFIER_FILE}): it was trained without labels or measured without a linear "
            f"probe; where its data has labels, `contune eval {run} eval.linear=fast` writes one, else "
            f"`contune eval {run} data.path=FOLDER` with images that have labels"
        )
    try:
        with safe_open(file, framework="pt") as opened:
            about = json.loads((opened.metadata() or {})["contune"])
            classifier = Classifier(
                weight_KD=opened.get_tensor("weight"),
                bias_K=opened.get_tensor("bias"),
                class_names=tuple(map(str, about["class_names"])),
                measure=str(about["measure"]),
            )
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{file} is not a classifier that contune wrote: {error}") from None
    if classifier.weight_KD.shape[:1] != (len(classifier.class_names),):
        raise UserError(f"{file} names {len(classifier.class_names)} classes for weights of another number")
    return classifier
