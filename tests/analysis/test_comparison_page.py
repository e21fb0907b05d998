"""Several runs on one page: what is grouped, tested, drawn and escaped."""

import html
import re

import pytest
from compared_runs import made_up, seeds
from finished_runs import finished_run
from strict_html import Page

from contune.analysis.comparison.page import comparison_page, mapped_runs
from contune.analysis.comparison.runs import Run, different_settings, grouped
from contune.analysis.comparison.tables import p_value
from contune.analysis.measured import Measured

TCL = seeds("tcl", "method.k1=4000", linear=(91.0, 92.0, 93.5))
SUPCON = seeds("supcon", "method.name=supcon", linear=(90.0, 91.2, 92.1))


def text_of(runs: list[Run], **more: object) -> str:
    """What a person reads, a space between any two cells."""
    body = comparison_page(runs, **more).partition("<body>")[2]  # type: ignore[arg-type]
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", body)))


def measured() -> Measured:
    run = finished_run()
    return Measured(
        images=run["images"],
        channels=1,
        class_names=run["class_names"],
        features=run["features_MD"],
        predicted=run["predicted_M"],
    )


def test_runs_that_differ_in_the_seed_or_the_machine_are_one_group() -> None:
    elsewhere = made_up("elsewhere", "method.k1=4000", "run.device=cuda", "run.log_every=5", seed=7)
    groups = grouped([*TCL, *SUPCON, elsewhere])
    assert [(group.title, [run.seed for run in group.runs]) for group in groups] == [
        ("tcl", [0, 1, 2, 7]),
        ("supcon", [0, 1, 2]),
    ]


def test_titles_say_what_tells_groups_apart() -> None:
    titles = [group.title for group in grouped([*TCL, made_up("a", "method.k1=50"), *SUPCON])]
    assert titles == ["tcl, k1 4000", "tcl, k1 50", "supcon"]
    titles = [group.title for group in grouped([made_up("a", "optim.epochs=5"), made_up("b", "optim.epochs=7")])]
    assert titles == ["tcl, epochs 5", "tcl, epochs 7"]
    titles = [group.title for group in grouped([made_up("a", "data.path=x"), made_up("b", "data.path=y")])]
    assert titles == ["tcl (a)", "tcl (b)"]


def test_a_seed_that_was_run_twice_counts_once() -> None:
    text = text_of([*TCL, made_up("again", "method.k1=4000", seed=0, linear=50.0)])
    assert "92.17 ± 3.13" in text
    assert "again, the same run again" in text


def test_means_intervals_and_paired_tests() -> None:
    text = text_of([*TCL, *SUPCON])
    assert "92.17 ± 3.13" in text
    # scipy's ttest_rel: p = 0.02627, from 0.308 to 1.826
    assert "tcl minus supcon Linear probe +1.07 ± 0.76 0.026 3" in text


def test_only_seeds_that_both_have_are_compared() -> None:
    text = text_of([*TCL, made_up("late", "method.name=supcon", seed=2, linear=93.0)])
    assert "tcl minus supcon Linear probe +0.50 – 1" in text
    alone = text_of([*TCL, made_up("other", "method.name=supcon", seed=9)])
    assert "No two rows have a finished seed in common" in alone


def test_what_was_measured_otherwise_is_not_tested_and_the_page_says_so() -> None:
    other = made_up("other", "method.name=supcon", linear_protocol="another probe", knn_protocol="another kNN")
    text = text_of([*TCL, other])
    assert "not all rows were measured alike" in text
    assert "minus" not in text


def test_an_unfinished_run_is_shown_with_what_it_has() -> None:
    text = text_of([*TCL, made_up("cut", "method.k1=50", linear=None)])
    assert "cut, not finished: 7.2 of 100 epochs" in text
    assert "1 not finished" in text
    assert "tcl, k1 50" in text


def test_settings_that_differ_and_no_others() -> None:
    assert set(different_settings([TCL[0], SUPCON[0]])) >= {"method.name", "method.k1"}
    page = Page(comparison_page([*TCL, made_up("a", "method.k1=50")]))
    assert "method.k1" in page.text
    assert "optim.lr" not in page.text
    assert "run.seed" not in page.text
    assert "All runs have the same settings" in text_of(TCL)


def test_every_metric_is_drawn_once_with_a_line_for_each_run() -> None:
    page = comparison_page([*TCL, *SUPCON])
    labels = [label for label in re.findall(r'aria-label="([^"]*)"', page) if "by epoch" in label]
    assert [label.partition(" by")[0] for label in labels] == ["Loss", "Pull of positives"]
    assert all("of 6 runs" in label for label in labels)
    assert page.count("var(--c0)") > 2
    assert page.count("var(--c1)") > 2


def test_maps_stand_side_by_side_and_a_missing_one_has_its_reason() -> None:
    runs = [*TCL, *SUPCON]
    assert [run.name for run in mapped_runs(runs)] == ["tcl/seed0", "supcon/seed0"]
    page = Page(comparison_page(runs, {"tcl/seed0": measured(), "supcon/seed0": "No map: no <data> here."}))
    assert sum(attributes.get("class") == "map" for attributes in page.all("svg")) == 1
    assert "No map: no <data> here." in page.text


def test_names_and_settings_are_text_and_never_markup() -> None:
    evil = '<script>alert("1")</script>'
    runs = [
        made_up(evil, f"data.path={evil}"),
        made_up("b", f"augment.policy={evil}"),
        made_up(f"{evil}2", linear=None),
    ]
    source = comparison_page(runs, {evil: f"No map: {evil}"})
    page = Page(source)
    assert not page.all("script")
    assert "<script" not in source
    assert page.text.count(evil) > 3


def test_nothing_is_fetched_and_anchors_are_unique() -> None:
    page = Page(comparison_page([*TCL, *SUPCON], {"tcl/seed0": measured(), "supcon/seed0": measured()}))
    anchors = [attributes["id"] for _, attributes in page.attributes if "id" in attributes]
    assert len(anchors) == len(set(anchors))
    for _, attributes in page.attributes:
        for name in ("src", "href", "xlink:href"):
            assert attributes.get(name, "#").startswith(("#", "data:"))


def test_the_same_runs_give_the_same_bytes() -> None:
    assert comparison_page([*TCL, *SUPCON]) == comparison_page([*TCL, *SUPCON])


@pytest.mark.parametrize(("p", "text"), [(None, "–"), (0.0, "&lt; 0.001"), (0.0304, "0.030")])
def test_p_as_a_person_reads_it(p: float | None, text: str) -> None:
    assert p_value(p) == text
