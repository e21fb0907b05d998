"""Everyone who can take part on a device."""

import torch

from contune.bench.contestants import Contestant, floor_contestants, own_contestants, transcribed_contestants
from contune.bench.peers import peer_contestants


def everyone(device: torch.device, *, compiled: bool) -> tuple[list[Contestant], list[str]]:
    """The contestants, and the libraries that are not installed."""
    peers, absent = peer_contestants(device)
    own = own_contestants(device, compiled=compiled)
    floor = floor_contestants() if device.type == "cuda" else []  # a CPU's is too low to say anything
    return [*own, *transcribed_contestants(device), *peers, *floor], absent
