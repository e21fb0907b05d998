"""What a report shows of the training and of the evaluated images, each part as HTML.

Shapes: M images of the evaluated split, N of them on the map, Q queries, K classes, D features.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple
from unicodedata import east_asian_width

import matplotlib
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from torch import Tensor

from contune.console import plural
from contune.data.images import ImageSet
from contune.eval.measures import MEASURES
from contune.report.page import escape, missing, section, shorten, shorten_path, table, thumbnail
from contune.report.style import METHOD_STYLES, MUTED, PAGE_COLORS, STYLE, MethodStyle, inline_svg, quiet, svg_text

CURVE_POINTS = 400
FEW_POINTS = 12
"""Curves of at most so many points show each of them."""
CURVE_TITLES = {
    "loss": "Loss",
    "lr": "Learning rate",
    "views_per_second": "Views per second",
    "train_top1": "Training accuracy, %",
    "online_top1": "Online probe accuracy, %",
    "online_loss": "Online probe loss",
    "positive_gradient": "Pull of positives",
    "negative_gradient": "Push of negatives",
    "theorem1_share": "Theorem 1 holds, %",
}
PERCENT = ("top1", "theorem1_share")
"""How the names of metrics end that are shares."""
HEAT_CLASSES = 10
MOST_MISTAKES = 10
BAR_CLASSES = 30
MAP_POINTS = 2000
NAMED_CLASSES = 20
NUM_COLORS = 10
WIDTH, HEIGHT, MARGIN = 760, 600, 24
FONT_SIZE = 26
"""The largest that page.css gives to names on a map."""
NUM_QUERIES, NUM_NEIGHBORS = 8, 6
LONG_NAME = 6
"""Longer class names do not fit below one of six pictures in a row."""


@dataclass(frozen=True, eq=False)
class Evaluated:
    """The evaluated images with their features and predictions."""

    images: ImageSet
    channels: int
    class_names: tuple[str, ...]
    features_MD: Tensor
    predicted_M: Tensor | None
    """Class numbers; None without labels or probe."""
    predicted_by: str
    """The measure that predicted them."""

    @property
    def labels(self) -> Tensor | None:
        return self.images.labels

    def wrong(self) -> Tensor:
        """bool (M,): misclassified."""
        if self.labels is None or self.predicted_M is None:
            return torch.zeros(len(self.images), dtype=torch.bool)
        return self.labels != self.predicted_M

    def class_of(self, index: int) -> str | None:
        return None if self.labels is None else self.class_names[int(self.labels[index])]

    def mistaken_for(self, index: int) -> str | None:
        """The class that was predicted wrongly."""
        if self.labels is None or self.predicted_M is None or self.labels[index] == self.predicted_M[index]:
            return None
        return self.class_names[int(self.predicted_M[index])]


def evenly_spaced(num: int, most: int) -> Tensor:
    """At most `most` positions out of `num`."""
    return torch.arange(num) if num <= most else torch.arange(most) * num // most


class Logged(NamedTuple):
    """The metrics of a run, and how its curves are drawn."""

    metrics: list[dict[str, float]]
    style: MethodStyle
    dash: tuple[float, ...] = ()


def curves(runs: Sequence[Logged], legend: str = "", colors: Mapping[str, str] = PAGE_COLORS) -> str:
    """One drawing per logged metric: the loss first, what methods add next; rate and speed of a single run last."""
    names = {name for run in runs for line in run.metrics for name in line if not name.startswith("supcon_")}
    names -= {"step", "epoch"} if len(runs) == 1 else {"step", "epoch", "lr", "views_per_second"}
    axis = "epoch" if all("epoch" in line for run in runs for line in run.metrics) else "step"
    figures = []
    for name in sorted(names, key=lambda name: ({"loss": 0, "lr": 2, "views_per_second": 3}.get(name, 1), name)):
        title, bold = escape(CURVE_TITLES.get(name, name.replace("_", " ").capitalize())), ""
        lines = [(xy_N2, run) for run in runs if len(xy_N2 := logged_points(run.metrics, name, axis))]
        num_bad = sum(name in line for run in runs for line in run.metrics) - sum(len(xy_N2) for xy_N2, _ in lines)
        note = f'<p class="note">{plural(num_bad, "value")} not finite and left out.</p>' if num_bad else ""
        if len(runs) == 1 and lines:
            y_N = lines[0][0][:, 1]
            bold = f" <b>{number(y_N.max() if name == 'lr' else y_N[-1])}</b>"
            supcon_N2 = logged_points(runs[0].metrics, f"supcon_{name}", axis)
            lines += [(supcon_N2, Logged([], METHOD_STYLES["supcon"], (4, 2)))] if len(supcon_N2) else []
        ends = ", ".join(f"{run.style.title} {number(xy_N2[-1, 1])}" for xy_N2, run in lines[:4])
        svg = draw_curves(name, axis, lines, f"{title} by {axis}; at the end {ends}", colors) if lines else ""
        figures.append(f"<figure><figcaption>{title}{bold}</figcaption>{svg}{note}</figure>")
    if not figures:
        return section("curves", "Training", "", missing("Nothing was logged yet."))
    lead = "In bold: the last value; for the learning rate the highest." if len(runs) == 1 else "One line per run."
    if "positive_gradient" in names:
        lead += " Pull and push are the mean coefficients of positive and negative pairs in an anchor’s gradient."
    return section("curves", "Training", lead, legend, '<div class="curves">', *figures, "</div>")


def logged_points(metrics: list[dict[str, float]], name: str, axis: str) -> np.ndarray:
    """(N, 2): the finite values of a metric over epochs or steps, shares in percent."""
    scale = 100 if name.endswith(PERCENT) else 1
    found = [(line[axis], scale * line[name]) for line in metrics if isfinite(line.get(name, np.nan))]
    return np.array(found).reshape(-1, 2)


def draw_curves(
    name: str, axis: str, lines: Sequence[tuple[np.ndarray, Logged]], description: str, colors: Mapping[str, str]
) -> str:
    """An SVG element. Long curves are drawn as means of neighboring points."""
    with matplotlib.rc_context(STYLE | {"svg.hashsalt": f"contune {name}"}):
        figure = Figure(figsize=(3.6, 2.1), layout="constrained")
        axes = figure.add_subplot()
        quiet(axes, grid="y")
        for xy_N2, run in lines:
            num = len(xy_N2)
            starts = np.arange(0, num, -(-num // CURVE_POINTS))
            x_N, y_N = (np.add.reduceat(xy_N2, starts) / np.diff(np.append(starts, num))[:, None]).T
            dots = 4.5 if num == 1 else 3.0 if num <= FEW_POINTS else 0.0
            linestyle, (title, color, marker) = (0, run.dash) if run.dash else "-", run.style
            axes.plot(x_N, y_N, color=color, linewidth=1.7, linestyle=linestyle, marker=marker, markersize=dots,
                      label=title)  # fmt: skip
        if not lines[-1][1].metrics:  # SupCon on the embeddings of another run
            axes.legend(frameon=False, fontsize=8.5, labelcolor=MUTED)
        axes.set_xlabel(axis)
        places = np.unique(np.concatenate([xy_N2[:, 0] for xy_N2, _ in lines]))
        if len(places) == 1:  # a single tick; automatic ones would name places around it
            axes.set_xticks(places)
        else:
            axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
        if name in ("lr", "views_per_second"):
            axes.set_ylim(0, 1.08 * max(xy_N2[:, 1].max() for xy_N2, _ in lines) or 1)
        return inline_svg(svg_text(figure), description, colors)


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def confusions(evaluated: Evaluated) -> str:
    """A heat map of the most confused classes, and the most frequent mistakes with an image of each."""
    labels_M, predicted_M, names = evaluated.labels, evaluated.predicted_M, evaluated.class_names
    if labels_M is None or predicted_M is None:
        why = "Confusions need a linear probe. <code>eval.linear=none</code> turned it off."
        return section("confusions", "Confusions", "", missing(why))
    predictor = escape(MEASURES[evaluated.predicted_by].title.lower())
    counts_KK = (labels_M * len(names) + predicted_M).bincount(minlength=len(names) ** 2).view(len(names), -1)
    wrong_KK = counts_KK - torch.diag(counts_KK.diag())
    num_wrong = int(wrong_KK.sum())
    if not num_wrong:
        return section("confusions", "Confusions", "", missing(f"The {predictor} misclassified no image."))
    touched_K = wrong_KK.sum(dim=0) + wrong_KK.sum(dim=1)
    ranked = touched_K.argsort(descending=True, stable=True)[:HEAT_CLASSES].tolist()
    shown = sorted(k for k in ranked if touched_K[k] > 0)  # in the order of the dataset
    lead = f"The {predictor} misclassified {num_wrong:,} of {len(labels_M):,} images."
    if len(shown) < len(names):
        lead += f" Shown: the {len(shown)} most confused of {len(names):,} classes."
    heads = [f'<span title="{escape(names[k])}">{escape(shorten(names[k], 14))}</span>' for k in shown]
    totals_K, rows = counts_KK.sum(dim=1), []
    for k, head in zip(shown, heads, strict=True):
        cells = []
        for j in shown:
            count = int(counts_KK[k, j])
            kind = "right" if k == j else "wrong" if count else "none"
            # The square root makes rare mistakes visible; 65 % keeps the digits readable.
            heat = 65 * (count / max(1, int(totals_K[k]))) ** 0.5
            cells.append(f'<span class="{kind}" style="--heat:{heat:.0f}%">{count or "·"}</span>')
        rows.append((head, *cells))
    look = "heat upright" if max(len(names[k]) for k in shown) > 3 else "heat"
    heat_map = f'<div class="scroll">{table(look, ("<small>true, predicted</small>", *heads), rows)}</div>'
    items = []
    frequent = sorted(wrong_KK.nonzero().tolist(), key=lambda m: (-int(wrong_KK[m[0], m[1]]), int(totals_K[m[0]]), m))
    for k, j in frequent[:MOST_MISTAKES]:
        index = int(((labels_M == k) & (predicted_M == j)).nonzero()[0])
        picture = thumbnail(evaluated.images, index, evaluated.channels, escape(evaluated.images.names[index]))
        words = f"<b>{escape(names[k])}</b> → <b>{escape(names[j])}</b>: {wrong_KK[k, j]:,} of {totals_K[k]:,}"
        items.append(f"<li>{picture}<span>{words}</span></li>")
    mistakes = f'<div><h3>Most frequent</h3><ol class="mistakes">\n{chr(10).join(items)}\n</ol></div>'
    return section("confusions", "Confusions", lead, f'<div class="confusions">{heat_map}\n{mistakes}</div>')


def per_class(evaluated: Evaluated, measure: Mapping[str, Any]) -> str:
    """Accuracy by class as bars; of many classes the worst."""
    assert evaluated.labels is not None
    accuracy: dict[str, float] = measure["per_class"]
    counts = evaluated.labels.bincount(minlength=len(evaluated.class_names)).tolist()
    num_images = dict(zip(evaluated.class_names, counts, strict=True))
    lead = f"{MEASURES[measure['name']].title} (<code>{escape(measure['name'])}</code>)"
    shown = list(accuracy)
    if len(shown) > BAR_CLASSES:
        shown = sorted(accuracy, key=lambda name: (accuracy[name], name))[:BAR_CLASSES]
        lead += f": the worst {BAR_CLASSES} of {len(accuracy)} classes"
    rows = [
        (
            f'<span title="{escape(name)}">{escape(name)}</span>',
            f'<div class="bar" style="--share:{accuracy[name]:.1f}%"></div>',
            f"{accuracy[name]:.1f}",
            f"{num_images.get(name, 0):,}",
        )
        for name in shown
    ]
    parts = [table("bars", ("Class", "", "%", "images"), rows)]
    empty = [name for name in num_images if name not in accuracy]
    if empty:
        named = escape(shorten(", ".join(empty), 200))
        parts.append(f'<p class="note">{len(empty)} classes without images in this split: {named}</p>')
    return section("classes", "Accuracy by class", lead + ".", *parts)


def embedding_map(evaluated: Evaluated) -> str:
    """The map with its explanation."""
    num = min(MAP_POINTS, len(evaluated.images))
    lead = f"t-SNE of {num:,} images by cosine similarity. Hover over a point for its name."
    lead += " A ring marks a misclassified image." if evaluated.predicted_M is not None else ""
    lead += " Distances between groups mean nothing."
    drawing = map_drawing(evaluated)
    return section("map", "Map of the embeddings", lead if drawing.startswith("<svg") else "", drawing)


def map_drawing(evaluated: Evaluated, most: int = MAP_POINTS) -> str:
    """The map alone, or why there is none: a mark per image, and the names of up to 20 classes."""
    chosen_N = evenly_spaced(len(evaluated.images), most)
    features_ND = evaluated.features_MD[chosen_N]
    if len(features_ND) < 5:
        return missing(f"A map needs at least 5 images; there are {len(features_ND)}.")
    if not features_ND.isfinite().all():
        return missing("The features are not finite: training has diverged. Try a lower <code>optim.lr</code>.")
    if F.normalize(features_ND, dim=1).std(dim=0).max() < 1e-6:
        return missing("All embeddings point in one direction: the encoder has collapsed.")
    xy_N2 = project(features_ND)
    low_2, high_2 = xy_N2.min(axis=0), xy_N2.max(axis=0)
    scale = (np.array([WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN]) / np.maximum(high_2 - low_2, 1e-9)).min()
    xy_N2 = (xy_N2 - (low_2 + high_2) / 2) * scale + np.array([WIDTH, HEIGHT]) / 2
    wrong_N, num_classes = evaluated.wrong()[chosen_N].tolist(), len(evaluated.class_names)
    radius = 3.4 if len(chosen_N) <= 1000 else 2.6
    parts = []
    for place in sorted(range(len(chosen_N)), key=lambda n: wrong_N[n]):  # misclassified images on top
        index = int(chosen_N[place])
        kind, mistaken = evaluated.class_of(index), evaluated.mistaken_for(index)
        what = kind if mistaken is None else f"{kind}, taken for {mistaken}"
        title = escape(" · ".join(filter(None, (what, shorten_path(str(evaluated.images.names[index]), 60)))))
        label = 0 if evaluated.labels is None else int(evaluated.labels[index])
        look = f'class="k{label}{" wrong" if wrong_N[place] else ""}"'
        if num_classes > NUM_COLORS:  # a hue for each class instead
            look += f' style="--k:hsl({360 * label // num_classes} 60% 52%)"'
        x, y = xy_N2[place]
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" {look}><title>{title}</title></circle>')
    if evaluated.labels is not None and num_classes <= NAMED_CLASSES:
        parts += _map_names(evaluated.labels[chosen_N].numpy(), xy_N2, evaluated.class_names)
    description = f"Scatter plot of {len(chosen_N)} embeddings; similar images are close together"
    head = f'<svg class="map" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{description}">'
    return "\n".join([head, *parts, "</svg>"])


def project(features_ND: Tensor) -> np.ndarray:
    """t-SNE of the directions of the features, (N, 2); the same numbers on every call."""
    from sklearn.decomposition import PCA  # slow to import
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    z_ND: np.ndarray = F.normalize(features_ND.float(), dim=1).numpy()
    num, width = z_ND.shape
    if width > 50:
        z_ND = PCA(n_components=min(50, num), random_state=0).fit_transform(z_ND)
    # From a PCA start the second half of scikit-learn's 1,000 iterations hardly changes the map.
    init = "pca" if width > 1 else "random"
    tsne = TSNE(perplexity=min(30.0, (num - 1) / 3), init=init, max_iter=500, random_state=0)
    # One thread adds in one order, so the bytes are reproducible; it is also faster while others use the cores.
    with threadpool_limits(1):
        xy_N2: np.ndarray = tsne.fit_transform(z_ND)
    return xy_N2


def _map_names(labels_N: np.ndarray, xy_N2: np.ndarray, class_names: Sequence[str]) -> list[str]:
    """Each class's name on its most central point, moved by a few lines where it would cover another name."""
    line_height, edge = 1.15 * FONT_SIZE, 8
    placed: list[tuple[float, float, float]] = []
    parts = []
    for label in np.unique(labels_N):
        own_P2 = xy_N2[labels_N == label]
        x, y = own_P2[np.abs(own_P2 - np.median(own_P2, axis=0)).sum(axis=1).argmin()]
        text = shorten(class_names[label], 18)
        # An upper bound, as the reader's font is unknown.
        wide = sum(1.0 if east_asian_width(letter) in "WF" or letter.isupper() else 0.68 for letter in text)
        half = FONT_SIZE * wide / 2
        x = min(max(x, edge + half), WIDTH - edge - half)
        y = min(max(y + FONT_SIZE / 4, line_height), HEIGHT - edge)
        for lines in (0, 1, -1, 2, -2, 3, -3, 4, -4):
            moved = y + lines * line_height
            is_free = all(abs(x - a) >= half + c or abs(moved - b) >= line_height for a, b, c in placed)
            if line_height <= moved <= HEIGHT - edge and is_free:
                y = moved
                break
        placed.append((x, y, half))
        parts.append(f'<text x="{x:.0f}" y="{y:.0f}">{escape(text)}</text>')
    return parts


def neighbors(evaluated: Evaluated) -> str:
    """A few images, each with those that the encoder finds most similar."""
    if len(evaluated.images) < 2 or not evaluated.features_MD.isfinite().all():
        why = "Neighbors need at least two images with finite features."
        return section("neighbors", "Nearest neighbors", "", missing(why))

    def picture(index: int) -> str:
        description = escape(", ".join(filter(None, (evaluated.class_of(index), str(evaluated.images.names[index])))))
        return thumbnail(evaluated.images, index, evaluated.channels, description)

    wrong, right = evaluated.wrong().nonzero()[:, 0], (~evaluated.wrong()).nonzero()[:, 0]
    num_right = min(len(right), max(NUM_QUERIES // 2, NUM_QUERIES - len(wrong)))  # the rest are misclassified
    chosen = right[evenly_spaced(len(right), num_right)], wrong[evenly_spaced(len(wrong), NUM_QUERIES - num_right)]
    queries = torch.cat(chosen).tolist()
    z_MD = F.normalize(evaluated.features_MD.float(), dim=1)
    sim_QM = z_MD[queries] @ z_MD.T
    sim_QM[torch.arange(len(queries)), queries] = -torch.inf
    ranked = sim_QM.sort(dim=1, descending=True, stable=True)
    num = min(NUM_NEIGHBORS, len(z_MD) - 1)
    indices_QK, similarities_QK = ranked.indices[:, :num], ranked.values[:, :num]
    cards = []
    for query, indices, similarities in zip(queries, indices_QK.tolist(), similarities_QK.tolist(), strict=True):
        kind, mistaken, items = evaluated.class_of(query), evaluated.mistaken_for(query), []
        for index, similarity in zip(indices, similarities, strict=True):
            own = evaluated.class_of(index)
            is_other = own != kind
            mark = '<span class="mark" role="img" aria-label="another class">✗</span>' if is_other else ""
            named = " · ".join(filter(None, (own, str(evaluated.images.names[index]))))
            caption = "" if own is None else f"<figcaption>{escape(own)}</figcaption>"
            hint, look = escape(f"{named}, cosine {similarity:.3f}"), ' class="other"' if is_other else ""
            items.append(f'<li title="{hint}"><figure{look}>{picture(index)}{mark}{caption}</figure></li>')
        caption = escape(shorten_path(str(evaluated.images.names[query]), 24) if kind is None else kind)
        if mistaken is not None:
            caption += f' <span class="mistaken">taken for {escape(mistaken)}</span>'
        cards.append(f"""<div class="query">
<figure class="asked">{picture(query)}<figcaption>{caption}</figcaption></figure>
<ol>
{chr(10).join(items)}
</ol>
</div>""")
    lead = "An image, then the most similar others of the split by cosine."
    if evaluated.labels is not None:
        lead += " A dashed border and ✗ mark another class."
    look = "queries roomy" if max(map(len, evaluated.class_names), default=0) > LONG_NAME else "queries"
    return section("neighbors", "Nearest neighbors", lead, f'<div class="{look}">', *cards, "</div>")
