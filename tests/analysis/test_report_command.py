"""`contune report` on real runs: one again, several together, and folders that are none."""

import json
import re
import shutil
from pathlib import Path

import pytest
from command_line import contune, train
from strict_html import Page

from contune.experiments.outcome import KNN, LINEAR, TOP1, Outcome
from contune.experiments.plan import Row


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs that differ in a name like an attack, and a folder with the beginning of one."""
    place = tmp_path_factory.mktemp("runs")
    small = ("digits", "optim.epochs=1", "optim.batch_images=256", "run.log_every=1")
    train(place / "one", *small)
    train(place / "<script>alert(1)<", *small, "method.name=supcon")
    begun = place / "begun"
    begun.mkdir()
    shutil.copy(place / "one" / "config.json", begun)
    shutil.copy(place / "one" / "metrics.jsonl", begun)
    return place


def test_the_report_of_one_run_is_written_again(runs: Path) -> None:
    outcome = contune("report", runs / "one")
    assert outcome.code == 0, outcome.err
    assert str(runs / "one" / "report.html") in outcome.out
    page = Page((runs / "one" / "report.html").read_text(encoding="utf-8"))
    assert any(attributes.get("id") == "map" for _, attributes in page.attributes)
    assert "The linear probe misclassified" in page.text


def test_it_is_what_training_writes(runs: Path, tmp_path: Path) -> None:
    words = ("digits", "optim.epochs=1", "optim.batch_images=256", "run.tensorboard=false", "--out", tmp_path / "run")
    assert contune("train", *words).code == 0
    written = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert contune("report", tmp_path / "run").code == 0
    assert (tmp_path / "run" / "report.html").read_text(encoding="utf-8") == written


def test_several_runs_are_one_page(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "new folder" / "page.html"
    outcome = contune("report", runs / "one", runs / "<script>alert(1)<", runs / "begun", "--out", out)
    assert outcome.code == 0, outcome.err
    page = Page(out.read_text(encoding="utf-8"))
    assert not page.all("script")
    assert "<script>alert(1)<" in page.text
    assert sum(attributes.get("class") == "map" for attributes in page.all("svg")) == 2
    assert "begun, the same run again" in page.text


def test_pages_are_written_over_their_like_alone(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "comparison.html").write_text("mine")
    for words in ((), ("--out", "comparison.html")):
        outcome = contune("report", runs / "one", runs / "begun", *words)
        assert outcome.code == 2
        assert "comparison.html is there already and is not what this command writes; remove it" in outcome.err
    assert (tmp_path / "comparison.html").read_text() == "mine"
    (tmp_path / "comparison.html").unlink()
    for _ in range(2):
        assert contune("report", runs / "begun", "--out", "comparison.html").code == 0


def test_it_agrees_with_an_experiment_of_the_same_runs(runs: Path, tmp_path: Path) -> None:
    train(tmp_path / "ce", "digits-ce", "optim.epochs=1", "optim.batch_images=256")
    assert contune("report", tmp_path / "ce", runs / "one", "--out", tmp_path / "page.html").code == 0
    cells = re.sub(r"<[^>]+>", " ", (tmp_path / "page.html").read_text(encoding="utf-8")).split()
    for folder in (tmp_path / "ce", runs / "one"):
        outcome = Outcome(Row(title="", recipe=""), (json.loads((folder / "result.json").read_text()),))
        expected = [str(outcome.accuracy(measure)) for measure in (TOP1, LINEAR, KNN)]
        beginning = cells.index(str(folder))
        assert [cell for cell in cells[beginning : beginning + 10] if re.fullmatch(r"\d+\.\d\d", cell)] == expected


def test_a_run_that_has_not_ended_is_shown_with_what_it_has(runs: Path) -> None:
    assert contune("report", runs / "begun").code == 0
    page = Page((runs / "begun" / "report.html").read_text(encoding="utf-8"))
    assert "not finished: 1.0 of 1 epochs" in page.text
    assert "Loss" in page.text


def test_without_its_data_a_comparison_says_what_is_missing(runs: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(runs / "one", moved)
    config = (moved / "config.json").read_text().replace('"name": "digits"', '"name": "cifar10"', 1)
    (moved / "config.json").write_text(config.replace('"path": null', '"path": "/nowhere"', 1))
    assert contune("report", runs / "one", moved, "--out", tmp_path / "page.html").code == 0
    assert "No map:" in Page((tmp_path / "page.html").read_text(encoding="utf-8")).text
    alone = contune("report", moved)
    assert alone.code == 2
    assert "/nowhere" in alone.err


def test_a_folder_that_is_no_run(runs: Path, tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        outcome = contune("report", runs / "one", folder)
        assert outcome.code == 2
        assert f"{folder} is not a run folder" in outcome.err
