"""The HTML page: its skeleton, its style, and the few shapes that every section is made of.

Whatever comes from outside (class names, paths, settings) goes through `escape` on its way in.
"""

import html
from importlib import resources
from pathlib import Path
from string import Template
from typing import Literal

_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
$generator
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<link rel="icon" href="data:,">
<title>$title</title>
<style>
$style</style>
</head>
<body>
<main>
$body
</main>
</body>
</html>
""")
_GENERATOR = '<meta name="generator" content="contune {kind}">'
_HEAD_LENGTH = 512
"""Characters in which a page of ours has it."""

Kind = Literal["report", "comparison", "search", "gradients", "experiment"]
"""What a page shows: a command writes over pages of its own kind."""


def escape(value: object) -> str:
    """Text that is safe between tags and inside quotes. File names may hold bytes that are no text at all."""
    shown = (c if c.isprintable() else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in str(value))
    return html.escape("".join(shown))


def shorten(text: str, length: int) -> str:
    """At most `length` characters, from the beginning."""
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def shorten_path(path: str, length: int) -> str:
    """At most `length` characters, from the end, where paths differ."""
    return path if len(path) <= length else "…" + path[len(path) - length + 1 :]


def page(kind: Kind, title: str, body: str) -> str:
    style = resources.files("contune.report").joinpath("report.css").read_text(encoding="utf-8")
    return _PAGE.substitute(title=escape(title), generator=_GENERATOR.format(kind=kind), style=style, body=body)


def is_page(path: Path, kind: Kind) -> bool:
    """Whether `page` made what is in a file, of this kind."""
    with path.open(encoding="utf-8") as file:
        return _GENERATOR.format(kind=kind) in file.read(_HEAD_LENGTH)


def section(name: str, title: str, *parts: str) -> str:
    """`name` is the anchor; `parts` are HTML."""
    body = "\n".join(part for part in parts if part)
    return (
        f'<section id="{name}" aria-labelledby="{name}-title">\n<h2 id="{name}-title">{title}</h2>\n{body}\n</section>'
    )


def lead(text: str) -> str:
    """The sentence under a title that says how to read what follows; `text` is HTML."""
    return f'<p class="lead">{text}</p>'


def missing(why: str) -> str:
    """In the place of a part that this run cannot have; `why` is HTML."""
    return f'<p class="missing">{why}</p>'
