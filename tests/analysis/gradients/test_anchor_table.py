"""The table of anchors: who is who, what is missing, how it is spread, and the drawing of that."""

import numpy as np
import pytest
import torch
from torch import Tensor

from contune.analysis.gradients import anchor_table as module
from contune.analysis.gradients import responses_by_anchor
from contune.analysis.gradients.anchor_figure import draw_anchors
from contune.analysis.gradients.anchor_table import SPREAD, AnchorTable
from contune.kernels.problem import Knobs

KNOBS = Knobs(0.1, 50.0, 1.2)
NAMES = ["a.png", "b.png", "c.png", "d.png", "e.png"]
LABELS = ["cat", "dog", "cat", "dog", "emu"]
ABOUT = {"method": "tcl", "data": "toy", "step": 1, "num_batches": 1, "embeddings_per_batch": 10, "temperature": 0.1}


def batch(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Two views of five images; the last image is alone in its class and one of its views is in none."""
    z_ND = torch.randn(10, 4, generator=torch.Generator().manual_seed(seed))
    return z_ND, torch.tensor([0, 1, 0, 1, 2] * 2)


def filled(num_batches: int = 2) -> AnchorTable:
    table = AnchorTable(KNOBS)
    for seed in range(num_batches):
        table.add(*batch(seed), NAMES, LABELS)
    return table


def test_rows_say_which_view_of_which_image_they_are() -> None:
    table = filled().table()
    assert table["batch"].to_pylist() == [0] * 10 + [1] * 10
    assert table["image"].to_pylist() == NAMES * 4
    assert table["view"].to_pylist() == ([0] * 5 + [1] * 5) * 2
    assert table["label"].to_pylist() == LABELS * 4
    found = responses_by_anchor(*batch(1), temperature=0.1, k1=50.0, k2=1.2)
    for name, values_N in found.items():
        numbers = np.array(table[name].to_pylist()[10:], dtype=float)
        np.testing.assert_allclose(numbers, values_N.numpy(), rtol=1e-6)


def test_a_large_batch_has_evenly_spaced_anchors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_PAIRS", 40)
    table = filled(1).table()
    assert table["image"].to_pylist() == ["a.png", "d.png", "b.png", "e.png"]
    assert table["view"].to_pylist() == [0, 0, 1, 1]
    whole = responses_by_anchor(*batch(), temperature=0.1, k1=50.0, k2=1.2, hard=None)
    np.testing.assert_allclose(table["P_in"].to_numpy(), whole["P_in"][::3].numpy(), rtol=1e-6)


def test_means_over_no_pairs_are_missing_and_left_out_of_the_spread() -> None:
    table = AnchorTable(KNOBS)
    z_ND, groups_N = batch()
    groups_N[9] = 7
    table.add(z_ND, groups_N, NAMES, [None] * 5)
    rows = table.table()
    assert rows["label"].null_count == 10
    assert rows["positive_gradient"].null_count == rows["X_ip"].null_count == 2
    spread = table.spread()
    assert (spread["num_anchors"], spread["num_without_positive"]) == (8, 2)
    known = [value for value in rows["positive_gradient"].to_pylist() if value is not None]
    curve = spread["quantiles"]["positive_gradient"]
    assert (curve[0], curve[-1]) == pytest.approx((min(known), max(known)))
    assert curve[50] == pytest.approx(np.median(known))
    assert curve == sorted(curve)


def test_at_how_many_anchors_tcl_is_stronger() -> None:
    rows, spread = filled().table(), filled().spread()
    for sign in ("positive", "negative"):
        mine, theirs = (rows[f"{loss}{sign}_gradient"].to_numpy() for loss in ("", "supcon_"))
        assert 0 < spread[f"stronger_{sign}_share"] == pytest.approx((mine > theirs).mean())


def test_the_drawing_has_both_losses_and_every_term() -> None:
    figure = draw_anchors({**ABOUT, "tcl": {"k1": 50.0, "k2": 1.2}, "by_anchor": filled().spread()})
    above, below = figure.subfigs
    spread = filled().spread()["quantiles"]
    for axes, sign in zip(above.axes, ("positive", "negative"), strict=True):
        supcon, tcl = (np.asarray(line.get_ydata()).tolist() for line in axes.lines)
        assert supcon == spread[f"supcon_{sign}_gradient"]
        assert tcl == spread[f"{sign}_gradient"]
    lines = [np.asarray(line.get_xdata()).tolist() for line in below.axes[0].lines]
    medians = {line[0] for line in lines if len(line) == 1}
    assert medians == {spread[name][50] for name in SPREAD if "gradient" not in name}


@pytest.mark.parametrize("groups", [list(range(10)), [0] * 10, [0, 1] * 5])
@pytest.mark.parametrize("knobs", [Knobs(0.1, 0.0, 1.0), Knobs(0.001, 5000.0, 0.0)])
def test_the_drawing_of_anchors_without_positives_negatives_or_terms(groups: list[int], knobs: Knobs) -> None:
    table = AnchorTable(knobs)
    table.add(batch()[0], torch.tensor(groups), NAMES, LABELS)
    figure = draw_anchors({**ABOUT, "tcl": {"k1": knobs.k1, "k2": knobs.k2}, "by_anchor": table.spread()})
    assert len(figure.subfigs) == 2
