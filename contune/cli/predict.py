"""`contune predict`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from contune.cli.app import Debug, app
from contune.cli.images import Batch, Broken_, Device, Images, LabelColumn, Run, Workers, check_skipped, say_skipped

if TYPE_CHECKING:
    from contune.data.broken import Broken

SHOWN = 20


@app.command()
def predict(
    run: Run,
    images: Images,
    out: Annotated[Path | None, typer.Option(help="A .csv, .json or .parquet file.")] = None,
    batch: Batch = 256,
    device: Device = "auto",
    broken: Broken_ = "skip",
    workers: Workers = None,
    label_column: LabelColumn = None,
    debug: Debug = False,
) -> None:
    """Name the class of every image, with the probability of each class.

    By the classifier that cross-entropy trained, else by the linear probe on the encoder.

    Examples: `contune predict runs/photos new-photos/` · `contune predict runs/photos new-photos/ --out classes.csv`
    """
    from collections import Counter
    from contextlib import nullcontext

    from contune.console import printable, progress, say, show_table
    from contune.data.broken import none_decoded
    from contune.embedding.predictions import predict as classes_of
    from contune.embedding.predictions_file import is_predictions, predictions_file
    from contune.embedding.source import open_source
    from contune.files import check_like, check_out

    shown: list[tuple[str, str, str]] = []
    counts: Counter[str] = Counter()
    skipped: list[Broken] = []
    source = open_source(images, label_column)
    if out is not None:
        check_out(out, images)
        check_like(out, is_predictions)
        check_skipped(out)
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
    say_skipped(skipped, out)
