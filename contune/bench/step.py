"""The piece of work that is timed and weighed: one forward and backward pass."""

from torch import Tensor

from contune.bench.batch import Batch
from contune.bench.contestants import Contestant


def forward_backward(contestant: Contestant, batch: Batch) -> Tensor:
    """The loss. The gradient goes into `batch.z_ND.grad`, which the caller has emptied."""
    loss = contestant.function(batch.z_ND, batch.labels_N)
    loss.backward()
    return loss.detach()
