"""`contune report` on real runs: one again, several together, and folders that are none."""

import json
import re
import shutil
from pathlib import Path

import pytest
from command_line import contune, train
from pictures import write_picture
from strict_html import Page

from contune.analysis.page import Kind
from contune.analysis.page import page as page_of
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


@pytest.mark.parametrize("kind", ["report", "comparison", "search", "gradients", "experiment"])
def test_pages_of_other_kinds_are_left_alone(kind: Kind, runs: Path, tmp_path: Path) -> None:
    other = tmp_path / "page.html"
    for own, words in (
        ("report", (runs / "one",)),
        ("report", (runs / "begun",)),
        ("comparison", (runs / "one", runs / "begun")),
    ):
        other.write_text(page_of(kind, "a page", ""))
        before = other.read_text()
        outcome = contune("report", *words, "--out", other)
        assert outcome.code == (0 if kind == own else 2)
        assert (other.read_text() == before) == (kind != own)


def test_the_report_of_a_run_is_written_by_nothing_else(runs: Path) -> None:
    assert contune("report", runs / "one").code == 0
    own = runs / "one" / "report.html"
    before = own.read_text()
    for words, sentence in (
        ((runs / "one", runs / "begun"), f"{own} is there already and is not what this command writes"),
        ((runs / "begun",), f"{own} is the place of another run's report; give another file with --out"),
    ):
        outcome = contune("report", *words, "--out", own)
        assert outcome.code == 2
        assert sentence in outcome.err
    assert own.read_text() == before
    own.write_text("damaged")
    assert contune("report", runs / "one", "--out", runs / "begun" / ".." / "one" / "report.html").code == 0
    assert own.read_text() == before


def test_the_folder_of_seeds_stands_for_its_runs(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in (10, 9):
        shutil.copytree(runs / "one", tmp_path / "seeds" / f"seed{seed}")
    (tmp_path / "seeds" / "seed-of-mine").mkdir()
    write_picture(tmp_path / "photo.png", seed=0)
    outcome = contune("report", "seeds")
    assert outcome.code == 0, outcome.err
    shown = Page((tmp_path / "comparison.html").read_text(encoding="utf-8")).text
    assert 0 < shown.index("seeds/seed9") < shown.index("seeds/seed10")
    for command, words in (("eval", ()), ("analyze", ()), ("export", ("--to", "timm")), ("embed", ("photo.png",))):
        outcome = contune(command, "seeds", *words)
        assert outcome.code == 2
        assert "its runs are folders inside it, so name one of them, such as seeds/seed9" in outcome.err, command


def test_the_folder_of_an_experiment_stands_for_its_runs(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("tcl-k1-5-seed0", "supcon-seed1", "supcon-seed0"):
        shutil.copytree(runs / "one", tmp_path / "experiment" / name)
    assert contune("report", "experiment").code == 0
    shown = Page((tmp_path / "comparison.html").read_text(encoding="utf-8")).text
    places = [shown.index(f"experiment/{name}") for name in ("supcon-seed0", "supcon-seed1", "tcl-k1-5-seed0")]
    assert places == sorted(places)


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
