"""Drawings inside a page: as part of it, in its colours and its type, instead of a picture beside it."""

import re
from collections.abc import Mapping
from io import StringIO

from matplotlib.figure import Figure


def svg_text(figure: Figure, *, transparent: bool = True) -> str:
    """The SVG document of a figure, whose bytes depend on the figure only."""
    out = StringIO()
    nobody = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(out, format="svg", transparent=transparent, metadata=nobody)
    return out.getvalue()


def inline_svg(svg: str, description: str, colours: Mapping[str, str]) -> str:
    """Out of a whole SVG document, an element that takes its size from the page, and its colours where these say."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)  # the same in every drawing, and nothing refers to them
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)  # would hold for the whole page
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    for drawn, shown in colours.items():
        svg = svg.replace(drawn, shown)
    return svg.replace("<svg", f'<svg role="img" aria-label="{description}"', 1)
