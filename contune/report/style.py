"""The one plot style: fixed color and marker per method, quiet axes, and drawings that follow a page's colors."""

import re
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any, Literal, NamedTuple

import matplotlib
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from contune.files import atomic_file, write_atomic

INK, MUTED, LINE = "#22252b", "#676d78", "#e4e2dc"
"""Text, secondary text and grid."""
BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY = "#0072b2", "#d55e00", "#009e73", "#e69f00", "#cc79a7", "#56b4e9"
"""Okabe and Ito's palette, which color-blind readers can tell apart."""
PALETTE = (BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY)
"""For runs that share a method."""
PAGE_COLORS = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    LINE: "var(--line)",
    BLUE: "var(--accent)",
    VERMILLION: "var(--warm)",
}
"""Colors of drawings that a page replaces by its own, which have a light and a dark form."""
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "contune",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "text.parse_math": False,
    "axes.labelcolor": MUTED,
    "path.simplify": False,
}
"""For `matplotlib.rc_context`."""


class MethodStyle(NamedTuple):
    """How every page and figure names and draws a method. No two methods share both color and marker."""

    title: str
    color: str
    marker: str


METHOD_STYLES = {
    "tcl": MethodStyle("TCL", BLUE, "o"),
    "supcon": MethodStyle("SupCon", VERMILLION, "D"),
    "cross-entropy": MethodStyle("Cross-entropy", GREEN, "^"),
    "simclr": MethodStyle("SimCLR", ORANGE, "s"),
    "tcl auto": MethodStyle("TCL auto", PURPLE, "p"),
    "tcl, k1 = 500": MethodStyle("TCL, k1 = 500", BLUE, "s"),
    "tcl, k1 = 5000": MethodStyle("TCL, k1 = 5000", INK, "o"),
    "sincere": MethodStyle("SINCERE", SKY, "X"),
    "eps-supinfonce": MethodStyle("ε-SupInfoNCE", ORANGE, "P"),
    "dcl": MethodStyle("DCL", MUTED, "v"),
    "triplet": MethodStyle("Triplet", PURPLE, "v"),
    "npair": MethodStyle("N-pair", MUTED, "P"),
    "dino": MethodStyle("DINO", PURPLE, "o"),
    "swav": MethodStyle("SwAV", GREEN, "D"),
    "byol": MethodStyle("BYOL", SKY, "^"),
    "simsiam": MethodStyle("SimSiam", ORANGE, "v"),
    "moco-v2": MethodStyle("MoCo v2", VERMILLION, "P"),
    "ressl": MethodStyle("ReSSL", BLUE, "X"),
    "vicreg": MethodStyle("VICReg", PURPLE, "s"),
    "barlow-twins": MethodStyle("Barlow Twins", GREEN, "P"),
    "w-mse": MethodStyle("W-MSE", SKY, "v"),
    "arb": MethodStyle("ARB", MUTED, "^"),
}
"""By the name of `method.name`; `tcl auto` is TCL with an automatic k1."""


def method_style(name: str) -> MethodStyle:
    """Of a method by its name or its title. `SupCon, sampler` looks like SupCon; an unknown one is black."""
    key = name.lower().replace("ε", "eps")
    like = METHOD_STYLES.get(re.split(",| plus ", key)[0], MethodStyle(name, INK, "o"))
    return METHOD_STYLES.get(key, like._replace(title=name))


def run_style(settings: Mapping[str, Any]) -> MethodStyle:
    """Of a run by its `method.*` settings: TCL with an automatic k1 is TCL auto."""
    style = method_style("tcl auto" if settings.get("k1") == "auto" else settings["name"])
    return style._replace(title=f"{style.title} plus cross-entropy") if settings.get("cross_entropy") else style


def quiet(axes: Axes, *, grid: Literal["x", "y", "both"], labelcolor: str = MUTED) -> None:
    """No frame, no tick marks, and a light grid below the data."""
    axes.tick_params(length=0, labelcolor=labelcolor, labelsize=9, pad=4)
    axes.grid(axis=grid, color=LINE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_facecolor("none")
    for side in axes.spines.values():
        side.set_visible(False)


def save_figure(figure: Figure, path: Path) -> None:
    """As .png and as .svg, for a `path` without ending."""
    with matplotlib.rc_context(STYLE), atomic_file(path.with_suffix(".png")) as part:
        figure.savefig(part, format="png", dpi=160)
        write_atomic(path.with_suffix(".svg"), svg_text(figure, transparent=False))


def svg_text(figure: Figure, *, transparent: bool = True) -> str:
    """The SVG document of a figure. Its bytes depend on the figure alone."""
    out = StringIO()
    no_metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(out, format="svg", transparent=transparent, metadata=no_metadata)
    return out.getvalue()


def inline_svg(figure: Figure, description: str) -> Markup:
    """A figure as an element of a page: sized by the page and in its colors."""
    svg = svg_text(figure)
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # ids repeat in every drawing and nothing refers to them
    svg = re.sub(r"<style.*?</style>|<!--.*?-->\s*", "", svg, flags=re.DOTALL)  # a style would apply to the whole page
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*" height="[^"]*"', r"\1", svg)
    for drawn, shown in PAGE_COLORS.items():
        svg = svg.replace(drawn, shown)
    return Markup(svg.replace("<svg", f'<svg role="img" aria-label="{escape(description)}"', 1))
