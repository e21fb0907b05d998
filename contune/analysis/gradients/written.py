"""The files that an analysis leaves."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.figure import Figure

from contune.analysis.gradients.anchor_figure import draw_anchors
from contune.analysis.gradients.figure import draw
from contune.analysis.gradients.page import analysis_page
from contune.analysis.gradients.style import STYLE
from contune.errors import UserError
from contune.files import unwritable, whole_file, write_whole
from contune.report.style import PAGE_COLORS, inline_svg, svg_text
from contune.run import RunFolder

NUMBERS_FILE, ANCHORS_FILE, PAGE_FILE = "gradients.json", "gradients-anchors.parquet", "gradients.html"
FILES = (
    NUMBERS_FILE,
    ANCHORS_FILE,
    PAGE_FILE,
    *(f"gradients{part}.{end}" for part in ("", "-anchors") for end in ("png", "svg")),
)
DPI = 160


class Analysis(NamedTuple):
    """What `contune analyze` finds."""

    numbers: dict[str, Any]
    """What gradients.json holds: means over anchors, and how these are spread."""
    anchors: pa.Table
    """A row for each anchor: batch, image, view, label, and the columns that `responses_by_anchor` gives."""


def check_place(folder: Path, run: Path) -> None:
    """Whether the analysis of `run` may be written to `folder`: not where another run is, or an analysis of one."""
    if folder.resolve() == run.resolve():
        return
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; give a folder with --out")
    if RunFolder(folder).config_file.exists():
        raise UserError(f"{folder} is the folder of another run than {run}; give another with --out")
    of = _analysed_in(folder)
    if of is not None and of.resolve() != run.resolve():
        raise UserError(f"{folder} holds the analysis of {of}, not of {run}; give another folder with --out")


def _analysed_in(folder: Path) -> Path | None:
    """The run whose analysis a folder holds; None where there is none."""
    there = [folder / name for name in FILES if (folder / name).exists()]
    if not there:
        return None
    try:
        return Path(json.loads((folder / NUMBERS_FILE).read_text(encoding="utf-8"))["run"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise UserError(f"{there[0]} is not what this command wrote; give another folder with --out") from None


def write_analysis(folder: Path, analysis: Analysis) -> Path:
    """Writes all files into `folder`, which is made if need be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(folder / NUMBERS_FILE, error) from error
    found = analysis.numbers
    write_whole(folder / NUMBERS_FILE, json.dumps(found, indent=2) + "\n")
    with whole_file(folder / ANCHORS_FILE) as part:
        pq.write_table(analysis.anchors, part)
    drawing = _write_drawing(draw(found), folder / "gradients", "Gradient responses by similarity, by k1 and by k2")
    by_anchor = _write_drawing(
        draw_anchors(found), folder / "gradients-anchors", "Gradient responses of anchors, sorted, and their terms"
    )
    write_whole(folder / PAGE_FILE, analysis_page(found, drawing, by_anchor, ANCHORS_FILE))
    return folder


def _write_drawing(figure: Figure, path: Path, description: str) -> str:
    """As .svg and .png; what comes back is for a page."""
    with matplotlib.rc_context(STYLE | {"svg.hashsalt": f"contune {path.name}"}):  # no two on a page share a name
        write_whole(path.with_suffix(".svg"), svg_text(figure, transparent=False))
        with whole_file(path.with_suffix(".png")) as part:
            figure.savefig(part, format="png", dpi=DPI)
        return inline_svg(svg_text(figure), description, PAGE_COLORS)
