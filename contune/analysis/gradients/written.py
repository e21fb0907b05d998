"""The files that an analysis leaves."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.figure import Figure

from contune.analysis.colours import PAGE_COLOURS
from contune.analysis.gradients.anchor_figure import draw_anchors
from contune.analysis.gradients.figure import draw
from contune.analysis.gradients.page import analysis_page
from contune.analysis.gradients.style import STYLE
from contune.analysis.svg import inline_svg, svg_text
from contune.errors import UserError
from contune.files import unwritable, whole_file, write_whole

ANCHORS_FILE = "gradients-anchors.parquet"
DPI = 160


class Analysis(NamedTuple):
    """What `contune analyze` finds."""

    numbers: dict[str, Any]
    """What gradients.json holds: means over anchors, and how these are spread."""
    anchors: pa.Table
    """A row for each anchor: batch, image, view, label, and the columns that `responses_by_anchor` gives."""


def write_analysis(folder: Path, analysis: Analysis) -> Path:
    """Writes all files into `folder`, which is made if need be."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; give a folder with --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(folder / "gradients.json", error) from error
    found = analysis.numbers
    write_whole(folder / "gradients.json", json.dumps(found, indent=2) + "\n")
    with whole_file(folder / ANCHORS_FILE) as part:
        pq.write_table(analysis.anchors, part)
    drawing = _write_drawing(draw(found), folder / "gradients", "Gradient responses by similarity, by k1 and by k2")
    by_anchor = _write_drawing(
        draw_anchors(found), folder / "gradients-anchors", "Gradient responses of anchors, sorted, and their terms"
    )
    write_whole(folder / "gradients.html", analysis_page(found, drawing, by_anchor, ANCHORS_FILE))
    return folder


def _write_drawing(figure: Figure, path: Path, description: str) -> str:
    """As .svg and .png; what comes back is for a page."""
    with matplotlib.rc_context(STYLE | {"svg.hashsalt": f"contune {path.name}"}):  # no two on a page share a name
        write_whole(path.with_suffix(".svg"), svg_text(figure, transparent=False))
        with whole_file(path.with_suffix(".png")) as part:
            figure.savefig(part, format="png", dpi=DPI)
        return inline_svg(svg_text(figure), description, PAGE_COLOURS)
