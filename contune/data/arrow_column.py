"""The encoded images of a parquet file, in Arrow's memory, which many processes can share."""

import tempfile
from collections.abc import Sequence
from typing import Any, overload

import numpy as np
import pyarrow as pa

from contune.data.decode import Encoded
from contune.data.sequences import Picked
from contune.errors import UserError

LARGEST_COPY = 2**26
"""Bytes up to which each worker gets a copy of its own; larger columns are shared through a file."""
_NAME = "images"


class ArrowColumn(Sequence[Encoded]):
    """The values of a binary column, each a view into Arrow's memory.

    On its way to another process a large one is written to a temporary file once, which every process then maps into
    its memory: as many workers as there are cores would not fit there with a copy each. The file goes with the column.
    """

    def __init__(self, column: Any) -> None:
        self._hold(column.chunks)

    def _hold(self, chunks: list[Any]) -> None:
        self._chunks = [chunk for chunk in chunks if len(chunk)]
        self._ends = np.cumsum([len(chunk) for chunk in self._chunks], dtype=np.int64)
        self._file: Any = None

    def __len__(self) -> int:
        return int(self._ends[-1]) if self._chunks else 0

    @overload
    def __getitem__(self, index: int) -> Encoded: ...
    @overload
    def __getitem__(self, index: slice) -> Picked[Encoded]: ...
    def __getitem__(self, index: int | slice) -> Encoded | Picked[Encoded]:
        if isinstance(index, slice):
            return Picked(self, np.arange(len(self))[index])
        position = range(len(self))[index]
        number = int(np.searchsorted(self._ends, position, side="right"))
        chunk = self._chunks[number]
        return memoryview(chunk[position - int(self._ends[number]) + len(chunk)].as_buffer())

    def __getstate__(self) -> Any:
        if sum(chunk.nbytes for chunk in self._chunks) <= LARGEST_COPY:
            return self._chunks
        if self._file is None:
            self._file = self._written()
        return self._file.name

    def __setstate__(self, state: Any) -> None:
        shared = isinstance(state, str)
        self._hold(pa.ipc.open_file(pa.memory_map(state)).read_all()[_NAME].chunks if shared else state)

    def _written(self) -> Any:
        """A temporary file with all of it; who drops the file removes it."""
        schema = pa.schema([(_NAME, self._chunks[0].type)])
        try:
            file = tempfile.NamedTemporaryFile(prefix="contune-", suffix=".arrow")  # noqa: SIM115  (lives as long as this)
            with pa.ipc.new_file(file.name, schema) as writer:
                for chunk in self._chunks:
                    writer.write_batch(pa.record_batch([chunk], schema=schema))
        except OSError as error:
            raise UserError(
                f"workers share images through a temporary file, and {tempfile.gettempdir()} cannot hold it ({error}); "
                "set TMPDIR to a larger disk, or data.workers=0"
            ) from error
        return file
