"""Gradient caching: the gradients are those of the direct step, with the activations of one chunk in memory."""

from copy import deepcopy
from pathlib import Path

import pytest
import torch
from command_line import read_lines, train
from small_heads import small_heads_as_text
from torch import Tensor, nn

import contune
from contune.methods import METHODS
from contune.models import EncoderSpec

LABELS_N = torch.arange(24) % 4
RUN = (
    "digits",
    "optim.epochs=1",
    "data.val_fraction=0.8",
    "optim.batch_images=32",
    "run.log_every=1",
    "eval.linear=none",
    "model.norm=group",
    "optim.lr=1e-5",
)
QUICK = ("tcl", "byol")


def encoder(norm: str = "group", dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    spec = EncoderSpec(
        encoder="resnet-mini", stem="auto", norm=norm, image_size=8, channels=1, mean=(0.5,), std=(0.25,)
    )
    backbone = spec.build()
    num_features = int(backbone.num_features)  # type: ignore[arg-type]  # timm models carry an int
    return nn.Sequential(backbone, nn.Dropout(dropout), nn.Linear(num_features, 16))


def gradients(model: nn.Module, x: Tensor, micro_batch: int) -> list[Tensor]:
    """Of TCL. micro_batch=0: chunks of 12 rows one after the other, as if by hand."""
    torch.manual_seed(1)
    z_ND = (
        contune.encode_in_chunks(model, x, micro_batch=micro_batch)
        if micro_batch
        else torch.cat([model(x[:12]), model(x[12:])])
    )
    contune.tcl_loss(z_ND, LABELS_N).backward()
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("micro_batch", [1, 5, 24])
def test_gradients_equal_the_direct_ones(dtype: torch.dtype, tolerance: float, micro_batch: int) -> None:
    x = torch.rand(24, 1, 8, 8, dtype=dtype, generator=torch.Generator().manual_seed(0))
    model = encoder().to(dtype)
    expected = gradients(deepcopy(model), x, 0)
    for gradient, other in zip(gradients(model, x, micro_batch), expected, strict=True):
        torch.testing.assert_close(gradient, other, rtol=tolerance, atol=tolerance)


def test_dropout_repeats_and_running_statistics_move_once() -> None:
    x = torch.rand(24, 1, 8, 8)
    by_hand, in_chunks = encoder("batch", dropout=0.5), encoder("batch", dropout=0.5)
    expected, after = gradients(by_hand, x, 0), torch.rand(1)
    found = gradients(in_chunks, x, 12)
    assert torch.equal(torch.rand(1), after), "random numbers go on as if there were one pass"
    for gradient, other in zip(found, expected, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-4, atol=1e-6)
    for (name, buffer), other in zip(in_chunks.named_buffers(), by_hand.buffers(), strict=True):
        assert torch.equal(buffer, other), name


def test_only_one_chunk_is_alive_in_the_backward_pass() -> None:
    model, x = encoder(), torch.rand(24, 1, 8, 8)
    weights = {parameter.data_ptr() for parameter in model.parameters()}
    alive = most = 0

    class Counted:
        def __init__(self, tensor: Tensor) -> None:
            nonlocal alive, most
            self.tensor = tensor
            self.size = 0 if tensor.data_ptr() in weights else tensor.numel()
            alive += self.size
            most = max(most, alive)

        def __del__(self) -> None:
            nonlocal alive
            alive -= self.size

    def most_alive(micro_batch: int) -> int:
        nonlocal most
        most = alive
        with torch.autograd.graph.saved_tensors_hooks(Counted, lambda counted: counted.tensor):
            contune.encode_in_chunks(model, x, micro_batch=micro_batch).square().mean().backward()
        return most - alive

    assert most_alive(6) < 0.3 * most_alive(24), "activations of six rows, not of 24"


def test_under_autocast_every_weight_gets_a_gradient() -> None:
    model, x = encoder(), torch.rand(24, 1, 8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z_ND = contune.encode_in_chunks(model, x, micro_batch=8)
    contune.tcl_loss(z_ND, LABELS_N).backward()
    assert z_ND.dtype == torch.bfloat16
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())


@pytest.mark.parametrize("method", [m if m in QUICK else pytest.param(m, marks=pytest.mark.slow) for m in METHODS])
def test_a_run_in_chunks_follows_the_direct_one(method: str, tmp_path: Path) -> None:
    """Every method: batch norm in a head still sees the whole batch."""
    for size in (0, 24):
        settings = (f"method.name={method}", f"optim.micro_batch={size}", *small_heads_as_text(method))
        train(tmp_path / str(size), *RUN, *settings)
    direct, cached = ([line["loss"] for line in read_lines(tmp_path / size)] for size in ("0", "24"))
    assert cached == pytest.approx(direct, rel=1e-4, abs=1e-5)
