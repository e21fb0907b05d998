"""The drawing of an analysis, by what can be read off it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes

from contune.analysis.gradients.figure import draw
from contune.analysis.gradients.sweep import Plan, sweep

ABOUT = {"method": "tcl", "data": "toy", "step": 7, "num_batches": 1, "embeddings_per_batch": 128, "temperature": 0.1}


def found(num_classes: int = 4) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    labels_N = torch.arange(128) % num_classes
    z_ND = F.normalize(2 * torch.eye(max(num_classes, 8))[labels_N, :8] + torch.randn(128, 8, generator=generator))
    return ABOUT | sweep([(z_ND, labels_N)], Plan(temperature=0.1, k1=5000.0, k2=1.0))


def panels(found: dict[str, Any]) -> list[list[Axes]]:
    """Of positives and of negatives: the curve, its pairs, by k1, by k2."""
    axes = draw(found).axes
    assert len(axes) == 8
    return [axes[0::2], axes[1::2]]


@pytest.fixture(scope="module")
def both() -> list[list[Axes]]:
    return panels(found())


def test_bars_begin_at_their_own_zero_and_share_the_curves_similarities(both: list[list[Axes]]) -> None:
    for curve, pairs, _, _ in both:
        assert pairs.get_ylim()[0] == 0
        assert len(pairs.collections) == 1
        assert not curve.collections
        assert curve.get_xlim() == pairs.get_xlim()


def test_no_marker_lies_on_the_edge(both: list[list[Axes]]) -> None:
    for curve, _, by_k1, by_k2 in both:
        for axes in (curve, by_k1, by_k2):
            low, high = axes.get_ylim()
            drawn = np.concatenate([np.asarray(line.get_ydata()) for line in axes.lines if line.get_marker() != "None"])
            assert (drawn - low).min() >= 0.02 * (high - low)
            assert (high - drawn).min() >= 0.02 * (high - low)


def test_a_positive_that_is_pushed_away_is_below_zero_and_no_bar_is() -> None:
    numbers = found()
    numbers["by_similarity"]["positive"]["supcon"][-1] = -0.5
    curve, pairs, *_ = panels(numbers)[0]
    assert curve.get_ylim()[0] < -0.5
    assert pairs.get_ylim()[0] == 0


def test_a_path_is_no_formula(tmp_path: Path) -> None:
    name = "photos/$a_{$/x"
    figure = draw(found() | {"data": name})
    figure.savefig(tmp_path / "drawing.svg")
    assert name in (tmp_path / "drawing.svg").read_text()
