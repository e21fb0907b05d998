"""Which classes are taken for which: a heat map of the most confused, and the most frequent mistakes.

Shapes: K classes, row the true one, column the predicted one.
"""

import torch
from torch import Tensor

from contune.analysis.measured import Measured
from contune.analysis.page import escape, lead, missing, section, shorten
from contune.analysis.thumbnails import thumbnail
from contune.console import plural
from contune.eval.evaluate import confusion

MAX_CLASSES = 10
MAX_MISTAKES = 10


def confusions(measured: Measured, predictor: str) -> str:
    """`predictor` says whose predictions these are."""
    assert measured.labels is not None
    assert measured.predicted is not None
    num_wrong = int(measured.wrong().sum())
    if num_wrong == 0:
        why = f"No image was misclassified by the {escape(predictor)}."
        return section("confusions", "Confusions", missing(why))
    counts_KK = confusion(measured.predicted, measured.labels, len(measured.class_names))
    shown = worst_classes(counts_KK)
    text = f"The {escape(predictor)} misclassified {num_wrong:,} of {plural(len(measured), 'image')}. "
    if len(shown) < len(measured.class_names):
        text += f"Here are the {len(shown)} most confused of {len(measured.class_names):,} classes. "
    text += "A row is what the images are, a column what they were taken for."
    heat_map = f'<div class="scroll">{_heat_map(counts_KK, shown, measured.class_names)}</div>'
    return section(
        "confusions",
        "Confusions",
        lead(text),
        f'<div class="confusions">{heat_map}\n{_mistakes(measured, counts_KK)}</div>',
    )


def worst_classes(counts_KK: Tensor) -> list[int]:
    """The classes that most mistakes touch, from either side, in the order of the data set."""
    wrong_KK = counts_KK - torch.diag(counts_KK.diag())
    touched_K = wrong_KK.sum(dim=0) + wrong_KK.sum(dim=1)
    ranked = touched_K.argsort(descending=True, stable=True)[:MAX_CLASSES].tolist()
    return sorted(k for k in ranked if touched_K[k] > 0)


def frequent_mistakes(counts_KK: Tensor) -> list[tuple[int, int, int]]:
    """(true class, taken for, how often), the most frequent first; among equals the larger share first."""
    wrong_KK = counts_KK - torch.diag(counts_KK.diag())
    totals = counts_KK.sum(dim=1).tolist()
    found = [(k, j, int(wrong_KK[k, j])) for k, j in wrong_KK.nonzero().tolist()]
    return sorted(found, key=lambda m: (-m[2], totals[m[0]], m[0], m[1]))[:MAX_MISTAKES]


def _heat_map(counts_KK: Tensor, shown: list[int], class_names: tuple[str, ...]) -> str:
    names = [f'<span title="{escape(class_names[k])}">{escape(shorten(class_names[k], 14))}</span>' for k in shown]
    others_K = counts_KK.sum(dim=1) - counts_KK[:, shown].sum(dim=1)
    any_other = bool(others_K[shown].any())
    heads = [*names, "<span>other</span>"] if any_other else names
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    rows = []
    for k, name in zip(shown, names, strict=True):
        total = int(counts_KK[k].sum())
        cells = "".join(_cell(int(counts_KK[k, j]), total, right=k == j) for j in shown)
        if any_other:
            cells += _cell(int(others_K[k]), total, right=False)
        rows.append(f'<tr><th scope="row">{name}</th>{cells}</tr>')
    body = "\n".join(rows)
    upright = " upright" if any_other or max(len(class_names[k]) for k in shown) > 3 else ""
    return f"""<table class="heat{upright}">
<caption>Images by true class (rows) and predicted class (columns)</caption>
<thead><tr><td></td>{head}</tr></thead>
<tbody>
{body}
</tbody>
</table>"""


def _cell(count: int, total: int, *, right: bool) -> str:
    """Mistakes are few where an encoder is good: the square root lets them be seen, below what hides the digits."""
    heat = 65 * (count / total) ** 0.5 if total else 0.0
    kind = "right" if right else "wrong" if count else "none"
    return f'<td class="{kind}" style="--heat:{heat:.0f}%">{count or "·"}</td>'


def _mistakes(measured: Measured, counts_KK: Tensor) -> str:
    """Each with the first image it happened to."""
    assert measured.labels is not None
    totals = counts_KK.sum(dim=1).tolist()
    items = []
    for k, j, count in frequent_mistakes(counts_KK):
        index = int(((measured.labels == k) & (measured.predicted == j)).nonzero()[0])
        is_class, taken_for = escape(measured.class_names[k]), escape(measured.class_names[j])
        picture = thumbnail(measured.images, index, measured.channels, escape(measured.images.names[index]))
        words = f"<b>{is_class}</b> taken for <b>{taken_for}</b>: {count:,} of {totals[k]:,}"
        items.append(f"<li>{picture}<span>{words}</span></li>")
    listed = "\n".join(items)
    return f'<div><h3>Most frequent</h3><ol class="mistakes">\n{listed}\n</ol></div>'
