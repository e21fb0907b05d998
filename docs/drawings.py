"""The README's pictures: each a light card, so that it reads on a dark page too."""

import io
import json
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from matplotlib.patheffects import withStroke
from PIL import Image

import contune
from contune.data import load_dataset
from contune.report.plots import project
from contune.report.style import INK, MUTED, SKY, MethodStyle, method_style, quiet

CARD = "#fbfaf7"
CLASSES = ("#4269d0", "#e08a00", "#d6336c", "#6c8f2f", "#2a9d8f",
           "#8a5cd1", "#9c5a35", "#1f8fd0", "#c2410c", "#5b6472")  # fmt: skip
STYLE: dict[Any, Any] = {"font.family": "DejaVu Sans", "text.color": INK, "axes.labelcolor": MUTED, "font.size": 10}
DPI = 160


def draw_map(path: Path, run: Path) -> None:
    """Test digits by t-SNE, each drawn where it falls: as raw pixels, and as the run's encoder sees them."""
    test = load_dataset("digits").test
    assert test is not None
    assert test.labels is not None
    images_M1HW = test.resident(8, 1)
    with torch.no_grad():
        features_MD = contune.load_encoder(run)(images_M1HW)
    result = json.loads((run / "result.json").read_text())
    top1 = {measure["name"]: measure["top1"] for measure in result["measures"]}
    with matplotlib.rc_context(STYLE):
        figure = _card(9.6, 5.2)
        for column, title, measure, rows_MD in (
            (0, "Handwritten digits as raw pixels", "pixels-linear-fast", images_M1HW.flatten(1).float()),
            (1, "The same digits after contune train", "linear-fast", features_MD),
        ):
            axes = figure.add_axes((0.02 + 0.49 * column, 0.03, 0.47, 0.79))
            figure.text(0.255 + 0.49 * column, 0.925, title, fontsize=12.5, ha="center")
            words = f"A linear classifier gets {top1[measure]:.1f} % of 899 unseen digits right (1 seed)"
            figure.text(0.255 + 0.49 * column, 0.87, words, fontsize=9.5, color=MUTED, ha="center")
            _scatter_digits(axes, project(rows_MD), images_M1HW[:, 0].numpy(), test.labels.tolist())
        _save(figure, path)


def _scatter_digits(axes: Axes, xy_M2: np.ndarray, images_MHW: np.ndarray, labels: list[int]) -> None:
    """Every second image of each class, so that they stay legible, and the name of each class at its center."""
    low_2, high_2 = xy_M2.min(axis=0), xy_M2.max(axis=0)
    xy_M2 = (xy_M2 - low_2) / (high_2 - low_2)
    half_width, half_height = 0.0145, 0.0165
    for index in np.argsort(labels, kind="stable")[::2]:
        (x, y), image_HW = xy_M2[index], images_MHW[index]
        rgba_HW4 = np.empty((*image_HW.shape, 4))
        rgba_HW4[..., :3] = matplotlib.colors.to_rgb(CLASSES[labels[index]])
        rgba_HW4[..., 3] = image_HW / 255
        extent = (x - half_width, x + half_width, y - half_height, y + half_height)
        axes.imshow(rgba_HW4, extent=extent, interpolation="bicubic")
    for label in sorted(set(labels)):
        own_C2 = xy_M2[np.asarray(labels) == label]
        distances_C = np.linalg.norm(own_C2[:, None] - own_C2[None, :], axis=2).sum(axis=1)
        x, y = own_C2[distances_C.argmin()]  # a median could fall between two clusters of the class
        halo = [withStroke(linewidth=5, foreground=CARD)]
        axes.text(x, y, str(label), color=INK, fontsize=17, weight="bold", ha="center", va="center", path_effects=halo)
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="auto")
    axes.set_axis_off()


def draw_pull(path: Path) -> None:
    """How hard an anchor is pulled to a positive and pushed from a negative, as its similarity grows."""
    similarity_S = np.linspace(-0.2, 1, 61)
    with matplotlib.rc_context(STYLE):
        figure = _card(9.6, 4.1)
        left, right = (figure.add_axes((x, 0.16, 0.40, 0.52)) for x in (0.075, 0.565))
        for (name, color, marker), linestyle, k1, k2 in CURVES:
            pull_S, push_S = zip(*(responses(s, k1=k1, k2=k2) for s in similarity_S), strict=True)
            look = {"color": color, "marker": marker, "markevery": 10, "markersize": 6, "linestyle": linestyle}
            for axes, values_S in ((left, pull_S), (right, push_S)):
                axes.plot(similarity_S, values_S, linewidth=2.2, label=name, **look)
        for axes, x, title, label in (
            (left, 0.075, "Pull towards a positive", "similarity of anchor and positive"),
            (right, 0.565, "Push from a negative", "similarity of anchor and negative"),
        ):
            quiet(axes, grid="y")
            figure.text(x, 0.725, title, fontsize=12)
            axes.set_xlabel(label)
        left.axhline(0, color=MUTED, linewidth=1)
        left.set_ylabel("gradient of the loss × τ")
        left.text(-0.2, -0.08, "below zero: pushed away", fontsize=9, color=MUTED, va="top")
        figure.legend(*right.get_legend_handles_labels(), ncols=4, frameon=False, loc=(0.07, 0.8), handlelength=3)
        figure.text(0.075, 0.91, SETTING, fontsize=9.5, color=MUTED)
        _save(figure, path)


NUM_POSITIVES, NUM_NEGATIVES, TEMPERATURE = 4, 251, 0.1
OTHER_POSITIVES, NEGATIVES = 0.5, 0.0
SETTING = (
    f"An anchor with {NUM_POSITIVES} positives at similarity {OTHER_POSITIVES:g} and {NUM_NEGATIVES} negatives at "
    f"{NEGATIVES:g} (τ = {TEMPERATURE:g}). One positive or one negative moves along the axis."
)
TCL, SUPCON = method_style("tcl"), method_style("supcon")
CURVES: tuple[tuple[MethodStyle, Any, float, float], ...] = (
    (SUPCON, (0, (5, 2)), 0, 1),
    (MethodStyle("TCL, k1 = 1000", SKY, "s"), "-", 1000, 1),
    (TCL._replace(title="TCL, k1 = 4000"), "-", 4000, 1),
    (MethodStyle("TCL, k1 = 4000, k2 = 3", "#0b2545", ""), (0, (1.5, 1.5)), 4000, 3),
)


def responses(s: float, *, k1: float, k2: float) -> tuple[float, float]:
    """X - P + Y of a positive at similarity s and P of a negative at s (lemma 2), from the loss's own gradient."""
    return (
        -_coefficient(s, 0, k1=k1, k2=k2),
        _coefficient(s, NUM_POSITIVES, k1=k1, k2=k2),
    )


def _coefficient(s: float, column: int, *, k1: float, k2: float) -> float:
    """With the candidates as the unit axes of a space, an anchor's coordinates are its similarities to them."""
    num = NUM_POSITIVES + NUM_NEGATIVES
    anchor_D = torch.full((num,), NEGATIVES, dtype=torch.float64)
    anchor_D[:NUM_POSITIVES] = OTHER_POSITIVES
    anchor_D[column] = s
    anchor_D.requires_grad_()
    z_ND = torch.cat([anchor_D[None], torch.eye(num, dtype=torch.float64)])
    positives_NN = torch.zeros(num + 1, num + 1, dtype=torch.bool)
    positives_NN[0, 1 : 1 + NUM_POSITIVES] = True
    loss_N = contune.tcl_loss(
        z_ND, positives=positives_NN, temperature=TEMPERATURE, k1=k1, k2=k2, normalize=False, reduction="none"
    )
    (grad_D,) = torch.autograd.grad(loss_N[0], anchor_D)
    return TEMPERATURE * float(grad_D[column])


def _card(width: float, height: float) -> Figure:
    """A rounded sheet with nothing around it."""
    figure = Figure(figsize=(width, height), facecolor="none")
    corner = 0.012
    sheet = FancyBboxPatch(
        (corner, corner * width / height), 1 - 2 * corner, 1 - 2 * corner * width / height,
        boxstyle=f"round,pad={corner}", mutation_aspect=width / height,
        facecolor=CARD, edgecolor="none", transform=figure.transFigure, zorder=-1,
    )  # fmt: skip
    figure.add_artist(sheet)
    return figure


def _save(figure: Figure, path: Path) -> None:
    """A PNG of 256 colors, the same bytes every time."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=DPI, transparent=True)
    image = Image.open(drawn).convert("RGBA").quantize(256, method=Image.Quantize.FASTOCTREE)
    image.save(path, optimize=True)
    print(f"{path}  {path.stat().st_size / 1024:.0f} KiB")
