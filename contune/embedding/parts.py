"""A table that is written in parts, so that a job which was stopped goes on where it was, and finished at once.

`x.parquet.parts/` holds what the job is, and a small parquet file for every few thousand images; at the end they become
the row groups of `x.parquet`. A table that was there before stays until then.
"""

import json
import shutil
from collections.abc import Sequence
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from contune.data.broken import Broken
from contune.errors import UserError
from contune.files import unwritable, whole_file, write_whole

_JOB_FILE = "job.json"
_SEEN, _BROKEN = b"contune_seen", b"contune_broken"


class Parts:
    """`job` says what is computed: parts of another job are not gone on with."""

    def __init__(self, out: Path, job: dict[str, Any]) -> None:
        self.out, self.folder = out, parts_folder(out)
        self._compare(job)
        self.job = job
        self.files = list(takewhile(Path.exists, map(self._path, count())))

    @property
    def num_seen(self) -> int:
        """Images that the parts cover, broken ones too: where to go on."""
        return sum(int(_metadata(file)[_SEEN]) for file in self.files)

    def add(self, table: Any, broken: Sequence[Broken], num_seen: int) -> None:
        """A part, and how many images it took, in their order."""
        self._begin()
        notes = {_SEEN: str(num_seen).encode(), _BROKEN: json.dumps(broken).encode()}
        path = self._path(len(self.files))
        with whole_file(path) as part:
            pq.write_table(table.replace_schema_metadata(notes), part)
        self.files.append(path)

    @property
    def broken(self) -> list[Broken]:
        """Images that the parts list instead of holding."""
        return [Broken(*values) for file in self.files for values in json.loads(_metadata(file)[_BROKEN])]

    def finish(self, metadata: dict[str, str]) -> None:
        """Joins the parts to the table, a row group each, and removes them."""
        schema = pq.read_schema(self.files[0]).with_metadata(metadata)
        with whole_file(self.out) as part, pq.ParquetWriter(part, schema) as writer:
            for file in self.files:
                table = pq.read_table(file).replace_schema_metadata(metadata)
                if len(table):
                    writer.write_table(table, row_group_size=len(table))
        self.remove()

    def remove(self) -> None:
        shutil.rmtree(self.folder)

    def _compare(self, job: dict[str, Any]) -> None:
        file = self.folder / _JOB_FILE
        if not file.exists():
            return
        before = json.loads(file.read_text(encoding="utf-8"))
        different = [name for name in job if before.get(name) != job[name]]
        if different:
            raise UserError(
                f"{self.folder} holds the beginning of another job, with another {' and '.join(different)}; "
                "remove that folder, or give another file with --out"
            )

    def _begin(self) -> None:
        file = self.folder / _JOB_FILE
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unwritable(file, error) from error
        if not file.exists():
            write_whole(file, json.dumps(self.job, indent=2) + "\n")

    def _path(self, number: int) -> Path:
        return self.folder / f"part-{number:06}.parquet"


def parts_folder(out: Path) -> Path:
    return out.with_name(out.name + ".parts")


def has_parts(out: Path) -> bool:
    """Whether a job that was stopped has something to go on with."""
    return any(parts_folder(out).glob("part-*.parquet"))


def _metadata(file: Path) -> dict[bytes, bytes]:
    try:
        return dict(pq.read_schema(file).metadata)
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{file} cannot be read; remove its folder to start over") from error
