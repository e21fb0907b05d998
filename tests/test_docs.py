"""The documents say what the files say: verdict, tables, figures and links."""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

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


def test_texts_and_figures_are_those_that_the_files_give(tables: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["build.py", "--check"])
    importlib.import_module("build").main()


def test_every_folder_of_results_is_shown(tables: Any) -> None:
    others = {ROOT / "results" / name for name in ("tried", "cifar100-losses", "engines")}
    folders = {path.parent for path in (ROOT / "results").glob("*/*.json")}
    assert folders - others == set(tables.saved_folders(ROOT / "results"))


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
