"""The last embeddings of earlier batches, as negatives or as company for small batches.

Shapes: K places, D embedding size, B rows of this process.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contune import distributed
from contune.errors import UserError


class Queue(nn.Module):
    """K unit vectors, random at first; a batch of all processes replaces the oldest.

    The position is a tensor and every index a computation on the device: a recorded step moves on as any other.
    """

    values_KD: Tensor
    position: Tensor
    num_seen: Tensor

    def __init__(self, num_places: int, dim: int) -> None:
        super().__init__()
        self.register_buffer("values_KD", F.normalize(torch.randn(num_places, dim), dim=1))
        self.register_buffer("position", torch.zeros((), dtype=torch.int64))
        self.register_buffer("num_seen", torch.zeros((), dtype=torch.int64))

    @property
    def is_full(self) -> Tensor:
        """Whether nothing random is left, on the device."""
        return self.num_seen >= len(self.values_KD)

    @torch.no_grad()
    def push(self, rows_BD: Tensor) -> None:
        """The rows of every process, in the same order on each of them."""
        rows = distributed.gather(rows_BD.detach()).to(self.values_KD.dtype)
        num, places = len(rows), len(self.values_KD)
        if num > places:
            raise UserError(f"a batch of {num} does not fit a queue of {places}; enlarge the queue")
        at = (self.position + torch.arange(num, device=rows.device)) % places
        self.values_KD.index_copy_(0, at, rows)
        self.position.add_(num).remainder_(places)
        self.num_seen.add_(num).clamp_(max=places)
