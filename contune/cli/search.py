"""`contune search`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contune.cli.app import Debug, app
from contune.cli.images import Device, Run, Workers, check_skipped, say_skipped

if TYPE_CHECKING:
    from contune.data.broken import Broken
    from contune.embedding.embeddings import Embedded


@app.command()
def search(
    run: Run,
    images: Annotated[
        str,
        typer.Argument(metavar="IMAGES", help="As for embed, or the table that it wrote.", show_default=False),
    ],
    query: Annotated[str, typer.Argument(metavar="QUERY", help="An image, or a folder of a few.", show_default=False)],
    k: Annotated[int, typer.Option("-k", help="How many of the nearest.")] = 10,
    out: Annotated[Path | None, typer.Option(help="An HTML page with the pictures.")] = None,
    device: Device = "auto",
    workers: Workers = None,
    debug: Debug = False,
) -> None:
    """Find the images most like another, by the cosine of their embeddings.

    Examples: `contune search runs/photos photos/ cat.jpg` ·
    `contune search runs/photos photos.parquet cat.jpg -k 20 --out cats.html`
    """
    from functools import partial

    from contune.analysis.page import is_page
    from contune.console import printable, progress, say, show_table
    from contune.embedding.nearest import search as find
    from contune.embedding.search_page import write_search_page
    from contune.embedding.table import num_images
    from contune.files import check_like, check_out

    if out is not None:
        check_out(out, images, query, ending=".html")
        check_like(out, partial(is_page, kind="search"))
        check_skipped(out)
    num = 0
    skipped: list[Broken] = []
    with progress("search", num_images(images), unit="images") as advance:

        def watch(part: "Embedded") -> None:
            nonlocal num
            num += len(part.paths)
            skipped.extend(part.broken)
            advance(num + len(skipped), "")

        found = find(run, images, query, k=k, device=device, workers=workers, watch=watch)
    for one in found:
        rows = [(f"{hit.similarity:.4f}", hit.label or "", printable(hit.path)) for hit in one.hits]
        say(f"like {printable(one.query)}:")
        show_table(("cosine", "label", "image"), rows, numbers=("cosine",))
    if out is not None:
        write_search_page(out, found, run=str(run), images=images, num=num)
        say(f"\npage        {out}")
    say_skipped(skipped, out)
