"""What the documents say is so: the table, the links, the commands, the snippets."""

import importlib
import json
import re
import subprocess
import sys
from math import exp
from pathlib import Path
from typing import Any

import pytest
import typer
from command_line import train

from contune.cli import app
from contune.config import Config
from contune.experiments import Outcome, find_experiment, saved_folders
from contune.experiments.plan import save
from contune.recipes import RECIPES

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "results/README.md", "docs/results.md")
RESULTS = sorted((ROOT / "results").glob("*.json"))
COMMANDS = sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]  # a group, typed as a command


def code_blocks(language: str) -> list[str]:
    """The fenced blocks of the README that are marked as this language; "" for those with no mark."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
    return [block for mark, block in fenced if mark == language]


def shown_commands() -> list[list[str]]:
    """The words after `contune` wherever the README shows a command line."""
    lines = [line for block in code_blocks("") for line in block.splitlines()]
    lines += re.findall(r"`([^`\n]*)`", README)
    found = [re.match(r"(?:\$ )?(?:torchrun .* -m )?contune (.*)", line) for line in lines]
    return [match[1].split() for match in found if match]


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "docs")
    return importlib.import_module("results_table")


def write_result(folder: Path, name: str, **changes: Any) -> None:
    """A real result with other numbers."""
    result = json.loads((ROOT / "results" / "cifar100-tcl-resnet18-seed0.json").read_text())
    result["config"]["run"]["seed"] = changes.get("seed", 0)
    result["config"]["optim"]["epochs"] = changes.get("epochs", 100)
    (folder / f"{name}.json").write_text(json.dumps(result | changes))


def rows(markdown: str) -> list[list[str]]:
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_table_is_the_one_that_the_result_files_give() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "build.py"), "--check"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_every_result_is_in_the_table() -> None:
    assert RESULTS
    assert all(f"(results/{path.name})" in README for path in RESULTS)


def test_a_changed_result_changes_the_table(tmp_path: Path, table: Any) -> None:
    write_result(tmp_path, "one", linear_top1=12.345, knn_top1=6.789)
    assert rows(table.results_table(tmp_path))[0][4:8] == ["12.35", "full probe", "6.79", "77.5 (table 2)"]


def test_seeds_of_one_setting_share_a_row_with_their_interval(tmp_path: Path, table: Any) -> None:
    for seed, top1 in enumerate((70.0, 71.0, 72.0)):
        write_result(tmp_path, f"seed{seed}", seed=seed, linear_top1=top1)
    (row,) = rows(table.results_table(tmp_path))
    # Student's t at 97.5 % for two degrees of freedom is 4.303; 4.303 · 1 / √3 = 2.48.
    assert row[4] == "71.00 ± 2.48"
    assert row[-1] == "[seed 0](results/seed0.json), [seed 1](results/seed1.json), [seed 2](results/seed2.json)"


def test_the_papers_number_stands_only_beside_the_same_setting(tmp_path: Path, table: Any) -> None:
    write_result(tmp_path, "a", epochs=100)
    write_result(tmp_path, "b", epochs=90)
    assert [row[7] for row in rows(table.results_table(tmp_path))] == ["–", "77.5 (table 2)"]


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "docs")
    return importlib.import_module("experiment_tables")


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """results/ with an experiment of two runs in it."""
    experiment = find_experiment("fig-k2-digits").changed(["optim.epochs=7"])
    real = json.loads((ROOT / "results" / "digits-tcl-resnet-mini-seed0.json").read_text())
    outcomes = [
        Outcome(row, (real | {"config": row.config(experiment.overrides, 0).to_dict()},))
        for row in experiment.rows[:2]
    ]
    save(experiment, outcomes, tmp_path / "results" / "shorter")
    return tmp_path / "results"


def test_every_experiment_with_results_has_its_section() -> None:
    page = (ROOT / "docs" / "results.md").read_text()
    for folder in saved_folders(ROOT / "results"):
        assert f"\n## {folder.name}\n" in page
        assert f"(docs/results.md#{folder.name})" in README
    with_results = {path.parent for path in (ROOT / "results").glob("*/*.json")} - {ROOT / "results" / "tried"}
    assert with_results == set(saved_folders(ROOT / "results")), "a folder of no experiment"


def test_a_section_has_command_figure_and_table(kept: Path, tmp_path: Path, pages: Any) -> None:
    images = tmp_path / "docs" / "images"
    page = pages.results_page(kept, images)
    assert "\n## shorter\n" in page
    assert "`contune experiment fig-k2-digits optim.epochs=7`" in page
    assert "](images/shorter.png)" in page
    assert "| TCL, k1 = 5000, k2 = 1 | " in page
    assert "not run yet" in page, "the third"
    assert "(docs/results.md#shorter)" in pages.experiments_list(kept)


def test_a_figure_of_other_results_is_stale(kept: Path, tmp_path: Path, pages: Any) -> None:
    images = tmp_path / "docs" / "images"
    assert pages.stale_figures(kept, images) == [images / "shorter.png"]
    pages.draw_figures(kept, images)
    assert pages.stale_figures(kept, images) == []
    path = kept / "shorter" / "supcon-seed0.json"
    result = json.loads(path.read_text())
    result["measures"][0]["top1"] = 12.5
    path.write_text(json.dumps(result))
    assert pages.stale_figures(kept, images) == [images / "shorter.png"]
    assert "12.50" in pages.results_page(kept, images)


def test_without_experiments_there_is_nothing_to_list(tmp_path: Path, pages: Any) -> None:
    assert pages.experiments_list(tmp_path) == ""


def test_a_readme_without_its_markers_is_refused(table: Any) -> None:
    with pytest.raises(SystemExit, match="lost a marker"):
        table.insert("no markers here", "a table")


def headings(document: Path) -> list[str]:
    return [line.lstrip("# ").lower() for line in document.read_text().splitlines() if line.startswith("#")]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_inside_the_repository_point_somewhere(name: str) -> None:
    document = ROOT / name
    for target in re.findall(r"\]\(([^)]+)\)", document.read_text()):
        if not target.startswith(("http://", "https://", "#")):
            path, _, heading = target.partition("#")
            assert (document.parent / path).exists(), f"{name} links to {target}"
            assert not heading or heading in headings(document.parent / path), f"{name} links to {target}"


def test_the_commands_that_the_readme_shows_exist() -> None:
    shown = {words[0] for words in shown_commands()}
    assert {"train", "eval"} <= shown <= set(COMMANDS)


def test_the_recipes_and_settings_that_the_readme_shows_exist() -> None:
    checked = 0
    for command, *words in shown_commands():
        if command not in ("train", "doctor") or any("[" in word for word in words):
            continue
        recipe = words.pop(0) if words and words[0] in RECIPES else "digits"
        stop = next((number for number, word in enumerate(words) if word.startswith("--")), len(words))
        settings = [word for word in words[:stop] if word != "method.k1=VALUE"]
        assert all("=" in word for word in settings), (command, words)
        assert isinstance(RECIPES[recipe]().override(settings), Config)
        checked += 1
    assert checked >= 6


@pytest.fixture(scope="module")
def place_with_a_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which runs/digits is there, after one epoch."""
    place = tmp_path_factory.mktemp("place")
    train(place / "runs" / "digits", "digits", "optim.epochs=1", "eval.linear=none")
    return place


@pytest.mark.parametrize("number", range(len(code_blocks("python"))))
def test_the_readmes_snippets_run(number: int, place_with_a_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place_with_a_run)
    names: dict[str, Any] = {}
    exec(compile(code_blocks("python")[number], f"README snippet {number}", "exec"), names)
    if "loss" in names:
        assert names["loss"].isfinite()
        names["loss"].backward()
    assert len(names["features"]) == len(names["images"])


def test_the_picture_of_the_loss_follows_lemma_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    drawings = importlib.import_module("drawings")
    s, k1, k2, tau = 0.7, 4000.0, 3.0, 0.1
    others = 3 * (exp(0.5 / tau) + k1 * exp(-0.5))
    denominator = others + exp(s / tau) + k1 * exp(-s) + 251 * k2
    pull = 1 / 4 - exp(s / tau) / denominator + tau * k1 * exp(-s) / denominator
    denominator = others / 3 * 4 + k2 * (250 + exp(s / tau))
    push = k2 * exp(s / tau) / denominator
    assert drawings.responses(s, k1=k1, k2=k2) == pytest.approx((pull, push), rel=1e-9)
