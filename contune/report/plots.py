"""What a report shows of the training and of the evaluated images.

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

from contune.report.style import MUTED, STYLE, MethodStyle, inline_svg, method_style, quiet
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
    "hard_theorem1_share": ("Theorem 1, hard positives, %", "The same for the quarter of the lowest similarity."),
    "alignment": ("Alignment", "Squared distance of two views of an image. Lower is better."),
    "uniformity": ("Uniformity", "How unevenly images fill the sphere. Lower is better without labels."),
    "feature_std": ("Spread of features", "1 if they point in all directions, 0 if in one. Higher is better."),
    "effective_rank": ("Effective rank", "Dimensions in use; 1 is a collapse. Higher is better without labels."),
    "skipped_steps": ("Skipped steps", "Steps whose loss or gradient was not finite. 0 is best."),
    "lr": ("Learning rate", "The schedule; in bold its highest value. No direction is better."),
    "views_per_second": ("Views per second", "The speed of training. Higher is better."),
}
"""Title and meaning of each metric, in the order of the page. Other metrics follow."""
BAR_CLASSES, MOST_MISTAKES = 30, 3
MAP_POINTS, NAMED_CLASSES, NUM_COLORS = 2000, 20, 10
WIDTH, HEIGHT, MARGIN = 760, 600, 24
LETTER_WIDTH = 18
"""Of names on a map, in the largest size that page.css gives them."""
NUM_QUERIES, NUM_NEIGHBORS = 8, 6

DASHED = (4.0, 2.0)
Logged = tuple[list[dict[str, float]], MethodStyle, tuple[float, ...]]
"""The metrics of a run, and how its curves are drawn: the style of its method, and dashes."""


def curves(runs: Sequence[Logged], *, num_terms: float = 0.0) -> list[dict[str, str]]:
    """A drawing per metric. `num_terms`: the loss of a network that has learned nothing is its ln, a dashed line."""
    hidden = {"step", "epoch"} if len(runs) == 1 else {"step", "epoch", "lr", "views_per_second"}
    names = {name for metrics, _, _ in runs for line in metrics for name in line} - hidden
    logged = [(downsampled(metrics, [*names], CURVE_POINTS), "", style, dash) for metrics, style, dash in runs]
    if len(runs) == 1:  # SupCon's responses to the embeddings of this run
        logged.append((logged[0][0], "supcon_", method_style("supcon"), DASHED))
    figures = []
    for name in dict.fromkeys((*CURVES, *sorted(names))):
        with matplotlib.rc_context(STYLE | {"svg.hashsalt": f"contune {name}"}):
            figure, bold = Figure(figsize=(3.6, 2.1), layout="constrained"), ""
            axes = figure.add_subplot()
            quiet(axes, grid="y")
            title, meaning = CURVES.get(name, (name.replace("_", " ").capitalize(), ""))
            for points, prefix, (label, color, marker), dash in logged:
                y_N = np.array(points.get(prefix + name, ()), dtype=float) * (100 if title.endswith("%") else 1)
                drawn_N = np.isfinite(y_N)
                if drawn_N.any():
                    look: Any = {"color": color, "linewidth": 1.7, "linestyle": (0, dash) if dash else "-"}
                    look |= {"marker": marker, "markersize": 4.0 if drawn_N.sum() <= 12 else 0.0}
                    axes.plot(np.array(points["epoch"])[drawn_N], y_N[drawn_N], label=label, **look)
                    bold = bold or number(np.nanmax(y_N) if name == "lr" else y_N[drawn_N][-1])
            if not axes.lines or name.startswith("supcon_"):
                continue
            if name == "loss" and num_terms:
                level, words = log(num_terms), f"{num_terms:,.0f}"
                meaning += f" Dashed: ln {words}. A loss that stays there has not learned."
                axes.axhline(level, color=MUTED, linewidth=1.1, linestyle=(0, DASHED), zorder=1)
                look = {"ha": "right", "va": "bottom", "fontsize": 8.5, "color": MUTED}
                axes.text(1, level, f"ln {words}", transform=axes.get_yaxis_transform(), **look)
            elif len(axes.lines) > len(runs):
                axes.legend(frameon=False, fontsize=8.5, labelcolor=MUTED)
            axes.set_xlabel("epoch")
            axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
            axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
            axes.xaxis.set_major_formatter(number)
            axes.yaxis.set_major_formatter(number)
            if name in ("lr", "views_per_second"):
                axes.set_ylim(0, 1.08 * axes.dataLim.y1 or 1)
            svg = inline_svg(figure, f"{title} by epoch")
        figures.append({"title": title, "bold": bold if len(runs) == 1 else "", "svg": svg, "meaning": meaning})
    return figures


def number(value: float, _: float = 0) -> str:
    """Short; also for the ticks of an axis, which come with their position."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def classes(accuracy: Mapping[str, float], own_M: np.ndarray, mistaken_M: np.ndarray) -> list[tuple[Any, ...]]:
    """The worst classes first: name, accuracy, images, what it is mistaken for most, and an example of that."""
    rows = []
    for name in sorted(accuracy, key=accuracy.__getitem__)[:BAR_CLASSES]:
        taken_for_P = mistaken_M[own_M == name]
        most = Counter(taken_for_P[taken_for_P != ""]).most_common(MOST_MISTAKES)
        example = np.flatnonzero((own_M == name) & (mistaken_M == most[0][0]))[0] if most else None
        rows.append((name, accuracy[name], len(taken_for_P), most, example))
    return rows


def embedding_map(features_MD: Tensor, own_M: np.ndarray, mistaken_M: np.ndarray) -> dict[str, Any]:
    """A point per image with its color, and the names of up to 20 classes; or why there is no map."""
    chosen_N = evenly_spaced(len(features_MD), MAP_POINTS)
    features_ND = features_MD[chosen_N]
    why = ""
    if len(features_ND) < 5:
        why = f"A map needs at least 5 images; there are {len(features_ND)}."
    elif not features_ND.isfinite().all():
        why = "The features are not finite: training has diverged. Try a lower optim.lr."
    elif F.normalize(features_ND, dim=1).std(dim=0).max() < 1e-6:
        why = "All embeddings point in one direction: the encoder has collapsed."
    if why:
        return {"points": [], "why": why}
    xy_N2 = project(features_ND)
    low_2, high_2 = xy_N2.min(axis=0), xy_N2.max(axis=0)
    scale = (np.array([WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN]) / np.maximum(high_2 - low_2, 1e-9)).min()
    xy_N2 = (xy_N2 - (low_2 + high_2) / 2) * scale + np.array([WIDTH, HEIGHT]) / 2
    names, label_N = np.unique(own_M[chosen_N], return_inverse=True)
    points = []
    for place in np.argsort(mistaken_M[chosen_N] != "", kind="stable"):  # misclassified images on top
        label = label_N[place]
        color = f"var(--c{label})" if len(names) <= NUM_COLORS else f"hsl({360 * label // len(names)} 60% 52%)"
        points.append((*xy_N2[place], color, chosen_N[place]))
    placed = []
    for label, name in enumerate(names if names[0] and len(names) <= NAMED_CLASSES else ()):
        own_P2, text = xy_N2[label_N == label], name if len(name) <= 18 else f"{name[:17]}…"
        x, y = own_P2[np.abs(own_P2 - np.median(own_P2, axis=0)).sum(axis=1).argmin()]  # the most central point
        half = LETTER_WIDTH * len(text) / 2
        placed.append((np.clip(x, half, WIDTH - half), y, text))
    radius = 3.4 if len(points) <= 1000 else 2.6
    return {"points": points, "names": placed, "radius": radius, "width": WIDTH, "height": HEIGHT}


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


def neighbors(features_MD: Tensor, mistaken_M: np.ndarray) -> list[tuple[int, list[tuple[int, float]]]]:
    """A few images, half of them misclassified, each with those that the encoder finds most similar and the cosines."""
    if len(features_MD) < 2 or not features_MD.isfinite().all():
        return []
    wrong, right = np.flatnonzero(mistaken_M != ""), np.flatnonzero(mistaken_M == "")
    num_wrong = min(len(wrong), NUM_QUERIES // 2)
    queries = *right[evenly_spaced(len(right), NUM_QUERIES - num_wrong)], *wrong[evenly_spaced(len(wrong), num_wrong)]
    z_MD, found = F.normalize(features_MD.float(), dim=1), []
    for query in queries:
        sim_M = z_MD @ z_MD[query]
        sim_M[query] = -1.1  # below all others
        top = sim_M.argsort(descending=True, stable=True)[: min(NUM_NEIGHBORS, len(z_MD) - 1)]
        found.append((query, list(zip(top.tolist(), sim_M[top].tolist(), strict=True))))
    return found


def evenly_spaced(num: int, most: int) -> np.ndarray:
    """At most `most` positions out of `num`."""
    kept = min(num, most)
    return np.arange(kept) * num // max(kept, 1)
