"""The report of made-up runs of every kind, read by a strict parser."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from made_up_runs import finished_run, image_set, report, unevaluated_run, unlabelled_run
from strict_html import Page

from contune.report import plots
from contune.report.style import METHOD_STYLES

TCL = METHOD_STYLES["tcl"]
RUNS = {
    "labelled": (finished_run() | {"skipped": [("a.png", "truncated")]}, "misclassified 12 of 60"),
    "no labels": (unlabelled_run(), "no labels"),
    "no test split": (unevaluated_run(), "no test split"),
    "one image": (finished_run(1, 2), "at least 5 images"),
    "a hundred classes": (finished_run(300, 100), "worst 30 of 100"),
    "classes of the measure that predicts": (finished_run() | {"predicted_by": "knn"}, "(knn), the worst first"),
    "photos": (finished_run(20, 3, side=200, channels=3), "TCL on toy"),
    "nothing logged": (finished_run() | {"metrics": []}, "Nothing was logged"),
    "no probe": (finished_run() | {"predicted_M": None, "predicted_by": ""}, "eval.linear=none"),
    "collapsed": (finished_run() | {"features_MD": torch.ones(60, 3)}, "collapsed"),
    "diverged": (finished_run() | {"features_MD": torch.full((60, 3), torch.nan)}, "diverged"),
    "several labels": (finished_run() | {"images": image_set(torch.eye(3)[torch.arange(60) % 3], 60)}, "t-SNE of 60"),
}


@pytest.mark.parametrize("name", RUNS)
def test_every_kind_of_run_gives_a_safe_and_complete_page(name: str, tmp_path: Path) -> None:
    run, expected = RUNS[name]
    source = report(tmp_path, run)
    page = Page(source)
    page.check_safe()
    assert not re.search(r"https?://", re.sub(r'xmlns(:\w+)?="[^"]*"', "", source))
    assert not re.search(r"@import|url\((?!#)", source)
    assert not re.search(r"\b(nan|NaN|inf|None|tensor)\b", page.text)
    assert expected in page.text
    for measure in run["result"]["measures"]:
        assert measure["protocol"] in page.text
        assert f"{measure['top1']:.1f}" in page.text


EVIL = "<script>alert('{}')</script>\"><img src=x onerror=alert(1)>&amp;"


def test_what_comes_from_outside_stays_text(tmp_path: Path) -> None:
    run = finished_run(60, 12, class_name=EVIL, name='/tmp/"it\'s" <b>&\x00\udcff{}.png')
    run["config"] |= {"data": {"name": EVIL, "path": EVIL}, EVIL: {EVIL: [EVIL]}}
    run["result"] |= {"data": "images", "hardware": EVIL, "encoder": EVIL, "git_revision": EVIL, "method": EVIL}
    run["result"]["versions"] = {EVIL: EVIL}
    run["metrics"] = [line | {EVIL: 1.0} for line in run["metrics"]]
    run["skipped"] = [(EVIL, EVIL)]
    for measure in run["result"]["measures"]:
        measure["protocol"] = EVIL
    source = report(tmp_path, run)
    page = Page(source)
    page.check_safe()
    assert EVIL.format(0) in page.text
    assert '/tmp/"it\'s" <b>&\ufffd\ufffd0.png' in page.text
    assert "default-src 'none'" in source


def test_neighbors_are_the_nearest_by_cosine() -> None:
    angles = torch.tensor([0.0, 0.1, 1.5, 3.0])
    features_MD = torch.stack([angles.cos(), angles.sin()], dim=1) * torch.tensor([[1.0], [5.0], [2.0], [1.0]])
    (query, nearest), *_ = plots.neighbors(features_MD, np.full(4, ""))
    assert (query, [index for index, _ in nearest]) == (0, [1, 2, 3])
    assert nearest[0][1] == pytest.approx(math.cos(0.1))
