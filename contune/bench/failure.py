"""A contestant that cannot do it is a row with a reason; the benchmark goes on."""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch

T = TypeVar("T")
OUT_OF_MEMORY = "out of memory"


@dataclass(frozen=True)
class Failure:
    reason: str


def attempt(work: Callable[[], T], device: torch.device) -> T | Failure:
    """What `work` gives, or why it gave nothing, with its memory handed back."""
    try:
        return work()
    except Exception as error:  # third-party code may raise anything
        failure = Failure(_reason(error))
    # After the except block: until its end the traceback keeps the contestant's tensors alive.
    release_memory(device)
    return failure


def release_memory(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _reason(error: Exception) -> str:
    text = (str(error).splitlines() or [""])[0].strip()
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in text:
        return OUT_OF_MEMORY
    return f"failed: {text or type(error).__name__}"
