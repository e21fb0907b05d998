"""An encoder by itself on views that are there already, run as training runs it."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from contune.device import Autocast
from contune.models import EncoderSpec
from contune.models.fused_norm import fuse_norms
from contune.train.engine import Engine
from contune.train.engine import CapturedStep, Step
from contune.train.optim import build_optimizer


def encoder_step(
    spec: EncoderSpec, views: Tensor, *, autocast: Autocast, engine: Engine, trained: bool
) -> Callable[[], object]:
    """A new encoder's forward pass in training mode, with backward and SGD where it is `trained`.

    The engine's compiler has the forward pass with its autocast, its recorder the whole of it.
    """
    memory_format = torch.channels_last if views.device.type == "cuda" else torch.contiguous_format
    encoder: nn.Module = spec.build().to(views.device, memory_format=memory_format)  # type: ignore[call-overload]  # torch types only the 4-D form
    encoder.train()
    if engine.fused:
        fuse_norms(encoder)
    views = views.contiguous(memory_format=memory_format)
    step = (_training if trained else _forward_alone)(encoder, autocast, compiled=engine.compiled)
    run: Step = CapturedStep(step, torch.Generator(views.device)) if engine.captured else step
    return lambda: run(views, None)


def _training(encoder: nn.Module, autocast: Autocast, *, compiled: bool) -> Step:
    optimizer = build_optimizer(encoder, "sgd", lr=1e-3, momentum=0.9, weight_decay=1e-4)

    def mean_feature(x: Tensor) -> Tensor:
        with autocast():
            features = encoder(x)
        loss: Tensor = features.float().mean()
        return loss

    forward = torch.compile(mean_feature, fullgraph=True, dynamic=False) if compiled else mean_feature

    def step(x: Tensor, labels_B: Tensor | None) -> dict[str, Tensor]:
        loss: Tensor = forward(x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return {"loss": loss}

    return step


def _forward_alone(encoder: nn.Module, autocast: Autocast, *, compiled: bool) -> Step:
    """As in a network that follows another: batch-norm takes the batch's statistics, and no gradient is kept for."""
    encoder.requires_grad_(False)

    def features_of(x: Tensor) -> Tensor:
        with torch.no_grad(), autocast():
            features: Tensor = encoder(x)
        return features

    forward = torch.compile(features_of, fullgraph=True, dynamic=False) if compiled else features_of
    return lambda x, labels_B: {"features": forward(x)}
