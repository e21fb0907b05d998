"""Comparisons of made-up runs whose differences are known, and `contune report` on trained ones."""

import html
import json
import re
import shutil
from pathlib import Path

import pytest
from command_line import contune
from made_up_runs import compared_run, seeds
from strict_html import Page

from contune.report.compare import ComparedRun, comparison_page, grouped
from contune.run import RunFolder

TCL = seeds("tcl", "method.k1=4000", linear=(91.0, 92.0, 93.5))
SUPCON = seeds("supcon", "method.name=supcon", linear=(90.0, 91.2, 92.1))
EVIL = '<script>alert("1")</script>'


def text_of(runs: list[ComparedRun]) -> str:
    """What a person reads, with a space between any two cells."""
    body = comparison_page(grouped(runs)).partition("<body>")[2]
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", body)))


def test_means_intervals_and_paired_tests() -> None:
    text = text_of([*TCL, *SUPCON])
    assert "92.17 ± 3.13" in text
    # scipy's ttest_rel: from 0.308 to 1.826
    assert "TCL minus SupCon fast probe +1.07 ± 0.76 3" in text


def test_only_seeds_that_both_have_are_compared() -> None:
    late = compared_run("late", "method.name=supcon", seed=2, linear=93.0)
    assert "TCL minus SupCon fast probe +0.50 1" in text_of([*TCL, late])
    assert "cannot be compared" in text_of([*TCL, compared_run("other", "method.name=supcon", seed=9)])
    unfinished = compared_run("tcl/seed0", "method.k1=4000", seed=0, linear=None)
    text = text_of([unfinished, *TCL[1:], *SUPCON])
    assert "TCL minus SupCon fast probe +1.10 2" in text
    assert "not finished: 7.2 of 100 epochs" in text


def test_what_was_measured_otherwise_is_not_compared() -> None:
    assert "minus" not in text_of([*TCL, compared_run("x", "method.name=supcon", protocol="another")])
    folders = [compared_run(name, "data.name=images", f"data.path=/a/{name}") for name in ("birds", "flowers")]
    assert "minus" not in text_of(folders)
    assert "TCL auto on birds" in text_of(folders)


def test_a_method_that_trains_a_classifier_is_judged_by_it() -> None:
    classified = [
        compared_run(f"ce/seed{seed}", "method.name=cross-entropy", seed=seed, linear=95.0, classifier=top1)
        for seed, top1 in enumerate((88.0, 89.2, 90.1))
    ]
    text = text_of([*classified, *SUPCON])
    assert "89.10 ± 2.62 95.00 ± 0.00" in text
    assert "Cross-entropy minus SupCon classifier or fast probe −2.00 ± 0.00 3 fast probe +3.90 ± 2.62" in text


def test_runs_that_differ_in_the_seed_or_the_machine_are_one_group() -> None:
    elsewhere = compared_run("elsewhere", "method.k1=4000", "run.device=cuda", "run.log_every=5", seed=7)
    again = compared_run("again", "method.k1=4000", seed=0, linear=50.0)
    groups = grouped([*TCL, *SUPCON, elsewhere, again])
    assert [(group.title, [run.config.run.seed for run in group.runs]) for group in groups] == [
        ("TCL", [0, 1, 2, 7]),
        ("SupCon", [0, 1, 2]),
    ]
    assert "again" not in [run.name for run in groups[0].runs]


def test_the_page_is_safe_and_leaves_out_what_is_too_much() -> None:
    runs = [*TCL, *SUPCON, compared_run(EVIL, f"augment.policy={EVIL}"), compared_run("b", f"data.path={EVIL}")]
    source = comparison_page(grouped(runs))
    page = Page(source)
    page.check_safe()
    assert "<script" not in source
    assert page.text.count(EVIL) >= 2
    assert comparison_page(grouped(runs)) == source
    drawn = [a["aria-label"] for a in page.all("svg") if "by epoch" in a.get("aria-label", "")]
    assert len(drawn) == 2, "loss and pull of positives"
    many = [compared_run(f"run{k1}", f"method.k1={k1}") for k1 in range(1, 46)]
    assert "The first 30 of 1980 rows" in text_of(many)


@pytest.fixture(scope="module")
def trained(digits_run: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seeds in a folder as `train --seeds` makes it; the second is not finished."""
    folder = tmp_path_factory.mktemp("runs") / "both"
    for seed in (0, 1):
        run = RunFolder(shutil.copytree(digits_run[0], folder / f"seed{seed}"))
        run.config().override([f"run.seed={seed}"]).save(run.path / "config.json")
    (folder / "seed1" / "result.json").unlink()
    return folder


def test_a_report_is_written_again(trained: Path) -> None:
    one = trained / "seed0"
    outcome = contune("report", one)
    assert (outcome.code, outcome.err) == (0, "")
    page = Page((one / "report.html").read_text(encoding="utf-8"))
    page.check_safe()
    top1 = json.loads((one / "result.json").read_text())["linear_top1"]
    assert f"{top1:.2f}" in page.text
    assert "misclassified" in page.text
    assert contune("report", trained / "seed1").code == 0
    assert "not finished: 2.0 of 2 epochs" in Page((trained / "seed1" / "report.html").read_text()).text


def test_a_folder_of_seeds_stands_for_its_runs(trained: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(trained / "seed0", tmp_path / "moved")
    config = json.loads((moved / "config.json").read_text())
    config["data"] |= {"name": "cifar10", "path": "/nowhere"}
    (moved / "config.json").write_text(json.dumps(config))
    assert contune("report", trained, moved, "--out", tmp_path / "page.html").code == 0
    page = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert str(trained / "seed1") in page.text
