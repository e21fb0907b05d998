"""The documents say what the files say: verdict, tables, figures and links."""

import importlib
import json
import re
import subprocess
import sys
from math import exp
from pathlib import Path
from typing import Any

import pytest

from contune.experiments import Outcome, find_experiment
from contune.experiments.plan import read_results, save

ROOT = Path(__file__).parent.parent
DOCUMENTS = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "results/README.md",
    "benchmarks/README.md",
    "docs/results.md",
)


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "docs")
    return importlib.import_module("tables")


def write_result(folder: Path, name: str, top1: float = 70.0, seed: int = 0, epochs: int = 100) -> None:
    """A real result with another probe accuracy."""
    result = json.loads((ROOT / "results" / "cifar100-tcl-resnet18-seed0.json").read_text())
    result["config"]["run"]["seed"], result["config"]["optim"]["epochs"] = seed, epochs
    for measure in result["measures"]:
        measure["top1"] = top1
    (folder / f"{name}.json").write_text(json.dumps(result | {"seed": seed, "epochs": epochs}))


def rows(markdown: str) -> list[list[str]]:
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_texts_and_figures_are_those_that_the_files_give() -> None:
    command = [sys.executable, str(ROOT / "docs" / "build.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr


def test_runs_of_one_setting_share_a_row_with_their_interval(tmp_path: Path, tables: Any) -> None:
    for seed, top1 in enumerate((70.0, 71.0, 72.0)):
        write_result(tmp_path, f"seed{seed}", top1, seed)
    write_result(tmp_path, "shorter", 60.0, epochs=90)
    (row,) = rows(tables.results_table(read_results(tmp_path)))
    # Student's t at 97.5 % for two degrees of freedom is 4.303; 4.303 · 1 / √3 = 2.48.
    assert row[1:] == ["TCL", "71.00 ± 2.48", "full probe, 3 runs", "71.00 ± 2.48", "–"]


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """results/ with an experiment of two runs in it."""
    experiment = find_experiment("fig-k2-digits").changed(["optim.epochs=7"])
    real = json.loads((ROOT / "results" / "digits-tcl-resnet-mini-seed0.json").read_text())
    outcomes = [
        Outcome(
            row,
            (
                real
                | {"config": row.config(experiment.overrides, 0).to_dict(), "file": f"{row.run_name(0)}/result.json"},
            ),
        )
        for row in experiment.rows[:2]
    ]
    save(experiment, outcomes, tmp_path / "results" / "shorter", Path())
    return tmp_path / "results"


def test_every_experiment_with_results_has_its_section(tables: Any) -> None:
    page = (ROOT / "docs" / "results.md").read_text()
    folders = tables.saved_folders(ROOT / "results")
    assert all(f"](images/{folder.name}.png)" in page for folder in folders)
    others = {ROOT / "results" / name for name in ("tried", "one-revision", "engines")}
    assert {path.parent for path in (ROOT / "results").glob("*/*.json")} - others == set(folders)


def test_a_section_follows_its_results(kept: Path, tmp_path: Path, tables: Any) -> None:
    images = tmp_path / "docs" / "images"
    assert tables.stale_figures(kept, images) == [images / "shorter.png"]
    tables.draw_figures(kept, images)
    assert tables.stale_figures(kept, images) == []
    assert "\ncontune experiment fig-k2-digits optim.epochs=7\n" in tables.results_page(kept, images)
    path = kept / "shorter" / "supcon-seed0.json"
    result = json.loads(path.read_text())
    result["measures"][0]["top1"] = 12.5
    path.write_text(json.dumps(result))
    tables.read_saved.cache_clear()
    assert tables.stale_figures(kept, images) == [images / "shorter.png"]
    assert "12.50" in tables.results_page(kept, images)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_inside_the_repository_point_somewhere(name: str, tables: Any) -> None:
    document = ROOT / name
    for target in re.findall(r"\]\(([^)]+)\)", document.read_text()):
        path, _, heading = target.partition("#")
        if not target.startswith(("http://", "https://")):
            there = document.parent / path if path else document
            assert there.exists(), f"{name} links to {target}"
            lines = there.read_text().splitlines() if heading else []
            found = [tables.slug(line.lstrip("# ")) for line in lines if line.startswith("#")]
            assert not heading or heading in found, f"{name} links to {target}"


def test_the_picture_of_the_loss_follows_lemma_2(tables: Any) -> None:
    drawings = importlib.import_module("drawings")
    s, k1, k2, tau = 0.7, 4000.0, 3.0, 0.1
    others = 3 * (exp(0.5 / tau) + k1 * exp(-0.5))
    denominator = others + exp(s / tau) + k1 * exp(-s) + 251 * k2
    pull = 1 / 4 - exp(s / tau) / denominator + tau * k1 * exp(-s) / denominator
    denominator = others / 3 * 4 + k2 * (250 + exp(s / tau))
    push = k2 * exp(s / tau) / denominator
    assert drawings.responses(s, k1=k1, k2=k2) == pytest.approx((pull, push), rel=1e-9)
