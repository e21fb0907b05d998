"""A trained encoder at work: `contune embed`, `contune search`, `contune predict`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contune.cli.app import Debug, app

if TYPE_CHECKING:
    from collections.abc import Sequence

    from contune.data.broken import Broken
    from contune.embedding.embeddings import Embedded

Run = Annotated[Path, typer.Argument(help="A run folder.", show_default=False)]
Images = Annotated[
    str, typer.Argument(metavar="IMAGES", help="A folder, an image, or parquet with images.", show_default=False)
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda.")]
Batch = Annotated[int, typer.Option(help="Images that the encoder takes at a time.")]
Broken_ = Annotated[str, typer.Option("--broken", help="Images that cannot be decoded: skip and list them, or stop.")]
Workers = Annotated[int | None, typer.Option(help="Images decoded at a time; if not given one for each core.")]

SHOWN = 20


@app.command()
def embed(
    run: Run,
    images: Images,
    out: Annotated[Path, typer.Option(help="The parquet file: path, label, embedding.")] = Path("embeddings.parquet"),
    dtype: Annotated[str, typer.Option(help="Of the embeddings: float32 or float16.")] = "float32",
    batch: Batch = 256,
    device: Device = "auto",
    broken: Broken_ = "skip",
    workers: Workers = None,
    debug: Debug = False,
) -> None:
    """Write the embedding of every image to a parquet file.

    The same command again goes on where it was stopped.

    Examples: `contune embed runs/digits photos/ --out photos.parquet` ·
    `contune embed runs/photos data.parquet --dtype float16`
    """
    from contune.console import say
    from contune.data.out_file import check_out
    from contune.embedding.parts import has_parts, parts_folder
    from contune.embedding.source import open_source
    from contune.embedding.table import write_embeddings
    from contune.progress import progress

    source = open_source(images)
    check_out(out, images, ending=".parquet")
    try:
        with progress("embed", source.num, unit="images") as advance:
            written = write_embeddings(
                run,
                source,
                out,
                kind=dtype,
                batch=batch,
                device=device,
                broken=broken,
                workers=workers,
                advance=lambda done, total, per_second: advance(done, f"{per_second:,.0f} images/s"),
            )
    except KeyboardInterrupt:
        rest = (
            f"goes on with what is in {parts_folder(out)}" if has_parts(out) else "begins anew, for nothing is kept yet"
        )
        say(f"\nstopped; the same command {rest}")
        raise typer.Exit(130) from None
    now = written.num + len(written.broken) - written.num_before
    say(f"embeddings  {out}: {written.num:,} images × {written.num_features} numbers, {dtype}")
    if written.num_before:
        say(f"            {written.num_before:,} of them were there from the call before")
    if now:
        waited = 100 * written.waited / max(1e-9, written.waited + written.encoded)
        say(
            f"took        {written.seconds:.1f} s, {now / written.seconds:,.0f} images/s; "
            f"{waited:.0f} % of it waiting for images to be decoded"
        )
    _say_skipped(written.broken, out)


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
    from contune.console import printable, say, show_table
    from contune.data.out_file import check_out
    from contune.embedding.nearest import search as find
    from contune.embedding.search_page import write_search_page
    from contune.embedding.table import num_images
    from contune.progress import progress

    if out is not None:
        check_out(out, images, query, ending=".html")
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
    _say_skipped(skipped, out)


@app.command()
def predict(
    run: Run,
    images: Images,
    out: Annotated[Path | None, typer.Option(help="A .csv, .json or .parquet file.")] = None,
    batch: Batch = 256,
    device: Device = "auto",
    broken: Broken_ = "skip",
    workers: Workers = None,
    debug: Debug = False,
) -> None:
    """Name the class of every image, with the probability of each class.

    By the classifier that cross-entropy trained, else by the linear probe on the encoder.

    Examples: `contune predict runs/photos new-photos/` · `contune predict runs/photos new-photos/ --out classes.csv`
    """
    from collections import Counter
    from contextlib import nullcontext

    from contune.console import printable, say, show_table
    from contune.data.broken import none_decoded
    from contune.data.out_file import check_out
    from contune.embedding.predictions import predict as classes_of
    from contune.embedding.predictions_file import predictions_file
    from contune.embedding.source import open_source
    from contune.progress import progress

    shown: list[tuple[str, str, str]] = []
    counts: Counter[str] = Counter()
    skipped: list[Broken] = []
    source = open_source(images)
    if out is not None:
        check_out(out, images)
    parts = classes_of(run, source, batch=batch, device=device, broken=broken, workers=workers)
    to_file = predictions_file(out) if out else nullcontext()
    with progress("predict", source.num, unit="images") as advance, to_file as write:
        for part in parts:
            if write is not None:
                write(part)
            counts.update(part.classes)
            skipped += part.broken
            rows = zip(part.paths, part.classes, part.probabilities.max(axis=1, initial=0.0).tolist(), strict=True)
            shown += [(printable(path), name, f"{p:.3f}") for path, name, p in rows][: SHOWN - len(shown)]
            advance(counts.total() + len(skipped), "")
        if not counts:
            raise none_decoded(skipped)
    show_table(("image", "class", "probability"), shown, numbers=("probability",))
    if counts.total() > len(shown):
        say(f"and {counts.total() - len(shown):,} more{'' if out else '; --out classes.csv keeps them all'}")
    say("\n" + ", ".join(f"{name} {num:,}" for name, num in counts.most_common(SHOWN)))
    if out is not None:
        say(f"predictions  {out}")
    _say_skipped(skipped, out)


def _say_skipped(broken: "Sequence[Broken]", out: Path | None) -> None:
    """How many, and a file beside `out` that lists them."""
    if not broken:
        return
    import json

    from contune.console import say
    from contune.files import write_whole

    where = f"such as {broken[0].name!r}, which {broken[0].reason}"
    if out is not None:
        listed = out.with_suffix(".skipped.json")
        write_whole(listed, json.dumps([one._asdict() for one in broken], indent=2) + "\n")
        where += f"; {listed} lists them"
    say(f"left out    {len(broken):,} that cannot be decoded, {where}")
