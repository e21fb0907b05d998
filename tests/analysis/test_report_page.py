"""The whole page, over the kinds of runs there are."""

import re
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from finished_runs import finished_run, image_set, report, unlabelled_run, unmeasured_run
from strict_html import Page

from contune.data.datasets import load_dataset

RUNS = {
    "labelled": finished_run(),
    "no labels": unlabelled_run(),
    "no test split": unmeasured_run(),
    "one class": finished_run(30, 1),
    "two images": finished_run(2, 2),
    "one image": finished_run(1, 2),
    "twelve classes": finished_run(60, 12),
    "a hundred classes": finished_run(300, 100),
    "colour photos": finished_run(20, 3, side=200, channels=3),
    "nothing logged": finished_run() | {"metrics": []},
    "no probe": finished_run() | {"predicted_M": None},
    "collapsed": finished_run() | {"features_MD": torch.ones(60, 3)},
    "diverged": finished_run() | {"features_MD": torch.full((60, 3), torch.nan)},
    "one feature": finished_run(40, 2) | {"features_MD": torch.linspace(-1, 1, 40)[:, None]},
    "wide features": finished_run(30, 3)
    | {"features_MD": torch.randn(30, 200, generator=torch.Generator().manual_seed(0))},
}


@pytest.fixture(scope="module", params=RUNS)
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return report(tmp_path_factory.mktemp("run"), RUNS[request.param])


def test_every_tag_is_closed_and_every_anchor_unique(source: str) -> None:
    page = Page(source)
    anchors = [attributes["id"] for _, attributes in page.attributes if "id" in attributes]
    assert len(anchors) == len(set(anchors))
    assert page.all("html") == [{"lang": "en"}]


def test_nothing_is_fetched_from_anywhere(source: str) -> None:
    page = Page(source)
    for tag, attributes in page.attributes:
        for name in ("src", "href", "xlink:href", "action", "data", "srcset", "poster"):
            assert attributes.get(name, "#").startswith(("#", "data:")), (tag, attributes)
    assert not re.search(r"https?://", re.sub(r'xmlns(:\w+)?="[^"]*"', "", source))
    assert not re.search(r"@import|url\((?!#)", source)
    assert not page.all("script")


def test_no_number_is_missing(source: str) -> None:
    assert not re.search(r"\b(nan|NaN|inf|None|tensor)\b", Page(source).text)


def test_pictures_and_tables_speak_to_those_who_do_not_see_them(source: str) -> None:
    page = Page(source)
    assert all(attributes.get("alt") for attributes in page.all("img"))
    assert all(attributes.get("scope") in ("row", "col") for attributes in page.all("th"))
    assert all("aria-label" in attributes or "aria-hidden" in attributes for attributes in page.all("svg"))


def test_the_headline_says_what_was_trained_and_how_good_it_is(tmp_path: Path) -> None:
    text = Page(report(tmp_path, finished_run())).text
    for expected in (
        "tcl on toy",
        "resnet-mini encoder",
        "7 epochs",
        "1 min 15 s",
        "80.0\u202f%",
        "raw pixels 80.0\u202f%",
    ):
        assert expected in text
    assert "most frequent class would score 33.3" in text


def test_each_accuracy_has_its_protocol_and_split(tmp_path: Path) -> None:
    run = finished_run()
    text = Page(report(tmp_path, run)).text
    assert [m["protocol"] in text for m in run["result"]["measures"]] == [True] * 4
    assert "68.2 – 88.2" in text  # the Wilson interval of 48 of 60


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (unlabelled_run(), "have no labels"),
        (unmeasured_run(), "has no test split"),
        (RUNS["nothing logged"], "Nothing was logged"),
        (RUNS["no probe"], "eval.linear=none asked for none"),
        (RUNS["collapsed"], "the encoder has collapsed"),
        (RUNS["diverged"], "training has diverged"),
        (RUNS["one class"], "No image was misclassified"),
        (RUNS["two images"], "at least 5 images; there are 2"),
        (RUNS["one image"], "at least two images"),
    ],
)
def test_what_is_missing_has_its_reason(tmp_path: Path, run: dict[str, Any], reason: str) -> None:
    assert reason in Page(report(tmp_path, run)).text


def test_what_comes_from_outside_stays_text(tmp_path: Path) -> None:
    evil = "<script>alert('{}')</script>\"><img src=x onerror=alert(1)>&amp;"
    run = finished_run(60, 12, class_name=evil, name='/tmp/"it\'s" <b>&\x00\udcff{}.png')
    run["config"]["data"]["path"] = "<script>'\"</script>"
    run["result"] |= {"data": "images", "hardware": "<script>", "encoder": '"<b>', "git_revision": "<i>"}
    run["metrics"] = [line | {'<b>"metric': 1.0} for line in run["metrics"]]
    page = Page(report(tmp_path, run))
    assert not page.all("script")
    assert not any(name.startswith("on") for _, attributes in page.attributes for name in attributes)
    assert all(attributes["src"].startswith("data:image/") for attributes in page.all("img"))
    assert evil.format(0) in page.text
    assert '/tmp/"it\'s" <b>&\ufffd\ufffd0.png' in page.text


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    assert report(tmp_path, finished_run()) == report(tmp_path, finished_run())


def test_the_file_stays_small(tmp_path: Path) -> None:
    run = finished_run(2500, 100, side=160, channels=3, name="/a/rather/long/path/" * 4 + "{}.jpg")
    run["metrics"] = [{"step": i, "loss": 1 / (1 + i), "lr": 0.1, "online_top1": 0.1} for i in range(20_000)]
    source = report(tmp_path, run)
    assert len(Page(source).all("title")) == 2000 + 1
    assert len(source.encode()) < 3_000_000


def test_the_default_data_set_takes_seconds(tmp_path: Path) -> None:
    """Digits with 256 features; it takes two seconds on an idle core."""
    images = load_dataset("digits").test
    assert images is not None
    assert images.labels is not None
    run = finished_run(len(images), 10)
    features_MD = torch.randn(len(images), 256, generator=torch.Generator().manual_seed(0))
    features_MD[:, :10] += 8 * torch.eye(10)[images.labels]
    started = time.process_time()
    report(tmp_path, run | {"images": images, "features_MD": features_MD, "predicted_M": images.labels.flip(0)})
    assert time.process_time() - started < 8


def test_without_labels_neighbours_are_not_judged(tmp_path: Path) -> None:
    page = Page(report(tmp_path, unlabelled_run()))
    assert "another class" not in page.text
    assert not [a for a in page.all("figure") if a.get("class") == "other"]
    assert len(page.all("img")) == 8 * 7


def test_an_empty_split_is_no_split(tmp_path: Path) -> None:
    empty = unlabelled_run() | {"images": image_set(None, 0), "features_MD": torch.zeros(0, 3)}
    assert "has no test split" in Page(report(tmp_path, empty)).text


def test_a_class_without_test_images_is_not_in_the_legend(tmp_path: Path) -> None:
    run = finished_run()
    run["class_names"] = (*run["class_names"], "never tested")
    source = report(tmp_path, run)
    legend = source[source.index('<ul class="legend">') :].partition("</ul>")[0]
    assert [f"class {k}</li>" in legend for k in range(3)] == [True] * 3
    assert "never tested" not in legend
    assert "so not measured: never tested." in source


@pytest.mark.parametrize(("name", "look"), [("c{}", "queries"), ("motorcycle {}", "queries roomy")])
def test_long_names_get_room_among_the_neighbours_and_are_whole_on_hovering(
    tmp_path: Path, name: str, look: str
) -> None:
    page = Page(report(tmp_path, finished_run(60, 3, class_name=name)))
    assert [a["class"] for a in page.all("div") if "queries" in (a.get("class") or "")] == [look]
    titles = [a["title"] for a in page.all("li") if "cosine" in (a.get("title") or "")]
    assert len(titles) == 8 * 6
    assert all(title.startswith(name.format("")) for title in titles)
