"""The site builds without a warning, lists every command, setting and recipe, and fetches nothing."""

import html
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
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def website(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "docs")
    return lambda name: importlib.import_module(f"website.{name}")


def codes(page: Path) -> set[str]:
    """What stands in code on a page, markup aside."""
    return {html.unescape(re.sub("<[^>]+>", "", text)) for text in re.findall(r"<code>(.*?)</code>", page.read_text())}


def test_every_command_setting_and_recipe_has_its_line(site: Path, website: Any) -> None:
    shown = codes(site / "reference" / "commands.html")
    for name, command in website("commands").commands():
        options = [p.opts[0] for p in command.params if p.param_type_name == "option" and p.name != "help"]
        assert all(any(text.startswith(option) for text in shown) for option in options), name
    assert "Default: up to 4 on a GPU, 1 on a CPU." in (site / "reference" / "commands.html").read_text()
    keys = set(MACHINE_SETTINGS)
    for name in METHODS:
        config = Config()
        config.use_method(name)
        keys |= set(config.keys()) - {"method.name"}
    assert keys <= codes(site / "reference" / "settings.html")
    assert "Share of the training images" in (site / "reference" / "settings.html").read_text(), "a field's docstring"
    assert set(RECIPES) <= codes(site / "reference" / "recipes.html")


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
