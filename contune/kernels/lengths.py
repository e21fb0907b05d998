"""The lengths that embeddings are divided by."""

import torch
from torch import Tensor

SHORTEST = 1e-12
"""What is shorter has no direction: it becomes 0, and so does its gradient, which its length would make huge."""


def lengths(z_ND: Tensor) -> Tensor:
    """(N, 1); infinite where an embedding is too short to have a direction."""
    norm_N1: Tensor = torch.linalg.vector_norm(z_ND, dim=1, keepdim=True)
    return norm_N1.masked_fill(norm_N1 < SHORTEST, torch.inf)
