"""The piece of work that is timed and weighed: one forward and backward pass."""

import torch
from torch import Tensor

from contune.bench.batch import Batch
from contune.bench.contestants import Contestant
from contune.train.engine import WARMUP_CALLS, on_side_stream


def forward_backward(contestant: Contestant, batch: Batch) -> Tensor:
    """The loss. The gradient goes into `batch.z_ND.grad`, which the caller has emptied."""
    loss = contestant.function(batch.z_ND, batch.labels_N)
    loss.backward()
    return loss.detach()


class RecordedPass:
    """The same recorded as a CUDA graph, as a training step that is recorded has it: a call replays it."""

    def __init__(self, contestant: Contestant, batch: Batch) -> None:
        with on_side_stream():
            for _ in range(WARMUP_CALLS):
                batch.z_ND.grad = None
                forward_backward(contestant, batch)
        batch.z_ND.grad = None
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = forward_backward(contestant, batch)
        self.gradient_ND = batch.z_ND.grad  # what every replay writes to, so it is kept
        batch.z_ND.grad = None

    def __call__(self) -> Tensor:
        self.graph.replay()
        return self.loss
