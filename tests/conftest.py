"""What all tests share: hypothesis without deadlines (shared machines are slow at times), small thread pools."""

import os

import pytest
import torch
from hypothesis import settings

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before anything imports triton, which asks while it is imported

from contune.device import torchvision  # noqa: F401  (before any test or library imports torchvision by itself)

settings.register_profile("contune", deadline=None, max_examples=50, derandomize=True, database=None)
settings.load_profile("contune")
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def nothing_seen_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU a batch without positives is looked for once for each size, and every test may be the first."""
    from contune.losses import reduction

    monkeypatch.setattr(reduction, "_sizes_seen", set())
