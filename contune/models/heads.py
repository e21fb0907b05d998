"""Heads on top of an encoder."""

from torch import nn

from contune.errors import UserError


def projector(num_features: int, *, hidden: int | None = None, dim: int = 128) -> nn.Sequential:
    """The paper's projection network: "a MLP with one hidden layer", no batch-norm.

    hidden: its size; None takes the encoder's (512 for ResNet-18 and 34, 2048 for ResNet-50 and above).
    dim: size of the embedding that the loss sees, 128 in the paper's supervised runs.
    """
    hidden = num_features if hidden is None else hidden
    for name, size in (("projector_hidden", hidden), ("projector_dim", dim)):
        if size < 1:
            raise UserError(f"{name} must be 1 or more, got {size}; the paper uses the encoder's size and 128")
    return nn.Sequential(nn.Linear(num_features, hidden), nn.ReLU(inplace=True), nn.Linear(hidden, dim))
