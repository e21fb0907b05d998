"""What a report shows of the training and of the evaluated images, each part as HTML.

`own_M` and `mistaken_M` are the names of classes: that of each evaluated image, and the one it was mistaken for. They
are empty where there is none.

Shapes: M images of the evaluated split, N of them on the map or points of a curve, P of one class, D features.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import log
from typing import Any

import matplotlib
import numpy as np
import torch.nn.functional as F
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from contune.data.images import ImageSet
from contune.eval.measures import MEASURES
from contune.report.page import escape, missing, section, shorten, table, thumbnail
from contune.report.style import MUTED, STYLE, MethodStyle, inline_svg, method_style, quiet, svg_text
from contune.training.log import downsampled

CURVE_POINTS = 400
CURVES = {
    "loss": ("Loss", "What training minimizes. Lower is better for the same method and settings."),
    "train_top1": ("Training accuracy, %", "Augmented training images that are classified right. Higher is better."),
    "val_top1": ("Validation accuracy, %", "kNN on held-out images. Higher is better."),
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
"""Title and meaning of each metric, in the order of the page. Other metrics follow."""
PERCENT = ("top1", "theorem1_share")
"""How the names of metrics end that are shares."""
BAR_CLASSES, MOST_MISTAKES = 30, 3
MAP_POINTS, NAMED_CLASSES, NUM_COLORS = 2000, 20, 10
WIDTH, HEIGHT, MARGIN = 760, 600, 24
LETTER_WIDTH = 18
"""Of names on a map, in the largest size that page.css gives them."""
NUM_QUERIES, NUM_NEIGHBORS = 8, 6

DASHED = (4.0, 2.0)
Logged = tuple[list[dict[str, float]], MethodStyle, tuple[float, ...]]
"""The metrics of a run, and how its curves are drawn: the style of its method, and dashes."""


def curves(runs: Sequence[Logged], *, num_others: int = 0, legend: str = "") -> str:
    """A drawing per metric. `num_others`: the views that a softmax loss compares each view with; their ln is drawn."""
    hidden = {"step", "epoch"} if len(runs) == 1 else {"step", "epoch", "lr", "views_per_second"}
    names = {name for metrics, _, _ in runs for line in metrics for name in line} - hidden
    logged = [(downsampled(metrics, [*names], CURVE_POINTS), "", style, dash) for metrics, style, dash in runs]
    if len(runs) == 1:  # SupCon's responses to the embeddings of this run
        logged.append((logged[0][0], "supcon_", method_style("supcon"), DASHED))
    figures = []
    for name in dict.fromkeys((*CURVES, *sorted(names))):
        lines = []
        for points, prefix, style, dash in logged:
            if any(value is not None for value in points.get(prefix + name, ())):
                scale = 100 if name.endswith(PERCENT) else 1
                xy_2N = np.array([points["epoch"], points[prefix + name]], dtype=float) * [[1], [scale]]
                lines.append((xy_2N[:, np.isfinite(xy_2N[1])], style, dash))
        if not lines or name.startswith("supcon_"):
            continue
        title, meaning = CURVES.get(name, (name.replace("_", " ").capitalize(), ""))
        level, bold = num_others if name == "loss" else 0, ""
        if level:
            meaning += f" Dashed: ln {level:,}, SupCon’s loss if all {level:,} other views were equally similar."
        if len(runs) == 1:
            y_N = lines[0][0][1]
            bold = f" <b>{number(y_N.max() if name == 'lr' else y_N[-1])}</b>"
        ends = ", ".join(f"{style.title} {number(xy_2N[1, -1])}" for xy_2N, style, _ in lines[:4])
        svg = draw_curves(name, lines, level, has_legend=len(lines) > len(runs))
        svg = inline_svg(svg, f"{escape(title)} by epoch; at the end {escape(ends)}")
        meaning = f'<p class="meaning">{meaning}</p>' if meaning else ""
        figures.append(f"<figure><figcaption>{escape(title)}{bold}</figcaption>{svg}{meaning}</figure>")
    if not figures:
        return section("curves", "Training", "", missing("Nothing was logged yet."))
    lead = "In bold: the last value." if len(runs) == 1 else "One line per run."
    return section("curves", "Training", lead, legend, '<div class="curves">', *figures, "</div>")


def draw_curves(
    name: str, lines: Sequence[tuple[np.ndarray, MethodStyle, tuple[float, ...]]], level: int, *, has_legend: bool
) -> str:
    """The SVG document of a metric's (2, N) epochs and values, each with its style and dashes."""
    with matplotlib.rc_context(STYLE | {"svg.hashsalt": f"contune {name}"}):
        figure = Figure(figsize=(3.6, 2.1), layout="constrained")
        axes = figure.add_subplot()
        quiet(axes, grid="y")
        for xy_2N, (title, color, marker), dash in lines:
            dots = 4.0 if xy_2N.shape[1] <= 12 else 0.0
            axes.plot(*xy_2N, color=color, linewidth=1.7, linestyle=(0, dash) if dash else "-", marker=marker,
                      markersize=dots, label=title)  # fmt: skip
        if level:
            axes.axhline(log(level), color=MUTED, linewidth=1.1, linestyle=(0, DASHED), zorder=1)
            axes.annotate(f"ln {level:,}", (1, log(level)), (0, 3), xycoords=axes.get_yaxis_transform(), ha="right",
                          textcoords="offset points", fontsize=8.5, color=MUTED)  # fmt: skip
        if has_legend:
            axes.legend(frameon=False, fontsize=8.5, labelcolor=MUTED)
        axes.set_xlabel("epoch")
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


def classes(
    measure: Mapping[str, Any],
    predicted_by: str,
    images: ImageSet,
    channels: int,
    own_M: np.ndarray,
    mistaken_M: np.ndarray,
) -> str:
    """Accuracy by class, the worst first, and what misclassified images were taken for, with an example."""
    accuracy: dict[str, float] = measure["per_class"]
    lead = f"{MEASURES[measure['name']].title} (<code>{escape(measure['name'])}</code>), "
    lead += f"the worst {BAR_CLASSES} of {len(accuracy)}." if len(accuracy) > BAR_CLASSES else "the worst first."
    if predicted_by:
        num_wrong = np.count_nonzero(mistaken_M != "")
        lead += f" The {MEASURES[predicted_by].title.lower()} misclassified {num_wrong:,} of {len(images):,} images."
    else:
        lead += " Mistakes need a linear probe; <code>eval.linear=none</code> turned it off."
    rows = []
    for name in sorted(accuracy, key=accuracy.__getitem__)[:BAR_CLASSES]:
        taken_for_P = mistaken_M[own_M == name]
        most = Counter(taken_for_P[taken_for_P != ""]).most_common(MOST_MISTAKES)
        mistakes = ", ".join(f"{escape(other)} ({count:,})" for other, count in most)
        if most:
            example = np.flatnonzero((own_M == name) & (mistaken_M == most[0][0]))[0]
            mistakes = thumbnail(images, example, channels, escape(images.names[example])) + mistakes
        rows.append((
            f'<span title="{escape(name)}">{escape(name)}</span>',
            f'<div class="bar" style="--share:{accuracy[name]:.1f}%"></div>',
            f"{accuracy[name]:.1f}",
            f"{len(taken_for_P):,}",
            mistakes,
        ))  # fmt: skip
    return section("classes", "Classes", lead, table("bars", ("Class", "", "%", "images", "taken for"), rows))


def embedding_map(images: ImageSet, features_MD: Tensor, own_M: np.ndarray, mistaken_M: np.ndarray) -> str:
    """A mark per image, and the names of up to 20 classes; or why there is no map."""
    chosen_N = evenly_spaced(len(images), MAP_POINTS)
    features_ND = features_MD[chosen_N]
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
    names, label_N = np.unique(own_M[chosen_N], return_inverse=True)
    wrong_N = mistaken_M[chosen_N] != ""
    radius = 3.4 if len(chosen_N) <= 1000 else 2.6
    parts = []
    for place in np.argsort(wrong_N, kind="stable"):  # misclassified images on top
        index, label, (x, y) = chosen_N[place], label_N[place], xy_N2[place]
        what = f"{own_M[index]}, taken for {mistaken_M[index]}" if wrong_N[place] else own_M[index]
        title = escape(" · ".join(filter(None, (what, shorten(str(images.names[index]), 60)))))
        color = f"var(--c{label})" if len(names) <= NUM_COLORS else f"hsl({360 * label // len(names)} 60% 52%)"
        look = f'class="{"wrong" if wrong_N[place] else "right"}" style="fill:{color}"'
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" {look}><title>{title}</title></circle>')
    if names[0] and len(names) <= NAMED_CLASSES:
        for label, name in enumerate(names):  # on the class's most central point, as far as it fits
            own_P2, text = xy_N2[label_N == label], name if len(name) <= 18 else f"{name[:17]}…"
            x, y = own_P2[np.abs(own_P2 - np.median(own_P2, axis=0)).sum(axis=1).argmin()]
            half = LETTER_WIDTH * len(text) / 2
            parts.append(f'<text x="{np.clip(x, half, WIDTH - half):.0f}" y="{y:.0f}">{escape(text)}</text>')
    description = f"Scatter plot of {len(chosen_N)} embeddings; similar images are close together"
    head = f'<svg class="map" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{description}">'
    lead = f"t-SNE of {len(chosen_N):,} images by cosine similarity. Hover over a point for its name."
    lead += " A ring marks a misclassified image." if wrong_N.any() else ""
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
    tsne = TSNE(perplexity=min(30.0, (num - 1) / 3), init="pca", max_iter=500, random_state=0)
    # One thread adds in one order, so the bytes are reproducible; it is also faster while others use the cores.
    with threadpool_limits(1):
        xy_N2: np.ndarray = tsne.fit_transform(z_ND)
    return xy_N2


def neighbors(images: ImageSet, channels: int, features_MD: Tensor, own_M: np.ndarray, mistaken_M: np.ndarray) -> str:
    """A few images, each with those that the encoder finds most similar."""
    if len(images) < 2 or not features_MD.isfinite().all():
        why = "Neighbors need at least two images with finite features."
        return section("neighbors", "Nearest neighbors", "", missing(why))
    wrong, right = np.flatnonzero(mistaken_M != ""), np.flatnonzero(mistaken_M == "")
    num_wrong = min(len(wrong), NUM_QUERIES // 2)
    queries = *right[evenly_spaced(len(right), NUM_QUERIES - num_wrong)], *wrong[evenly_spaced(len(wrong), num_wrong)]
    z_MD, cards = F.normalize(features_MD.float(), dim=1), []
    for query in queries:
        own, name, items = own_M[query], str(images.names[query]), []
        sim_M = z_MD @ z_MD[query]
        sim_M[query] = -1.1  # below all others
        nearest = sim_M.argsort(descending=True, stable=True)[: min(NUM_NEIGHBORS, len(z_MD) - 1)]
        for index in nearest.tolist():
            hint = escape(" · ".join(filter(None, (own_M[index], str(images.names[index])))))
            picture = thumbnail(images, index, channels, hint)
            look = ""
            if own_M[index] != own:
                picture += '<span class="mark" role="img" aria-label="another class">✗</span>'
                look = ' class="other"'
            picture += f"<figcaption>{escape(own_M[index])}</figcaption>" if own else ""
            items.append(f'<li title="{hint}, cosine {sim_M[index]:.3f}"><figure{look}>{picture}</figure></li>')
        caption = escape(own or shorten(name, 24))
        if mistaken_M[query]:
            caption += f' <span class="mistaken">taken for {escape(mistaken_M[query])}</span>'
        cards.append(f"""<div class="query">
<figure class="asked">{thumbnail(images, query, channels, escape(name))}<figcaption>{caption}</figcaption></figure>
<ol>
{chr(10).join(items)}
</ol>
</div>""")
    lead = "An image, then the most similar others of the split by cosine."
    lead += " A dashed border and ✗ mark another class." if own_M[0] else ""
    return section("neighbors", "Nearest neighbors", lead, '<div class="queries">', *cards, "</div>")


def evenly_spaced(num: int, most: int) -> np.ndarray:
    """At most `most` positions out of `num`."""
    kept = min(num, most)
    return np.arange(kept) * num // max(kept, 1)
