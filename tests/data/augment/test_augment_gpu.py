"""On a CUDA device: the same views as on the CPU, no wait for the device, and capture in a CUDA graph.

`auto` takes the kernels where there are any, `torch` never.
"""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from contune.data.augment import POLICIES, Augmenter, Params, build_policy

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda")


@pytest.fixture
def _debug_mode_restored() -> Iterator[None]:
    yield
    torch.cuda.set_sync_debug_mode("default")


def batch(name: str, backend: str) -> tuple[Augmenter, Tensor, list[Params]]:
    policy = build_policy(name, image_size=32, channels=3)
    augmenter = Augmenter([policy, policy], [0.0] * 3, [1.0] * 3, backend)
    generator = torch.Generator(CUDA).manual_seed(0)
    coarse = torch.rand(256, 3, 5, 5, generator=generator, device=CUDA)
    images = torch.nn.functional.interpolate(coarse, size=(32, 32), mode="bilinear").mul(255).to(torch.uint8)
    params = augmenter.draw(256, generator)
    augmenter.apply(images, params)  # compiles kernels and makes the constants
    return augmenter, images, params


def on_cpu(params: list[Params]) -> list[Params]:
    return [{name: value.cpu() for name, value in view.items()} for view in params]


@pytest.mark.parametrize("backend", ["auto", "torch"])
@pytest.mark.parametrize("name", list(POLICIES))
def test_views_are_those_of_the_cpu(name: str, backend: str) -> None:
    augmenter, images, params = batch(name, backend)
    ours = torch.cat(augmenter.apply(images, params)).cpu()
    theirs = torch.cat(augmenter.apply(images.cpu(), on_cpu(params)))
    # Sines, sums and divisions round differently, so one value in 10,000 may be off by a pixel or a level.
    assert ((ours - theirs).abs() > 1e-4).float().mean() < 1e-4


@pytest.mark.parametrize("backend", ["auto", "torch"])
@pytest.mark.parametrize("name", list(POLICIES))
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature")
@pytest.mark.usefixtures("_debug_mode_restored")
def test_nothing_waits_for_the_device(name: str, backend: str) -> None:
    augmenter, images, params = batch(name, backend)
    generator = torch.Generator(CUDA).manual_seed(1)
    torch.cuda.set_sync_debug_mode("error")
    augmenter.draw(256, generator)
    augmenter.apply(images, params)


@pytest.mark.parametrize("backend", ["auto", "torch"])
@pytest.mark.parametrize("name", list(POLICIES))
def test_a_graph_replays_with_new_parameters(name: str, backend: str) -> None:
    augmenter, images, params = batch(name, backend)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = augmenter.apply(images, params)
    fresh = augmenter.draw(256, torch.Generator(CUDA).manual_seed(2))
    for old, new in zip(params, fresh, strict=True):
        for key, value in old.items():
            value.copy_(new[key])
    graph.replay()
    expected = augmenter.apply(images, fresh)
    for ours, theirs in zip(captured, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


def test_tf32_costs_less_than_a_level() -> None:
    augmenter, images, params = batch("simaugment", "torch")
    exact = torch.cat(augmenter.apply(images, params))
    precision = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        rounded = torch.cat(augmenter.apply(images, params))
    finally:
        torch.set_float32_matmul_precision(precision)
    assert (rounded - exact).abs().max() < 1 / 255
