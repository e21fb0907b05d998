"""A table as Markdown, LaTeX and HTML: the same cells, each time in the way of the format."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from contune.analysis.page import escape


@dataclass(frozen=True)
class Cell:
    text: str
    strong: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    title: str
    columns: tuple[str, ...]
    """Titles; the first column names the rows."""
    groups: tuple[tuple[tuple[Cell, ...], ...], ...]
    """Rows of cells, in groups with a line between."""
    numbers: tuple[str, ...] = ()
    """Columns that are set flush right."""
    findings: tuple[str, ...] = ()
    """What its numbers say, in sentences under the table."""
    notes: tuple[str, ...] = ()
    """Sentences below those: how the numbers came to be."""

    @property
    def rows(self) -> list[tuple[Cell, ...]]:
        return [row for group in self.groups for row in group]

    @property
    def sentences(self) -> tuple[str, ...]:
        return (*self.findings, *self.notes)


def to_markdown(table: Table) -> str:
    rule = ["---:" if column in table.numbers else "---" for column in table.columns]
    lines = [_markdown_row(table.columns), _markdown_row(rule)]
    lines += [_markdown_row([_markdown_cell(cell) for cell in row]) for row in table.rows]
    lines += ["", *(f"- {sentence}" for sentence in table.sentences)] if table.sentences else []
    return "\n".join(lines) + "\n"


def to_latex(table: Table) -> str:
    """With booktabs' rules, to be \\input into a paper."""
    alignment = "".join("r" if column in table.numbers else "l" for column in table.columns)
    groups = ["\n".join(_latex_row(row) for row in group) for group in table.groups]
    body = "\n    \\midrule\n".join(groups)
    notes = "\n".join(rf"  \par\footnotesize {latex_text(sentence)}" for sentence in table.sentences)
    return rf"""\begin{{table}}
  \centering
  \caption{{{latex_text(table.title)}}}
  \begin{{tabular}}{{{alignment}}}
    \toprule
{_latex_row([Cell(column) for column in table.columns])}
    \midrule
{body}
    \bottomrule
  \end{{tabular}}
{notes}
\end{{table}}
"""


def to_html(table: Table) -> str:
    """A table element; the page around it has the style."""
    head = "".join(f'<th scope="col"{_html_class(table, column)}>{escape(column)}</th>' for column in table.columns)
    bodies = [f"<tbody>\n{_html_rows(table, group)}\n</tbody>" for group in table.groups]
    notes = "\n".join(f"<li>{escape(sentence)}</li>" for sentence in table.sentences)
    return (
        f'<div class="scroll"><table class="comparison">\n<thead><tr>{head}</tr></thead>\n'
        + "\n".join(bodies)
        + "\n</table></div>"
        + (f'\n<ul class="notes">\n{notes}\n</ul>' if notes else "")
    )


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _markdown_cell(cell: Cell) -> str:
    text = cell.text.replace("|", "\\|")
    return f"**{text}**" if cell.strong else text


def _latex_row(cells: Sequence[Cell]) -> str:
    texts = [rf"\textbf{{{latex_text(cell.text)}}}" if cell.strong else latex_text(cell.text) for cell in cells]
    return "    " + " & ".join(texts) + r" \\"


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--", "−": "$-$", "×": r"$\times$",
    "τ": r"$\tau$", "<": r"$<$", ">": r"$>$",
}  # fmt: skip


def latex_text(text: str) -> str:
    return re.sub("|".join(map(re.escape, _LATEX)), lambda match: _LATEX[match[0]], text)


def _html_class(table: Table, column: str) -> str:
    return ' class="number-cell"' if column in table.numbers else ""


def _html_rows(table: Table, group: Sequence[Sequence[Cell]]) -> str:
    lines = []
    for first, *others in group:
        cells = "".join(
            f"<td{_html_class(table, column)}>{_html_cell(cell)}</td>"
            for column, cell in zip(table.columns[1:], others, strict=True)
        )
        lines.append(f'<tr><th scope="row">{escape(first.text)}</th>{cells}</tr>')
    return "\n".join(lines)


def _html_cell(cell: Cell) -> str:
    return f"<b>{escape(cell.text)}</b>" if cell.strong else escape(cell.text)
