"""Gradient caching: the gradients are those of the direct step, with the activations of one chunk in memory."""

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path

import pytest
import torch
from command_line import PLAIN, contune, read_lines, train
from small_heads import small_heads_as_text
from torch import Tensor, nn

import contune as library
from contune.errors import UserError
from contune.models import EncoderSpec

LABELS_N = torch.arange(24) % 4
RUN = ("digits", "optim.epochs=1", "data.val_fraction=0.6", "run.log_every=1", "eval.linear=none", "model.norm=group")
CACHED = ("tcl", "supcon", "sincere", "simclr", "triplet", "npair", "vicreg", "barlow-twins", "w-mse", "arb", "simsiam",
          "cross-entropy")  # fmt: skip
BATCH_NORM_HEADS = {"vicreg", "barlow-twins", "w-mse", "arb", "simsiam"}


def encoder(norm: str = "group", dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    spec = EncoderSpec(
        encoder="resnet-mini", stem="auto", norm=norm, image_size=8, channels=1, mean=(0.5,), std=(0.25,)
    )
    backbone = spec.build()
    num_features = int(backbone.num_features)  # type: ignore[arg-type]  # timm models carry an int
    return nn.Sequential(backbone, nn.Dropout(dropout), nn.Linear(num_features, 16))


def loss(z_ND: Tensor) -> Tensor:
    return library.tcl_loss(z_ND, LABELS_N)


def gradients(model: nn.Module, step: Callable[[nn.Module], Tensor]) -> tuple[float, list[Tensor]]:
    torch.manual_seed(1)
    value = step(model)
    return value.item(), [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("micro_batch", [1, 5, 24])
def test_gradients_equal_the_direct_ones(dtype: torch.dtype, tolerance: float, micro_batch: int) -> None:
    views = torch.rand(2, 12, 1, 8, 8, dtype=dtype, generator=torch.Generator().manual_seed(0))

    def direct(model: nn.Module) -> Tensor:
        value = loss(model(views.flatten(0, 1)))
        value.backward()
        return value

    cached_model = encoder().to(dtype)
    expected, expected_gradients = gradients(deepcopy(cached_model), direct)
    for given in (views.flatten(0, 1), list(views)):
        step = partial(library.cached_step, loss=loss, views=given, micro_batch=micro_batch)
        found, found_gradients = gradients(deepcopy(cached_model), step)
        assert found == pytest.approx(expected, rel=tolerance)
        for gradient, other in zip(found_gradients, expected_gradients, strict=True):
            torch.testing.assert_close(gradient, other, rtol=tolerance, atol=tolerance)


def test_dropout_repeats_and_running_statistics_move_once_a_chunk() -> None:
    """Both passes see one network. Chunks in training mode are what two calls of the encoder are."""
    views = torch.rand(24, 1, 8, 8)
    cached, called = encoder("batch", dropout=0.5), encoder("batch", dropout=0.5)
    _, found = gradients(cached, lambda model: library.cached_step(model, loss, views, micro_batch=12))
    after = torch.rand(1)

    def direct(model: nn.Module) -> Tensor:
        value = loss(torch.cat([model(views[:12]), model(views[12:])]))
        value.backward()
        return value

    _, expected = gradients(called, direct)
    assert torch.equal(torch.rand(1), after), "the random numbers go on as if there were one pass"
    for gradient, other in zip(found, expected, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-4, atol=1e-6)
    for (name, buffer), other in zip(cached.named_buffers(), called.buffers(), strict=True):
        assert torch.equal(buffer, other), name


def test_autocast_around_the_call_reaches_every_weight() -> None:
    """Autocast caches the weights of the first pass, which have no gradient."""
    model, views = encoder(), torch.rand(24, 1, 8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        library.cached_step(model, loss, views, micro_batch=8)
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())


def test_only_one_chunk_is_alive_in_the_backward_pass() -> None:
    model, views = encoder(), torch.rand(24, 1, 8, 8)
    weights = {parameter.data_ptr() for parameter in model.parameters()}
    saved: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        saved[-1] += 0 if tensor.data_ptr() in weights else tensor.untyped_storage().nbytes()
        return tensor

    model.register_forward_pre_hook(lambda *_: saved.append(0))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        library.cached_step(model, lambda z_ND: z_ND.square().mean(), views, micro_batch=6)
        model(views)
    assert saved[:3] == [0, 0, 0]
    assert max(saved[:-1]) < 0.3 * saved[-1], "activations of six views, not of 24"


@pytest.mark.parametrize("method", ["tcl", *[pytest.param(name, marks=pytest.mark.slow) for name in CACHED[1:]]])
def test_a_run_in_chunks_follows_the_direct_one(method: str, tmp_path: Path) -> None:
    settings = (*RUN, f"method.name={method}", "optim.lr=1e-4", *small_heads_as_text(method))
    for size in (0, 48):
        train(tmp_path / str(size), *settings, f"optim.micro_batch={size}")
    direct, cached = ([line["loss"] for line in read_lines(tmp_path / size)] for size in ("0", "48"))
    rel, least = (0.5, 0.05) if method in BATCH_NORM_HEADS else (1e-5, 0.0)
    assert cached == pytest.approx(direct, rel=rel, abs=least)


@pytest.mark.parametrize("method", ["byol", "moco-v2", "ressl", "dino", "swav"])
def test_methods_with_a_queue_or_a_momentum_encoder_refuse(method: str, tmp_path: Path) -> None:
    outcome = contune("train", *RUN, f"method.name={method}", "optim.micro_batch=8", *PLAIN, "--out", tmp_path / "run")
    assert (outcome.code, "optim.micro_batch" in outcome.err) == (2, True)
    with pytest.raises(UserError, match="micro_batch"):
        library.cached_step(nn.Identity(), loss, torch.rand(24, 4), micro_batch=0)
