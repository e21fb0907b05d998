"""Work on many encoded images at once: results in order, and only a few chunks in memory at any time."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TypeVar

from contune.data.processes import begin, forkserver
from contune.data.stream import default_workers
from contune.errors import UserError

Task = TypeVar("Task")
Done = TypeVar("Done")

MANY = 20_000
"""Images from which processes pay: they take seconds to start, and threads get in each other's way on thumbnails."""
CHUNKS_AHEAD = 2


@contextmanager
def decoding_pool(num_images: int, workers: int | None = None) -> Iterator["Pool"]:
    """`workers` are threads for a few images and processes for many; None: one for each core that is ours."""
    if workers is not None and workers < 1:
        raise UserError(f"{workers} workers decode nothing; take 1 or more, or leave it out for one for each core")
    workers = workers or default_workers()
    executor: Executor
    if num_images < MANY or workers == 1:
        executor = ThreadPoolExecutor(workers)
    else:
        executor = ProcessPoolExecutor(workers, mp_context=forkserver(), initializer=begin)
    try:
        yield Pool(executor, workers)
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


class Pool:
    def __init__(self, executor: Executor, workers: int) -> None:
        self._executor, self._num_ahead = executor, workers * CHUNKS_AHEAD

    def map(self, function: Callable[[Task], Done], tasks: Iterable[Task]) -> Iterator[Done]:
        """`function` of each task, in order; tasks are taken only as the results are."""
        waiting: deque[Future[Done]] = deque()
        try:
            for task in tasks:
                waiting.append(self._executor.submit(function, task))
                if len(waiting) > self._num_ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            raise UserError(
                "a process that decodes images died, most likely for want of memory; take fewer with --workers 1"
            ) from error
