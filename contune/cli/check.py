"""`contune check`."""

from pathlib import Path
from typing import Annotated

import typer

from contune.cli.app import Debug, app
from contune.cli.images import LabelColumn

MOST_SHOWN = 20


@app.command()
def check(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A folder of images, or parquet.", show_default=False)],
    out: Annotated[Path | None, typer.Option(help="A JSON file for all that was found.")] = None,
    label_column: LabelColumn = None,
    workers: Annotated[int | None, typer.Option(help="Images decoded at a time; one for each core.")] = None,
    debug: Debug = False,
) -> None:
    """Read every image once: broken files, copies across splits, sizes, classes. Exit code 1 if something is wrong.

    Examples: `contune check photos/` · `contune check photos/ --out check.json`
    """
    import json

    from contune.console import printable, say, show_table
    from contune.data.preflight import preflight
    from contune.data.preflight_findings import COLUMNS, as_json, findings, is_check, table_row
    from contune.files import check_like, check_out, write_whole

    if out is not None:
        check_out(out, path, ending=".json")
        check_like(out, is_check)
    found = preflight(path, label_column=label_column, workers=workers)
    broken = [broken for split in found.splits for broken in split.broken]
    show_table(COLUMNS, [table_row(split) for split in found.splits], numbers=("images", "broken", "classes"))
    if broken:
        say()
        show_table(
            ("broken", "what is wrong"), [(printable(name), printable(why)) for name, why in broken[:MOST_SHOWN]]
        )
        if len(broken) > MOST_SHOWN:
            say(f"and {len(broken) - MOST_SHOWN:,} more{'' if out else '; --out check.json lists them all'}")
    say()
    noticed = list(findings(found))
    for finding in noticed:
        say(f"{finding.mark} {finding.text}")
    if out is not None:
        write_whole(out, json.dumps(as_json(found), indent=2) + "\n")
        say(f"\nreport   {out}")
    if any(finding.is_bad for finding in noticed):
        raise typer.Exit(1)
