"""A step as a CUDA graph: recorded once, then replayed with a single launch instead of hundreds."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

Step = Callable[[Tensor, Tensor | None], dict[str, Tensor]]
"""From raw images and labels to the scalars worth a curve."""
WARMUP_CALLS = 3
"""Calls made as they are before the recording, so that optimizer state and cached constants exist."""


@contextmanager
def on_side_stream() -> Iterator[None]:
    """Where calls before a recording are made, as it will be itself: memory and libraries are set up by stream."""
    current, side = torch.cuda.current_stream(), torch.cuda.Stream()
    side.wait_stream(current)
    with torch.cuda.stream(side):
        yield
    current.wait_stream(side)


class GraphedStep:
    """Calls `step` a few times, then records it, and from then on copies images and labels in and replays.

    Their shapes stay the same. What the step returns is overwritten by the next call. Random numbers come from
    `generator`, which may be seeded anew before each call.
    """

    def __init__(self, step: Step, generator: torch.Generator) -> None:
        self.step, self.generator = step, generator
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.images_BCHW: Tensor
        self.labels_B: Tensor | None
        self.outputs: dict[str, Tensor]

    def __call__(self, images_BCHW: Tensor, labels_B: Tensor | None) -> dict[str, Tensor]:
        self.calls += 1
        if self.calls <= WARMUP_CALLS:
            with on_side_stream():
                return self.step(images_BCHW, labels_B)
        if self.graph is None:
            self.graph = self._record(images_BCHW, labels_B)
        self.images_BCHW.copy_(images_BCHW)
        if self.labels_B is not None and labels_B is not None:
            self.labels_B.copy_(labels_B)
        self.graph.replay()
        return self.outputs

    def _record(self, images_BCHW: Tensor, labels_B: Tensor | None) -> torch.cuda.CUDAGraph:
        self.images_BCHW = images_BCHW.clone()
        self.labels_B = None if labels_B is None else labels_B.clone()
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        # A loader's thread pins memory meanwhile, which the usual mode takes for an error of the recording.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self.outputs = self.step(self.images_BCHW, self.labels_B)
        return graph
