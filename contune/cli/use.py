"""`contune embed`, `search`, `predict` and `export`: what a trained encoder is for."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from contune.cli import Run, app
from contune.console import plural, say, show_table
from contune.errors import UserError

Images = Annotated[str, Argument(metavar="IMAGES", help="A folder, an image, a CSV or a parquet.", show_default=False)]
Device = Annotated[str, Option(help="auto, cpu or cuda.")]
Batch = Annotated[int, Option(help="Images in a forward pass.")]
OnBroken = Annotated[str, Option("--broken", help="Images that cannot be decoded: skip and list them, or stop.")]
LabelColumn = Annotated[str | None, Option(help="Label column of a CSV or parquet.", show_default="by its name")]
Workers = Annotated[int | None, Option(help="Images decoded at a time.", show_default="one per core")]

MAX_ROWS = 20


@app.command(rich_help_panel="Use")
def embed(
    run: Run,
    images: Images,
    out: Annotated[Path, Option(help="The parquet file: path, label, embedding.")] = Path("embeddings.parquet"),
    dtype: Annotated[str, Option(help="Type of the embeddings: float32 or float16.")] = "float32",
    batch: Batch = 256,
    device: Device = "auto",
    broken: OnBroken = "skip",
    workers: Workers = None,
    label_column: LabelColumn = None,
) -> None:
    """Write the embedding of every image to a parquet file.

    Example:

    `contune embed runs/digits photos/ --out photos.parquet`
    """
    from contune.embedding import write_embeddings

    options = {"batch": batch, "device": device, "broken": broken, "workers": workers}
    began = time.perf_counter()
    num, num_features, skipped = write_embeddings(run, images, out, dtype=dtype, label_column=label_column, **options)
    seconds = time.perf_counter() - began
    say(f"embeddings  {out}: {plural(num, 'image')}, {num_features} features each, {dtype}")
    say(f"took        {seconds:.1f} s, {num / seconds:,.0f} images/s")
    _say_skipped(skipped, out)


@app.command(rich_help_panel="Use")
def search(
    run: Run,
    images: Annotated[
        str, Argument(metavar="IMAGES", help="Images, or the file that `contune embed` wrote.", show_default=False)
    ],
    query: Annotated[str, Argument(metavar="QUERY", help="An image, or a folder of a few.", show_default=False)],
    k: Annotated[int, Option("-k", help="Number of images to find.")] = 10,
    out: Annotated[Path | None, Option(help="An HTML page to show them on.")] = None,
    device: Device = "auto",
    workers: Workers = None,
) -> None:
    """Find the images most similar to another, by the cosine of their embeddings.

    Example:

    `contune search runs/photos photos/ cat.jpg -k 20 --out cats.html`
    """
    from contune.embedding import search as find
    from contune.embedding import write_search_page
    from contune.files import check_like, check_out
    from contune.report.page import GENERATOR

    if out is not None:
        check_out(out, images, endings=[".html"])
        check_like(out, GENERATOR.format(kind="search"))
    skipped: list[Any] = []
    found = find(run, images, query, k=k, device=device, workers=workers, skipped=skipped)
    for one in found:
        rows = [(f"{hit.similarity:.4f}", hit.label or "", hit.path) for hit in one.hits]
        say(f"most similar to {one.query}:")
        show_table(("cosine", "label", "image"), rows, numbers=("cosine",))
    if out is not None:
        write_search_page(out, found, run=str(run), images=images)
        say(f"\npage        {out}")
    _say_skipped(skipped, out)


@app.command(rich_help_panel="Use")
def predict(
    run: Run,
    images: Images,
    out: Annotated[Path | None, Option(help="A .csv, .json or .parquet file.")] = None,
    batch: Batch = 256,
    device: Device = "auto",
    broken: OnBroken = "skip",
    workers: Workers = None,
    label_column: LabelColumn = None,
) -> None:
    """Predict the class of every image, with the probability of each class; with labels, also the accuracy.

    Uses the classifier that cross-entropy trained, else a probe on the encoder's features. After training with several
    labels per image, it predicts the set of labels with a probability of 0.5 or more.

    Example:

    `contune predict runs/photos new-photos/ --out classes.csv`
    """
    from collections import Counter

    from contune.embedding import write_predictions
    from contune.eval.measures import MAP

    found = write_predictions(
        run, images, out, batch=batch, device=device, broken=broken, workers=workers, label_column=label_column
    )
    rows = list(zip(found.paths, found.classes, found.sets, strict=True))[:MAX_ROWS]
    shown = [(path, name, "; ".join(f"{p:.3f}" for p in labels.values())) for path, name, labels in rows]
    show_table(("image", "class", "probability"), shown, numbers=("probability",))
    if len(found.paths) > MAX_ROWS:
        say(f"and {len(found.paths) - MAX_ROWS:,} more{'' if out else '; --out classes.csv keeps them all'}")
    counts = Counter(name for labels in found.sets for name in labels).most_common(MAX_ROWS)
    say("\nimages per class: " + ", ".join(f"{name}: {num:,}" for name, num in counts))
    if measured := found.score():
        value = f"mAP {measured[MAP]:.2f} %" if MAP in measured else f"{measured['top1']:.2f} %"
        say(f"accuracy     {value}, by the labels of {plural(measured['num_images'], 'image')}")
    elif any(found.labels):
        say("accuracy     unknown: the labels of these images are no classes of the run")
    if out is not None:
        say(f"predictions  {out}")
    _say_skipped(found.broken, out)


@app.command(rich_help_panel="Use")
def export(
    run: Run,
    to: Annotated[str, Option(help="timm, safetensors or onnx.", show_default=False)],
    out: Annotated[Path | None, Option(help="The folder to write.", show_default="RUN/FORMAT")] = None,
    push: Annotated[
        str | None, Option(metavar="OWNER/NAME", help="Also upload it to the Hugging Face Hub.", show_default=False)
    ] = None,
    private: Annotated[bool, Option("--private", help="With --push: make the repository private.")] = False,
    license: Annotated[
        str | None, Option(help="License of the weights, such as mit.", show_default="none stated")
    ] = None,
) -> None:
    """Export a trained encoder for timm, PyTorch or ONNX Runtime, with a model card.

    The export is loaded again and compared with the encoder of the run. If features differ, nothing is written.
    `--push` takes its token from HF_TOKEN or from `hf auth login`.

    Examples:

    `contune export runs/digits --to timm`

    `contune export runs/digits --to timm --push me/digits --license mit`
    """
    from contune import hub
    from contune.export import export_run

    if push is not None:
        hub.check_push(push)
    elif private:
        raise UserError("--private needs --push OWNER/NAME")
    folder, deviation = export_run(run, to, out, license=license, repo=push)
    say(f"wrote    {folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}")
    say(f"checked  features differ from the run's by at most {deviation:.1e}")
    say(f"use it   {folder / 'README.md'}")
    if push is not None:
        say(f"pushed   {hub.push(folder, push, private=private)}")
        if license is None:
            say("license  none stated, so others may not use the weights; state one with --license")


def _say_skipped(broken: Sequence[Any], out: Path | None) -> None:
    """Report broken images and list them in a file next to `out`; remove the list of an earlier call."""
    from contune.data.decode import write_broken

    if broken:
        say(f"left out    {plural(len(broken), 'broken image')}, such as {broken[0].name!r}, which {broken[0].reason}")
    if out is not None:
        listed = out.with_name(f"{out.name}.skipped.json")
        listed.unlink(missing_ok=True)
        if broken:
            write_broken(listed, broken)
            say(f"            {listed} lists them")
