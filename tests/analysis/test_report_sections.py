"""What the sections compute, on cases that can be checked by hand."""

import re

import numpy as np
import pytest
import torch
from finished_runs import image_set

from contune.analysis.classes import per_class
from contune.analysis.confusion import confusions, frequent_mistakes, worst_classes
from contune.analysis.curves import MAX_POINTS, curves, draw, number
from contune.analysis.measured import Measured, evenly_spaced
from contune.analysis.neighbours import choose_queries, nearest
from contune.analysis.page import escape, shorten, shorten_path
from contune.analysis.projection import project
from contune.analysis.wording import duration, wilson_interval


def test_the_most_confused_classes_are_those_mistakes_touch() -> None:
    counts_KK = torch.diag(torch.full((20,), 9))
    counts_KK[3, 8], counts_KK[5, 8], counts_KK[0, 19] = 4, 2, 1
    assert worst_classes(counts_KK) == [0, 3, 5, 8, 19]
    assert frequent_mistakes(counts_KK) == [(3, 8, 4), (5, 8, 2), (0, 19, 1)]


def test_at_most_ten_classes_are_shown_the_worst_ones() -> None:
    counts_KK = torch.arange(15)[:, None].expand(15, 15).clone()
    assert worst_classes(counts_KK) == list(range(5, 15))


def test_nearest_leaves_out_the_query_and_ignores_length() -> None:
    features_MD = torch.tensor([[1.0, 0.0], [5.0, 0.1], [0.0, 1.0], [-1.0, 0.0]])
    indices_QK, similarities_QK = nearest(features_MD, [0, 2])
    assert indices_QK.tolist() == [[1, 2, 3], [1, 0, 3]]
    assert similarities_QK[0].tolist() == pytest.approx([5 / 25.01**0.5, 0, -1], abs=1e-6)


@pytest.mark.parametrize(("num_wrong", "expected_wrong"), [(0, 0), (1, 1), (4, 4), (50, 4), (98, 6), (100, 8)])
def test_queries_mix_right_and_wrong(num_wrong: int, expected_wrong: int) -> None:
    wrong_M = torch.arange(100) < num_wrong
    queries = choose_queries(wrong_M)
    assert len(queries) == len(set(queries)) == 8
    assert int(wrong_M[queries].sum()) == expected_wrong


def test_few_images_are_all_asked_about() -> None:
    assert sorted(choose_queries(torch.tensor([True, False, True]))) == [0, 1, 2]


def test_evenly_spaced_covers_the_whole() -> None:
    assert evenly_spaced(3, 5).tolist() == [0, 1, 2]
    assert evenly_spaced(10, 5).tolist() == [0, 2, 4, 6, 8]
    assert evenly_spaced(50_000, 2000).unique().numel() == 2000


def test_the_map_keeps_clusters_together() -> None:
    generator = torch.Generator().manual_seed(0)
    labels_N = torch.arange(120) % 3
    features_ND = 5 * torch.eye(3, 64)[labels_N] + 0.3 * torch.randn(120, 64, generator=generator)
    xy_N2 = torch.from_numpy(project(features_ND * torch.rand(120, 1, generator=generator)))
    distance_NN = torch.cdist(xy_N2, xy_N2).fill_diagonal_(torch.inf)
    assert torch.equal(labels_N[distance_NN.argmin(dim=1)], labels_N)


def test_many_classes_show_the_worst_and_the_best() -> None:
    accuracy = {f"c{k:02d}": float(k) for k in range(40)}
    html = per_class("linear", accuracy, dict.fromkeys(accuracy, 7))
    shown = [name for name in accuracy if f">{name}<" in html]
    assert shown == [f"c{k:02d}" for k in [*range(15), *range(35, 40)]]
    assert "not measured" not in html


def test_classes_without_images_are_named() -> None:
    counts = {"cat": 3, "dog <b>": 0} | {f"c{k:02d}": 0 for k in range(20)}
    html = per_class("knn", {"cat": 50.0}, counts)
    assert "so not measured: dog &lt;b&gt;, c00, c01" in html
    assert "c10 and 9 more." in html


def test_other_is_a_column_only_where_others_were_meant() -> None:
    names = tuple(f"class {k}" for k in range(14))
    labels_M = torch.arange(28) % 14
    few = labels_M.clone()
    few[:2] = torch.tensor([1, 0])
    many = (labels_M + (labels_M < 12).long() * 2) % 14
    for predicted_M, expected in ((few, False), (many, True)):
        measured = Measured(
            images=image_set(labels_M, 28), channels=1, class_names=names, features=torch.ones(28, 2),
            predicted=predicted_M,
        )  # fmt: skip
        assert ("<span>other</span>" in confusions(measured, "probe")) == expected


def test_curves_leave_out_what_is_not_finite_and_say_so() -> None:
    metrics = [{"step": i, "loss": float("nan") if i > 7 else 1.0, "bad": float("inf")} for i in range(10)]
    html = curves(metrics)
    assert "2 values were not finite" in html
    assert "Never a finite number" in html


def test_long_runs_are_drawn_by_their_means() -> None:
    num = 3 * MAX_POINTS
    svg = draw("loss", "step", np.stack([np.arange(num), np.tile([0.0, 3.0, 6.0], MAX_POINTS)], axis=1), "")
    assert svg.count("L ") < 2 * MAX_POINTS
    assert "mean of 3 logged lines" in curves([{"step": i, "loss": 0.1} for i in range(num)])


def test_one_logged_line_is_a_dot_of_each_loss_above_its_step() -> None:
    alone, beside = np.array([[2.0, 0.05]]), np.array([[2.0, 0.04]])
    svg = draw("positive_gradient", "step", alone, "", beside)
    assert svg.count("<use") == 4  # two in the drawing, two in its legend
    assert ">2</text>" in svg
    assert not re.search(r">(1\.9|2\.0|1\.95|2\.05|2\.1)</text>", svg)


def test_points_are_marked_where_they_are_few() -> None:
    few, many = (np.stack([np.arange(num), np.arange(num) % 3], axis=1) for num in (12, 13))
    assert draw("loss", "step", few, "").count("<use") == 12
    assert "<use" not in draw("loss", "step", many, "")


def test_the_learning_rate_in_bold_is_called_what_it_is() -> None:
    html = curves([{"step": step, "loss": 1.0, "lr": lr} for step, lr in ((20, 0.03585), (28, 0.001))])
    assert "Learning rate <b>0.03585</b>" in html
    assert "the highest of those logged" in html


def test_curves_are_drawn_in_the_pages_colours() -> None:
    svg = draw("loss", "step", np.array([[1.0, 2.0], [2.0, 1.0]]), "Loss")
    assert "var(--accent)" in svg
    assert "#ffffff" not in svg
    assert ">step</text>" in svg


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (9.94, "9.9 s"), (59.4, "59 s"), (59.7, "1 min 00 s"), (3725, "1 h 02 min")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (3396.2, "3,396"), (0.30000000000000004, "0.3"), (1e-5, "1e-05")]
)
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


def test_the_interval_is_sound_at_its_ends() -> None:
    assert wilson_interval(100, 10) == pytest.approx((72.2, 100.0), abs=0.1)
    assert wilson_interval(0, 10) == pytest.approx((0.0, 27.8), abs=0.1)


def test_text_is_made_safe_and_short() -> None:
    assert escape('<a href="x">\'&\n\udc80') == "&lt;a href=&quot;x&quot;&gt;&#x27;&amp; \ufffd"
    assert shorten("tabby, tabby cat", 8) == "tabby,…"
    assert shorten_path("/a/long/path.png", 9) == "…path.png"
    assert shorten("short", 5) == shorten_path("short", 5) == "short"


def test_responses_of_supcon_are_drawn_beside_those_of_tcl() -> None:
    line = {"step": 1, "positive_gradient": 0.05, "supcon_positive_gradient": 0.04, "theorem1_share": 0.97}
    html = curves([line, line | {"step": 2, "positive_gradient": 0.06}])
    assert html.count("<figure>") == 2
    assert "Pull of positives <b>0.06</b>" in html
    assert "SupCon on the same embeddings: last 0.04" in html
    assert ">SupCon</text>" in html
    assert "Theorem 1 holds, % <b>97</b>" in html
    assert "SupCon" not in curves([{"step": 1, "loss": 1.0, "positive_gradient": 0.05}])
