"""What was in a batch, for a person who looks for the image that spoiled it."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from torch import Tensor


def batch_look(
    indices_B: Sequence[int],
    *,
    names: Sequence[str],
    labels: Sequence[int] | None,
    class_names: Sequence[str],
    images: Tensor,
    views: Sequence[Tensor],
) -> dict[str, Any]:
    """Which images, how many of each class, and the range of values, raw and as the encoder saw them."""
    look: dict[str, Any] = {
        "images": list(indices_B),
        "names": [names[index] for index in indices_B],
        "pixels": _span(images),
        "views": [_span(view) for view in views],
    }
    if labels is not None:
        counts = Counter(class_names[label] for label in labels)
        look["labels"] = dict(sorted(counts.items()))
    return look


def _span(values: Tensor) -> dict[str, Any]:
    """As text, since JSON has no word for NaN."""
    finite = values[values.isfinite()].float()
    span = {"lowest": f"{finite.min():g}", "highest": f"{finite.max():g}"} if finite.numel() else {}
    return span | {"not_finite": int((~values.isfinite()).sum())}
