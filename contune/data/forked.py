"""Thumbnails by the ten thousand, decoded by copies of this process.

Python holds its lock for most of the work on a thumbnail, so threads do not help, and processes that begin anew take
longer to import torch than the decoding takes. Copies are there at once and write into memory that all of them share.

Shapes: N images, C channels, S side of the squares.
"""

import mmap
import multiprocessing
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import numpy as np

from contune.data.processes import begin

Decode = Callable[[int], np.ndarray]
"""From an index to uint8 (C, S, S)."""
FEWEST = 8192
"""Images for which copies are worth it: they take about as long to start as a thousand thumbnails to decode."""
_IMAGES_PER_TASK = 256


def worthwhile(num_images: int, workers: int) -> bool:
    """Only where the system copies processes safely, which PyTorch's loaders rely on too."""
    return sys.platform == "linux" and workers > 1 and num_images >= FEWEST


def shared_array(shape: tuple[int, ...]) -> np.ndarray:
    """uint8 that copies of this process write to as well; not in /dev/shm, which containers keep small."""
    return np.frombuffer(mmap.mmap(-1, int(np.prod(shape))), dtype=np.uint8).reshape(shape)


def decode_forked(
    decode: Decode, out_NCSS: np.ndarray, workers: int, progress: Callable[[int], None] = lambda done: None
) -> bool:
    """Fills a shared array; False where a copy died, and nothing is to be taken for decoded."""
    num = len(out_NCSS)
    tasks = [range(start, min(start + _IMAGES_PER_TASK, num)) for start in range(0, num, _IMAGES_PER_TASK)]
    context = multiprocessing.get_context("fork")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(decode, out_NCSS))
    done = 0
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)
            results = pool.map(_fill, tasks)
        for number in results:
            done += number
            progress(done)
    except BrokenProcessPool:
        return False
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    return True


_work: tuple[Decode, np.ndarray]
"""What a copy decodes with, and where to."""


def _begin(decode: Decode, out_NCSS: np.ndarray) -> None:
    """In a copy."""
    global _work
    _work = decode, out_NCSS
    begin()


def _fill(task: range) -> int:
    decode, out_NCSS = _work
    for index in task:
        out_NCSS[index] = decode(index)
    return len(task)
