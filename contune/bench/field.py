"""Everyone who can take part on a device."""

import torch

from contune.bench.contestants import Contestant, own_contestants, transcribed_contestants
from contune.bench.peers import peer_contestants


def everyone(device: torch.device, *, compiled: bool) -> tuple[list[Contestant], list[str]]:
    """The contestants, and the libraries that are not installed."""
    peers, absent = peer_contestants(device)
    return [*own_contestants(device, compiled=compiled), *transcribed_contestants(device), *peers], absent
