"""`contune embed`."""

from pathlib import Path
from typing import Annotated

import typer

from contune.cli.app import Debug, app
from contune.cli.images import Batch, Broken_, Device, Images, LabelColumn, Run, Workers, check_skipped, say_skipped


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
    label_column: LabelColumn = None,
    debug: Debug = False,
) -> None:
    """Write the embedding of every image to a parquet file.

    The same command again goes on where it was stopped; once it has ended, it writes the file anew.

    Examples: `contune embed runs/digits photos/ --out photos.parquet` ·
    `contune embed runs/photos data.parquet --dtype float16`
    """
    from contune.console import progress, say
    from contune.embedding.parts import has_parts, parts_folder
    from contune.embedding.source import open_source
    from contune.embedding.table import write_embeddings
    from contune.files import check_out

    source = open_source(images, label_column)
    check_out(out, images, ending=".parquet")
    check_skipped(out)
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
    say_skipped(written.broken, out)
