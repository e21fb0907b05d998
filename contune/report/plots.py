"""What a report shows of the training and of the evaluated images, each part as HTML.

Shapes: M images of the evaluated split, N of them on the map, Q queries, K classes, D features.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, log
from typing import Any

import matplotlib
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from contune.data.images import ImageSet
from contune.eval.measures import MEASURES
from contune.report.page import escape, missing, section, shorten, table, thumbnail
from contune.report.style import MUTED, PAGE_COLORS, STYLE, MethodStyle, inline_svg, method_style, quiet, svg_text

CURVE_POINTS = 400
CURVES = {
    "loss": ("Loss", "What training minimizes. Lower is better for the same method and settings."),
    "train_top1": ("Training accuracy, %", "Augmented training images that are classified right. Higher is better."),
    "online_top1": ("Online probe accuracy, %", "A linear classifier trained on the side. Higher is better."),
    "online_loss": ("Online probe loss", "The cross-entropy of that classifier. Lower is better."),
    "positive_gradient": ("Pull of positives", "Mean gradient from positives. It falls as they come together."),
    "negative_gradient": ("Push of negatives", "Mean gradient from negatives. It falls as they move apart."),
    "theorem1_share": ("Theorem 1 holds, %", "Positives pulled more than by SupCon. Higher: k1 has more effect."),
    "alignment": ("Alignment", "Squared distance of two views of an image. Lower is better."),
    "uniformity": ("Uniformity", "How unevenly images fill the sphere. Lower is better without labels."),
    "feature_std": ("Spread of features", "1 if they point in all directions, 0 if in one. Higher is better."),
    "effective_rank": ("Effective rank", "Dimensions in use; 1 is a collapse. Higher is better without labels."),
    "skipped_steps": ("Skipped steps", "Steps whose loss or gradient was not finite. 0 is best."),
    "lr": ("Learning rate", "The schedule; in bold its highest value. No direction is better."),
    "views_per_second": ("Views per second", "The speed of training. Higher is better."),
}
"""Title and meaning of each metric, in the order of the page. Other metrics come before the learning rate."""
PERCENT = ("top1", "theorem1_share")
"""How the names of metrics end that are shares."""
BAR_CLASSES, MOST_MISTAKES = 30, 3
MAP_POINTS = 2000
NAMED_CLASSES = 20
NUM_COLORS = 10
WIDTH, HEIGHT, MARGIN = 760, 600, 24
FONT_SIZE = 26
"""The largest that page.css gives to names on a map."""
NUM_QUERIES, NUM_NEIGHBORS = 8, 6

DASHED = (4.0, 2.0)
Logged = tuple[list[dict[str, float]], MethodStyle, tuple[float, ...]]
"""The metrics of a run, and how its curves are drawn: the style of its method, and dashes."""


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

    def wrong(self) -> Tensor:
        """bool (M,): misclassified."""
        if self.images.labels is None or self.predicted_M is None:
            return torch.zeros(len(self.images), dtype=torch.bool)
        return self.images.labels != self.predicted_M

    def classes_of(self, index: int) -> tuple[str, str]:
        """The class of an image and the one it was mistaken for, each empty if there is none."""
        if self.images.labels is None:
            return "", ""
        own = self.class_names[int(self.images.labels[index])]
        predicted = own if self.predicted_M is None else self.class_names[int(self.predicted_M[index])]
        return own, "" if predicted == own else predicted


def evenly_spaced(num: int, most: int) -> Tensor:
    """At most `most` positions out of `num`."""
    return torch.arange(num) if num <= most else torch.arange(most) * num // most


def num_others(config: Mapping[str, Mapping[str, Any]]) -> int:
    """The views that the loss compares each view of a batch with; 0 for a loss that is no softmax over them."""
    if config["method"]["name"] not in ("tcl", "supcon", "simclr"):
        return 0
    num_views = len(config["augment"]["per_view"]) or config["augment"]["views"]
    return int(config["optim"]["batch_images"] * num_views - 1)


def curves(
    runs: Sequence[Logged], others: Collection[int], legend: str = "", colors: Mapping[str, str] = PAGE_COLORS
) -> str:
    """A drawing per metric. `others`: `num_others` of all runs; ln N is drawn if they agree."""
    hidden = {"step", "epoch"} if len(runs) == 1 else {"step", "epoch", "lr", "views_per_second"}
    logged = [line for metrics, _, _ in runs for line in metrics]
    names = {name for line in logged for name in line.keys() - hidden if not name.startswith("supcon_")}
    axis = "epoch" if all("epoch" in line for line in logged) else "step"
    levels, figures = set(others) - {0}, []
    for name in (*[*CURVES][:-2], *sorted(names - CURVES.keys()), *[*CURVES][-2:]):
        lines = [(logged_points(metrics, name, axis), style, dash) for metrics, style, dash in runs]
        lines = [line for line in lines if len(line[0])]
        if name not in names or not lines:
            continue
        (title, meaning), level, bold = CURVES.get(name, (name.replace("_", " ").capitalize(), "")), 0, ""
        if name == "loss" and len(levels) == 1:
            (level,) = levels
            meaning += f" Dashed: ln {level:,}, SupCon’s loss if all {level:,} other views were equally similar."
        ends = ", ".join(f"{style.title} {number(xy_N2[-1, 1])}" for xy_N2, style, _ in lines[:4])
        if len(runs) == 1:
            y_N = lines[0][0][:, 1]
            bold = f" <b>{number(y_N.max() if name == 'lr' else y_N[-1])}</b>"
            supcon_N2 = logged_points(runs[0][0], f"supcon_{name}", axis)  # on the embeddings of another method
            lines += [(supcon_N2, method_style("supcon"), DASHED)] if len(supcon_N2) else []
        svg = draw_curves(name, axis, lines, level, has_legend=len(lines) > len(runs))
        svg = inline_svg(svg, f"{escape(title)} by {axis}; at the end {escape(ends)}", colors)
        meaning = f'<p class="meaning">{meaning}</p>' if meaning else ""
        figures.append(f"<figure><figcaption>{escape(title)}{bold}</figcaption>{svg}{meaning}</figure>")
    if not figures:
        return section("curves", "Training", "", missing("Nothing was logged yet."))
    lead = "In bold: the last value." if len(runs) == 1 else "One line per run."
    return section("curves", "Training", lead, legend, '<div class="curves">', *figures, "</div>")


def logged_points(metrics: list[dict[str, float]], name: str, axis: str) -> np.ndarray:
    """(N, 2): the finite values of a metric over epochs or steps, shares in percent."""
    scale = 100 if name.endswith(PERCENT) else 1
    found = [(line[axis], scale * line[name]) for line in metrics if isfinite(line.get(name, np.nan))]
    return np.array(found).reshape(-1, 2)


def draw_curves(
    name: str,
    axis: str,
    lines: Sequence[tuple[np.ndarray, MethodStyle, tuple[float, ...]]],
    level: int,
    *,
    has_legend: bool,
) -> str:
    """An SVG document. Long curves are drawn as means of neighboring points."""
    with matplotlib.rc_context(STYLE | {"svg.hashsalt": f"contune {name}"}):
        figure = Figure(figsize=(3.6, 2.1), layout="constrained")
        axes = figure.add_subplot()
        quiet(axes, grid="y")
        for xy_N2, (title, color, marker), dash in lines:
            num = len(xy_N2)
            starts = np.arange(0, num, -(-num // CURVE_POINTS))
            x_N, y_N = (np.add.reduceat(xy_N2, starts) / np.diff(np.append(starts, num))[:, None]).T
            dots = 4.0 if num <= 12 else 0.0
            axes.plot(x_N, y_N, color=color, linewidth=1.7, linestyle=(0, dash) if dash else "-", marker=marker,
                      markersize=dots, label=title)  # fmt: skip
        if level:
            axes.axhline(log(level), color=MUTED, linewidth=1.1, linestyle=(0, DASHED), zorder=1)
            axes.annotate(f"ln {level:,}", (1, log(level)), (0, 3), xycoords=axes.get_yaxis_transform(), ha="right",
                          textcoords="offset points", fontsize=8.5, color=MUTED)  # fmt: skip
        if has_legend:
            axes.legend(frameon=False, fontsize=8.5, labelcolor=MUTED)
        axes.set_xlabel(axis)
        axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_formatter(number)
        axes.yaxis.set_major_formatter(number)
        if name in ("lr", "views_per_second"):
            axes.set_ylim(0, 1.08 * axes.dataLim.y1 or 1)
        return svg_text(figure)


def number(value: float, _: float = 0) -> str:
    """Short; also for the ticks of an axis, which come with their position."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def classes(evaluated: Evaluated, measure: Mapping[str, Any]) -> str:
    """Accuracy by class, the worst first, and what misclassified images were taken for, with an example."""
    images, names, predicted_M = evaluated.images, evaluated.class_names, evaluated.predicted_M
    assert images.labels is not None
    accuracy: dict[str, float] = measure["per_class"]
    lead = f"{MEASURES[measure['name']].title} (<code>{escape(measure['name'])}</code>), "
    lead += f"the worst {BAR_CLASSES} of {len(accuracy)}." if len(accuracy) > BAR_CLASSES else "the worst first."
    if predicted_M is None:
        lead += " Mistakes need a linear probe; <code>eval.linear=none</code> turned it off."
    else:
        predictor, num_wrong = MEASURES[evaluated.predicted_by].title.lower(), int(evaluated.wrong().sum())
        lead += f" The {predictor} misclassified {num_wrong:,} of {len(images):,} images."
    rows = []
    for name in sorted(accuracy, key=accuracy.__getitem__)[:BAR_CLASSES]:
        own_M, mistakes = images.labels == names.index(name), ""
        wrong = (own_M & evaluated.wrong()).nonzero()[:, 0].tolist()
        if predicted_M is not None and wrong:
            taken_for = Counter(predicted_M[wrong].tolist()).most_common(MOST_MISTAKES)
            example = next(index for index in wrong if predicted_M[index] == taken_for[0][0])
            mistakes = thumbnail(images, example, evaluated.channels, escape(images.names[example]))
            mistakes += ", ".join(f"{escape(names[k])} ({count:,})" for k, count in taken_for)
        rows.append((
            f'<span title="{escape(name)}">{escape(name)}</span>',
            f'<div class="bar" style="--share:{accuracy[name]:.1f}%"></div>',
            f"{accuracy[name]:.1f}",
            f"{int(own_M.sum()):,}",
            mistakes,
        ))  # fmt: skip
    return section("classes", "Classes", lead, table("bars", ("Class", "", "%", "images", "taken for"), rows))


def embedding_map(evaluated: Evaluated) -> str:
    """A mark per image, and the names of up to 20 classes; or why there is no map."""
    chosen_N = evenly_spaced(len(evaluated.images), MAP_POINTS)
    features_ND = evaluated.features_MD[chosen_N]
    why = ""
    if len(features_ND) < 5:
        why = f"A map needs at least 5 images; there are {len(features_ND)}."
    elif not features_ND.isfinite().all():
        why = "The features are not finite: training has diverged. Try a lower <code>optim.lr</code>."
    elif F.normalize(features_ND, dim=1).std(dim=0).max() < 1e-6:
        why = "All embeddings point in one direction: the encoder has collapsed."
    if why:
        return section("map", "Map of the embeddings", "", missing(why))
    xy_N2 = project(features_ND)
    low_2, high_2 = xy_N2.min(axis=0), xy_N2.max(axis=0)
    scale = (np.array([WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN]) / np.maximum(high_2 - low_2, 1e-9)).min()
    xy_N2 = (xy_N2 - (low_2 + high_2) / 2) * scale + np.array([WIDTH, HEIGHT]) / 2
    wrong_N, num_classes = evaluated.wrong()[chosen_N].tolist(), len(evaluated.class_names)
    labels_M = evaluated.images.labels
    radius = 3.4 if len(chosen_N) <= 1000 else 2.6
    parts = []
    for place in sorted(range(len(chosen_N)), key=wrong_N.__getitem__):  # misclassified images on top
        index = int(chosen_N[place])
        kind, mistaken = evaluated.classes_of(index)
        what = f"{kind}, taken for {mistaken}" if mistaken else kind
        title = escape(" · ".join(filter(None, (what, shorten(str(evaluated.images.names[index]), 60)))))
        label = 0 if labels_M is None else int(labels_M[index])
        color = f"var(--c{label})" if num_classes <= NUM_COLORS else f"hsl({360 * label // num_classes} 60% 52%)"
        look = f'class="{"wrong" if wrong_N[place] else "right"}" style="fill:{color}"'
        x, y = xy_N2[place]
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" {look}><title>{title}</title></circle>')
    if labels_M is not None and num_classes <= NAMED_CLASSES:
        parts += _map_names(labels_M[chosen_N].numpy(), xy_N2, evaluated.class_names)
    description = f"Scatter plot of {len(chosen_N)} embeddings; similar images are close together"
    head = f'<svg class="map" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{description}">'
    lead = f"t-SNE of {len(chosen_N):,} images by cosine similarity. Hover over a point for its name."
    lead += " A ring marks a misclassified image." if any(wrong_N) else ""
    lead += " Distances between groups mean nothing."
    return section("map", "Map of the embeddings", lead, head, *parts, "</svg>")


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
    """Each class's name on its most central point, moved by lines where it would cover another name."""
    line_height, edge, parts = 1.15 * FONT_SIZE, 8, []
    placed: list[tuple[float, float, float]] = []
    for label in np.unique(labels_N):
        own_P2 = xy_N2[labels_N == label]
        x, y = own_P2[np.abs(own_P2 - np.median(own_P2, axis=0)).sum(axis=1).argmin()]
        text = class_names[label] if len(class_names[label]) <= 18 else f"{class_names[label][:17]}…"
        # An upper bound, as the reader's font is unknown: capitals and Chinese letters are about as wide as high.
        half = FONT_SIZE * len(text) / 2 * (0.68 if text.isascii() and not text.isupper() else 1.0)
        x = min(max(x, edge + half), WIDTH - edge - half)
        heights = [y + FONT_SIZE / 4 + lines * line_height for lines in (0, 1, -1, 2, -2, 3, -3, 4, -4)]
        inside = [min(max(height, line_height), HEIGHT - edge) for height in heights]
        free = (h for h in inside if all(abs(x - a) >= half + c or abs(h - b) >= line_height for a, b, c in placed))
        placed.append((x, next(free, inside[0]), half))
        parts.append(f'<text x="{x:.0f}" y="{placed[-1][1]:.0f}">{escape(text)}</text>')
    return parts


def neighbors(evaluated: Evaluated) -> str:
    """A few images, each with those that the encoder finds most similar."""
    if len(evaluated.images) < 2 or not evaluated.features_MD.isfinite().all():
        why = "Neighbors need at least two images with finite features."
        return section("neighbors", "Nearest neighbors", "", missing(why))
    wrong, right = evaluated.wrong().nonzero()[:, 0], (~evaluated.wrong()).nonzero()[:, 0]
    num_right = min(len(right), max(NUM_QUERIES // 2, NUM_QUERIES - len(wrong)))  # the rest are misclassified
    chosen = right[evenly_spaced(len(right), num_right)], wrong[evenly_spaced(len(wrong), NUM_QUERIES - num_right)]
    queries = torch.cat(chosen).tolist()
    z_MD, cards = F.normalize(evaluated.features_MD.float(), dim=1), []
    for query in queries:
        (kind, mistaken), name, items = evaluated.classes_of(query), str(evaluated.images.names[query]), []
        asked = thumbnail(evaluated.images, query, evaluated.channels, escape(name))
        sim_M = z_MD @ z_MD[query]
        sim_M[query] = -torch.inf
        nearest = sim_M.argsort(descending=True, stable=True)[: min(NUM_NEIGHBORS, len(z_MD) - 1)]
        for index, similarity in zip(nearest.tolist(), sim_M[nearest].tolist(), strict=True):
            own, mark, look = evaluated.classes_of(index)[0], "", ""
            hint = escape(" · ".join(filter(None, (own, str(evaluated.images.names[index])))))
            if own != kind:
                mark, look = '<span class="mark" role="img" aria-label="another class">✗</span>', ' class="other"'
            picture = thumbnail(evaluated.images, index, evaluated.channels, hint) + mark
            picture += f"<figcaption>{escape(own)}</figcaption>" if own else ""
            items.append(f'<li title="{hint}, cosine {similarity:.3f}"><figure{look}>{picture}</figure></li>')
        caption = escape(kind or shorten(name, 24))
        if mistaken:
            caption += f' <span class="mistaken">taken for {escape(mistaken)}</span>'
        cards.append(f"""<div class="query">
<figure class="asked">{asked}<figcaption>{caption}</figcaption></figure>
<ol>
{chr(10).join(items)}
</ol>
</div>""")
    lead = "An image, then the most similar others of the split by cosine."
    if evaluated.images.labels is not None:
        lead += " A dashed border and ✗ mark another class."
    return section("neighbors", "Nearest neighbors", lead, '<div class="queries">', *cards, "</div>")
