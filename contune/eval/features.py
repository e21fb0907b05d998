"""The frozen encoder's features of a whole split, each image once, as it looks at test time."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn

from contune.data.augment import eval_transform
from contune.data.loader import Loader, in_order
from contune.models.saved import EncoderSpec

EVAL_BATCH = 512


@torch.no_grad()
def extract_features(
    encoder: nn.Module,
    loader: Loader,
    spec: EncoderSpec,
    *,
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
    advance: Callable[[int, str], None] | None = None,
) -> Tensor:
    """float32 (N, num_features), in the loader's order. The encoder is left in evaluation mode."""
    encoder.eval()
    parts: list[Tensor] = []
    done = 0
    with untuned_convolutions():
        for images_BCHW, _ in loader.batches(in_order(len(loader), EVAL_BATCH)):
            x_BCHW = eval_transform(images_BCHW, spec.image_size, spec.mean, spec.std)
            with autocast():
                parts.append(encoder(x_BCHW).float())
            done += len(images_BCHW)
            if advance is not None:
                advance(done, "")
    return torch.cat(parts)


@contextmanager
def untuned_convolutions() -> Iterator[None]:
    """Turns cuDNN's autotuning off: a single pass over the images is over before it would pay."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
