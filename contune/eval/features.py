"""The frozen encoder's features of a whole split, each image once, as it looks at test time."""

from contextlib import nullcontext

import torch
from torch import Tensor, nn

from contune.console import Advance
from contune.data.augment import eval_transform
from contune.data.loader import Loader, in_order
from contune.device import Autocast
from contune.models.saved import EncoderSpec

EVAL_BATCH = 512


@torch.no_grad()
def extract_features(
    encoder: nn.Module,
    loader: Loader,
    spec: EncoderSpec,
    *,
    autocast: Autocast = nullcontext,
    advance: Advance | None = None,
) -> Tensor:
    """float32 (N, num_features), in the loader's order. The encoder is left in evaluation mode."""
    encoder.eval()
    parts: list[Tensor] = []
    done, autotune = 0, torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = False  # a single pass is over before autotuning would pay
    try:
        for images_BCHW, _ in loader.batches(in_order(len(loader), EVAL_BATCH)):
            x_BCHW = eval_transform(images_BCHW, spec.image_size, spec.mean, spec.std)
            with autocast():
                parts.append(encoder(x_BCHW).float())
            done += len(images_BCHW)
            if advance is not None:
                advance(done, "")
    finally:
        torch.backends.cudnn.benchmark = autotune
    return torch.cat(parts)
