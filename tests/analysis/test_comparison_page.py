"""Several runs on one page: what is grouped, tested, drawn and escaped."""

import re

from compared_runs import made_up, seeds, text_of
from finished_runs import finished_run
from strict_html import Page

from contune.analysis.comparison.page import comparison_page, mapped_runs
from contune.analysis.comparison.runs import different_settings, grouped
from contune.analysis.measured import Measured

TCL = seeds("tcl", "method.k1=4000", linear=(91.0, 92.0, 93.5))
SUPCON = seeds("supcon", "method.name=supcon", linear=(90.0, 91.2, 92.1))


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


def test_a_seed_that_was_run_twice_counts_once() -> None:
    text = text_of([*TCL, made_up("again", "method.k1=4000", seed=0, linear=50.0)])
    assert "92.17 ± 3.13" in text
    assert "again, the same run again" in text


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


def test_a_page_that_leaves_rows_out_says_so() -> None:
    many = [made_up(f"run{k1}", f"method.k1={k1}") for k1 in range(1, 46)]
    maps = {run.name: "No map: a test." for run in mapped_runs(many)}
    text = text_of(many, maps=maps)
    assert "The first 15 of 990 pairs are shown" in text
    assert "The first 40 of 45 rows. A line for each run" in text
    assert "The first 6 of 45 rows are shown" in text
    assert "The first" not in text_of([*TCL, *SUPCON], maps={"tcl/seed0": "No map.", "supcon/seed0": "No map."})


def test_a_persons_own_images_are_called_by_their_folder() -> None:
    text = text_of([made_up("a", "data.name=images", "data.path=/data/flowers")])
    assert "tcl on flowers" in text


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
