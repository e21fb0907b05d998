"""Random numbers as a pure function of a few integers, the same on every machine."""

import numpy as np
import torch


def mixed_generator(*numbers: int, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator for this tuple. Neighbouring tuples, (0, 1) and (1, 0) too, share no stream.

    The same on every machine holds for the CPU, the default.
    """
    return torch.Generator(device).manual_seed(mixed_seed(*numbers))


def mixed_seed(*numbers: int) -> int:
    """One number that stands for the tuple, for a generator that is seeded again and again."""
    entropy = [number % 2**64 for number in numbers]
    return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0])
