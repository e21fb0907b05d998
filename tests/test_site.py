"""The site builds without a warning, lists every command, setting and recipe, and fetches nothing."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from contune.config import MACHINE_SETTINGS, Config
from contune.methods import METHODS
from contune.recipes import RECIPES

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`--strict` also checks the links between pages."""
    folder = tmp_path_factory.mktemp("site")
    mkdocs = ["mkdocs", "build", "--strict", "--site-dir", str(folder)]  # with --quiet, strict sees no warnings
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    for module, place in ((["website", "--pages"], ROOT / "docs"), (mkdocs, ROOT)):
        command = [sys.executable, "-m", *module]
        done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def website(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "docs")
    return lambda name: importlib.import_module(f"website.{name}")


@pytest.mark.parametrize("name", ["commands", "settings", "recipes"])
def test_the_reference_in_the_repository_is_current(name: str, website: Any) -> None:
    text = (ROOT / "docs" / "reference" / f"{name}.md").read_text()
    assert text == website("__main__").GENERATED[f"{name}.md"](), "run `make docs`"


def test_every_command_setting_and_recipe_has_its_line(website: Any) -> None:
    pages = website("__main__").GENERATED
    shown = {page: set(re.findall(r"(?<!`)`([^`\n]+)`", text())) for page, text in pages.items()}
    for name, command in website("commands").commands():
        options = [p.opts[0] for p in command.params if p.param_type_name == "option" and p.name != "help"]
        assert all(any(text.startswith(option) for text in shown["commands.md"]) for option in options), name
    keys = set(MACHINE_SETTINGS)
    for name in METHODS:
        config = Config()
        config.override(f"method.name={name}")
        keys |= set(config.flat()) - {"method.name"}
    assert keys <= shown["settings.md"]
    assert set(RECIPES) <= shown["recipes.md"]


def test_nothing_is_fetched_and_every_formula_is_recognized(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|img|iframe)[^>]+src="([^"]+)"', page.read_text())
        loaded += re.findall(r'<link[^>]+rel="(?:stylesheet|preconnect|preload)"[^>]*href="([^"]+)"', page.read_text())
        assert not [address for address in loaded if urlsplit(address).netloc], page
    for name in ("how/loss.html", "how/kernels.html"):
        prose = re.sub(r"<(code|span|div|script)[^>]*>.*?</\1>", "", (site / name).read_text(), flags=re.DOTALL)
        assert "$" not in prose


def test_links_and_lists_of_a_document_are_made_fit_for_the_site(website: Any) -> None:
    text = "[a](results/loss-h200-errors.json) [b](../CONTRIBUTING.md#tests) [c](../README.md#results) [d](nowhere.md)"
    expected = (
        "[a](files/benchmarks/results/loss-h200-errors.json) [b](contributing.md#tests) [c](results.md) [d](nowhere.md)"
    )
    assert website("repository").with_site_links(text, "benchmarks.md") == expected
    assert website("repository").with_lists_apart("Two:\n- one\n- two\n") == "Two:\n\n- one\n- two\n"
    described = "A loss.\n\nids: one,\n    repeated.\nMore.\n"
    assert website("docstrings").with_lists(described) == "A loss.\n\n\n- `ids`: one,\n    repeated.\n\nMore."
