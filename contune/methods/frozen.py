"""A layer that stays as it began for some epochs, while the rest of the network finds its feet."""

import torch
from torch import Tensor, nn


class Frozen(nn.Module):
    """Puts a parameter back after each step while fewer than `epochs` epochs are done, whatever the optimizer."""

    first: Tensor

    def __init__(self, parameter: nn.Parameter, epochs: float) -> None:
        super().__init__()
        self.epochs = epochs
        self.register_buffer("first", parameter.detach().clone())

    @torch.no_grad()
    def put_back(self, parameter: nn.Parameter, epoch: Tensor) -> None:
        """epoch: how many are done, on the device."""
        torch.where(epoch < self.epochs, self.first, parameter, out=parameter)
