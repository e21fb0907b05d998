"""The picture of the trials: every name can be read, whatever lies beside it."""

from itertools import combinations
from pathlib import Path

import matplotlib
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox
from PIL import Image

from contune.experiments.style import STYLE
from contune.tune.plot import draw_trials, trials_figure
from contune.tune.trial import OWN, PAPER, SUPCON, Trial, Values


def trial(k1: float, k2: float, accuracy: float, why: str = "") -> Trial:
    return Trial(values=Values(k1, k2), accuracy=accuracy, knn=accuracy, num_images=180, why=why)


def given_up(k1: float) -> Trial:
    return Trial(values=Values(k1, 1.0), knn=50.0, stopped_at=4)


SITUATIONS = {
    "the choice is the recipe's": [trial(500, 1, 97.2, OWN), trial(5000, 1, 96.1, PAPER)],
    "the same place": [trial(500, 1.1, 97.2), trial(500, 1, 97.2, OWN), trial(5000, 1, 96.1, PAPER)],
    "nearly": [trial(500, 1.1, 97.3), trial(510, 1, 97.28, OWN), trial(5000, 1, 90.0, PAPER)],
    "next to each other": [trial(500, 1.1, 97.4), trial(500, 1, 97.3, OWN), trial(5000, 1, 95.1, PAPER)],
    "all three": [trial(5100, 1.3, 98.21), trial(4900, 1, 98.2, OWN), trial(5000, 1, 98.2, PAPER), trial(9, 1, 97)],
    "far away": [trial(2.5, 2, 99), trial(500, 1, 97, OWN), trial(5000, 1, 96, PAPER), trial(0, 1, 95, SUPCON)],
    "at the right edge": [trial(20000, 3, 98), trial(19000, 1, 97.9, OWN), trial(5000, 1, 96, PAPER), trial(1, 2, 96)],
    "at the left edge": [trial(1, 2.9, 98), trial(1.1, 1, 97.9, OWN), trial(5000, 1, 96, PAPER)],
    "on a line": [trial(4000, 2, 97), trial(500, 1, 97, OWN), trial(5000, 1, 97, PAPER), trial(0, 1, 97, SUPCON)],
    "all right": [trial(40.9, 1, 100), trial(500, 1, 100, OWN), trial(5000, 1, 100, PAPER)]
    + [trial(10 ** (i / 3), 1 + i / 9, 100) for i in range(12)] + [given_up(9)],
    "one alone": [trial(500, 1, 98.2, OWN)],
    "the recipe is SupCon": [trial(0, 1, 97, f"{OWN} and {SUPCON}"), trial(5000, 1, 96, PAPER), given_up(3)],
    "nothing but SupCon": [trial(0, 1, 97, f"{OWN} and {SUPCON}")],
}  # fmt: skip
"""The first is the choice."""


def figure_of(trials: list[Trial]) -> Figure:
    with matplotlib.rc_context(STYLE):
        figure = trials_figure(trials, trials[0], title="digits")
        figure.draw_without_rendering()
    return figure


def names_in(figure: Figure) -> dict[str, Bbox]:
    texts = [text for text in figure.axes[0].texts if isinstance(text, Annotation)]
    return {text.get_text(): text.get_window_extent() for text in texts}


@pytest.mark.parametrize("situation", SITUATIONS)
def test_no_name_is_over_another_or_cut_off(situation: str) -> None:
    trials = SITUATIONS[situation]
    figure = figure_of(trials)
    names = names_in(figure)
    for one, other in combinations(names.values(), 2):
        assert not one.overlaps(other), names
    inside = figure.axes[0].bbox
    for box in names.values():
        assert inside.containsx(box.x0), names
        assert inside.containsx(box.x1), names
        assert inside.containsy(box.y0), names
        assert inside.containsy(box.y1), names
    for word in ["chosen", *(each.why for each in trials if each.why)]:
        assert sum(word in name for name in names) == 1


@pytest.mark.parametrize("situation", ["far away", "next to each other", "all right"])
def test_no_name_is_over_a_mark(situation: str) -> None:
    figure = figure_of(SITUATIONS[situation])
    marks = [(t.values.k1, t.accuracy or 0.0) for t in SITUATIONS[situation] if t.is_finished and t.values.k1 > 0]
    for place in figure.axes[0].transData.transform(marks):
        assert not any(box.contains(*place) for box in names_in(figure).values())


def test_marks_in_one_place_have_one_name_with_the_values_of_each() -> None:
    for situation, words in (
        ("the same place", "chosen: k1 500, k2 1.1\nthe recipe's own: k1 500, k2 1"),
        ("nearly", "chosen: k1 500, k2 1.1\nthe recipe's own: k1 510, k2 1"),
    ):
        assert set(names_in(figure_of(SITUATIONS[situation]))) == {words, "the paper's default"}


def test_the_choice_is_drawn_over_what_lies_in_the_same_place() -> None:
    axes = figure_of([trial(500, 1, 97, OWN), trial(500, 1.5, 97)]).axes[0]
    assert axes.collections[0].get_array().tolist() == [1.5, 1.0]  # type: ignore[union-attr]


def test_no_accuracy_above_100_is_on_the_axis() -> None:
    ticks = figure_of(SITUATIONS["all right"]).axes[0].get_yticks().tolist()
    assert max(ticks) == 100
    assert len(ticks) > 2


def test_the_file_is_a_picture_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    trials = SITUATIONS["far away"]
    draw_trials(tmp_path / "trials.png", trials, trials[0], title="digits")
    with Image.open(tmp_path / "trials.png") as picture:
        assert picture.size == (1216, 704)
    assert [path.name for path in tmp_path.iterdir()] == ["trials.png"]
