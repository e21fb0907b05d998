"""The same cells in three formats, whatever characters are in them."""

import re

from contune.experiments.table import Cell, Table, latex_text, to_html, to_latex, to_markdown

TABLE = Table(
    title="Losses & others",
    columns=("method", "top-1 %"),
    groups=(
        ((Cell("a_b"), Cell("97.00 ± 0.50", strong=True)), (Cell("<x> | y"), Cell("–"))),
        ((Cell("baseline"), Cell("−3")),),
    ),
    numbers=("top-1 %",),
    notes=("5 % of #1.",),
)


def test_markdown() -> None:
    assert to_markdown(TABLE) == (
        "| method | top-1 % |\n| --- | ---: |\n| a_b | **97.00 ± 0.50** |\n| <x> \\| y | – |\n| baseline | −3 |\n"
        "\n- 5 % of #1.\n"
    )


def test_latex_has_a_rule_between_groups_and_no_bare_special_characters() -> None:
    text = to_latex(TABLE)
    assert r"\caption{Losses \& others}" in text
    assert r"\begin{tabular}{lr}" in text
    assert r"a\_b & \textbf{97.00 $\pm$ 0.50} \\" in text
    assert r"$<$x$>$ | y & -- \\" in text
    assert text.count(r"\midrule") == 2
    assert r"baseline & $-$3 \\" in text
    assert text.isascii()
    assert not re.search(r"(?<!\\)[%#_]", text)


def test_latex_of_a_backslash_is_not_escaped_twice() -> None:
    assert latex_text("\\{") == r"\textbackslash{}\{"


def test_html_escapes_and_aligns() -> None:
    text = to_html(TABLE)
    assert '<th scope="col" class="number-cell">top-1 %</th>' in text
    assert '<th scope="row">&lt;x&gt; | y</th><td class="number-cell">–</td>' in text
    assert "<b>97.00 ± 0.50</b>" in text
    assert text.count("<tbody>") == 2
    assert "<li>5 % of #1.</li>" in text
    assert "<ul" not in to_html(Table(title="", columns=("method",), groups=()))
