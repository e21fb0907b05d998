"""The frozen encoder's features of a whole split, each image once, as it looks at test time."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from contune.data.augment import eval_transform
from contune.data.loader import Loader, in_order
from contune.eval.frozen import untuned_convolutions
from contune.models.saved import EncoderSpec

Advance = Callable[[int, str], None]
EVAL_BATCH = 512


@torch.no_grad()
@untuned_convolutions()
def extract_features(
    encoder: nn.Module,
    loader: Loader,
    spec: EncoderSpec,
    *,
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
    advance: Advance | None = None,
) -> Tensor:
    """float32 (N, num_features), in the loader's order. The encoder is left in evaluation mode."""
    encoder.eval()
    parts: list[Tensor] = []
    done = 0
    for images_BCHW, _ in loader.batches(in_order(len(loader), EVAL_BATCH)):
        x_BCHW = eval_transform(images_BCHW, spec.image_size, spec.mean, spec.std)
        with autocast():
            parts.append(encoder(x_BCHW).float())
        done += len(images_BCHW)
        if advance is not None:
            advance(done, "")
    return torch.cat(parts)
