"""What `contune embed`, `search` and `predict` share: their arguments, and a word on images that were left out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from contune.data.broken import Broken

Run = Annotated[Path, typer.Argument(help="A run folder.", show_default=False)]
Images = Annotated[
    str, typer.Argument(metavar="IMAGES", help="A folder, an image, or parquet with images.", show_default=False)
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda.")]
Batch = Annotated[int, typer.Option(help="Images that the encoder takes at a time.")]
Broken_ = Annotated[str, typer.Option("--broken", help="Images that cannot be decoded: skip and list them, or stop.")]
LabelColumn = Annotated[str | None, typer.Option(help="Of a parquet, where its name is unusual.")]
Workers = Annotated[int | None, typer.Option(help="Images decoded at a time; if not given one for each core.")]


def check_skipped(out: Path) -> None:
    """Before there is anything to list: that the list beside `out` is written over its like only."""
    from contune.data.broken_list import is_list
    from contune.files import check_like

    check_like(_list_beside(out), is_list)


def say_skipped(broken: "Sequence[Broken]", out: Path | None) -> None:
    """How many, and a file beside `out` that lists them; where none is, that of an earlier call goes."""
    from contune.console import say
    from contune.data.broken_list import write_list

    listed = None if out is None else _list_beside(out)
    if not broken:
        if listed is not None:
            listed.unlink(missing_ok=True)
        return
    where = f"such as {broken[0].name!r}, which {broken[0].reason}"
    if listed is not None:
        write_list(listed, broken)
        where += f"; {listed} lists them"
    say(f"left out    {len(broken):,} that cannot be decoded, {where}")


def _list_beside(out: Path) -> Path:
    return out.with_name(f"{out.name}.skipped.json")
