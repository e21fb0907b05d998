"""`contune export`."""

from pathlib import Path
from typing import Annotated

import typer

from contune.cli.app import Debug, app


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="A run folder.", show_default=False)],
    to: Annotated[str, typer.Option(help="timm, safetensors or onnx.", show_default=False)],
    out: Annotated[Path | None, typer.Option(help="The folder to write; RUN/FORMAT if not given.")] = None,
    half: Annotated[bool, typer.Option("--half", help="For onnx: weights in half precision.")] = False,
    debug: Debug = False,
) -> None:
    """Write a trained encoder for timm, PyTorch or ONNX Runtime, with a model card.

    What is written is loaded again and compared with the run's encoder on photos; if its features differ,
    nothing is left behind.

    Examples: `contune export runs/digits --to timm` · `contune export runs/photos --to onnx --half --out photos-onnx`
    """
    from contune.console import say
    from contune.export import export_run

    exported = export_run(run, to, out, half=half)
    say(f"wrote    {exported.folder}: {', '.join(exported.files)}")
    say(f"checked  features as in the run, to {exported.deviation:.1e}")
    say(f"use it   {exported.folder / 'README.md'}")
