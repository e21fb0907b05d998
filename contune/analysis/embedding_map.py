"""The map of embeddings: one mark an image, which says on hovering what it is.

Shapes: M images of the split, N of them on the map.
"""

import numpy as np
from torch import Tensor

from contune.analysis.map_labels import place_labels
from contune.analysis.measured import Measured, evenly_spaced
from contune.analysis.page import escape, lead, missing, section, shorten, shorten_path
from contune.analysis.projection import project, unmappable

MAX_POINTS = 2000
MAX_NAMED_CLASSES = 20
NUM_COLOURS = 10
WIDTH, HEIGHT, MARGIN = 760, 600, 24


def embedding_map(measured: Measured) -> str:
    chosen_N = evenly_spaced(len(measured), MAX_POINTS)
    features_ND = measured.features[chosen_N]
    why = unmappable(features_ND)
    if why is not None:
        return section("map", "Map of the embeddings", missing(why))
    points_N2 = project(features_ND) if measured.points is None else measured.points
    svg, legend = _drawing(measured, chosen_N, points_N2), _legend(measured, chosen_N)
    return section("map", "Map of the embeddings", lead(_explanation(measured, chosen_N)), svg, legend)


def bare_map(measured: Measured, most: int = MAX_POINTS // 2) -> str:
    """The drawing alone, for a place beside others."""
    chosen_N = evenly_spaced(len(measured), most)
    features_ND = measured.features[chosen_N]
    why = unmappable(features_ND)
    return missing(why) if why is not None else _drawing(measured, chosen_N, project(features_ND))


def _is_named(measured: Measured) -> bool:
    return measured.labels is not None and len(measured.class_names) <= MAX_NAMED_CLASSES


def _drawing(measured: Measured, chosen_N: Tensor, points_N2: np.ndarray) -> str:
    xy_N2 = _fit(points_N2)
    parts = [_points(measured, chosen_N, xy_N2)]
    if _is_named(measured):
        parts.append(_labels(measured, chosen_N, xy_N2))
    description = f"Scatter plot of {len(chosen_N)} embeddings, close together where the encoder finds images alike"
    head = f'<svg class="map" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{description}">'
    return "\n".join([head, *parts, "</svg>"])


def _explanation(measured: Measured, chosen_N: Tensor) -> str:
    some = "" if len(chosen_N) == len(measured) else f" of {len(measured):,}"
    text = f"{len(chosen_N):,}{some} images by t-SNE of their cosine similarity; hover over one for its name."
    if measured.labels is not None and len(measured.class_names) > MAX_NAMED_CLASSES:
        text += " Each class has its hue."
    if measured.predicted is not None:
        text += " A ringed one was misclassified."
    return text + " Who is near whom means something; distances between groups do not."


def _fit(xy_N2: np.ndarray) -> np.ndarray:
    """Into the drawing, the same scale both ways."""
    low_2, high_2 = xy_N2.min(axis=0), xy_N2.max(axis=0)
    box_2 = np.array([WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN])
    scale = (box_2 / np.maximum(high_2 - low_2, 1e-9)).min()
    fitted_N2: np.ndarray = (xy_N2 - (low_2 + high_2) / 2) * scale + np.array([WIDTH, HEIGHT]) / 2
    return fitted_N2


def _points(measured: Measured, chosen_N: Tensor, xy_N2: np.ndarray) -> str:
    """The misclassified last, so that they lie on top."""
    wrong_N = measured.wrong()[chosen_N].tolist()
    radius = 3.4 if len(chosen_N) <= 1000 else 2.6
    marks = []
    for place in sorted(range(len(chosen_N)), key=lambda n: wrong_N[n]):
        index = int(chosen_N[place])
        label = 0 if measured.labels is None else int(measured.labels[index])
        look = _look(label, len(measured.class_names), wrong=wrong_N[place])
        x, y = xy_N2[place]
        shape = _shape(label, len(measured.class_names), x, y, radius)
        tag = shape.partition(" ")[0]
        marks.append(f"<{shape} {look}><title>{_tooltip(measured, index)}</title></{tag}>")
    return "\n".join(marks)


def _look(label: int, num_classes: int, *, wrong: bool) -> str:
    ring = " wrong" if wrong else ""
    if num_classes <= MAX_NAMED_CLASSES:
        return f'class="k{label % NUM_COLOURS}{ring}"'
    return f'class="k{ring}" style="--k:hsl({360 * label // num_classes} 60% 52%)"'


def _shape(label: int, num_classes: int, x: float, y: float, radius: float) -> str:
    """Circles, and squares for the second ten of up to twenty classes, whose colours come again."""
    if NUM_COLOURS <= label < num_classes <= MAX_NAMED_CLASSES:
        side = 1.8 * radius
        return f'rect x="{x - side / 2:.1f}" y="{y - side / 2:.1f}" width="{side:.1f}" height="{side:.1f}"'
    return f'circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}"'


def _tooltip(measured: Measured, index: int) -> str:
    name = shorten_path(str(measured.images.names[index]), 60)
    kind, mistaken = measured.class_of(index), measured.taken_for(index)
    if kind is None:
        return escape(name)
    if mistaken is None:
        return escape(f"{kind} · {name}")
    return escape(f"{kind}, taken for {mistaken} · {name}")


def _labels(measured: Measured, chosen_N: Tensor, xy_N2: np.ndarray) -> str:
    """Each class's name on its most central point: colour alone does not tell classes apart for everybody."""
    assert measured.labels is not None
    labels_N = measured.labels[chosen_N].numpy()
    names, points = [], []
    for label in np.unique(labels_N):
        own_P2 = xy_N2[labels_N == label]
        x, y = own_P2[np.abs(own_P2 - np.median(own_P2, axis=0)).sum(axis=1).argmin()]
        names.append(shorten(measured.class_names[label], 18))
        points.append((float(x), float(y)))
    placed = place_labels(names, points, WIDTH, HEIGHT)
    return "\n".join(
        f'<text x="{x:.0f}" y="{y:.0f}" class="{side}">{escape(name)}</text>' for name, x, y, side in placed
    )


def _legend(measured: Measured, chosen_N: Tensor) -> str:
    """Of the classes that are on the map."""
    if measured.labels is None or not _is_named(measured):
        return ""
    num_classes = len(measured.class_names)
    items = "\n".join(
        f'<li><svg viewBox="0 0 12 12" width="12" height="12" aria-hidden="true">'
        f"<{_shape(label, num_classes, 6, 6, 5)} {_look(label, num_classes, wrong=False)} /></svg>"
        f"{escape(measured.class_names[label])}</li>"
        for label in measured.labels[chosen_N].unique().tolist()
    )
    return f'<ul class="legend">\n{items}\n</ul>'
