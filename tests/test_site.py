"""The site builds without a warning and fetches nothing, and its reference is current."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

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


@pytest.mark.slow
def test_nothing_is_fetched_and_every_formula_is_recognized(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|img|iframe)[^>]+src="([^"]+)"', page.read_text())
        loaded += re.findall(r'<link[^>]+rel="(?:stylesheet|preconnect|preload)"[^>]*href="([^"]+)"', page.read_text())
        assert not [address for address in loaded if urlsplit(address).netloc], page
    for name in ("how/loss.html", "how/kernels.html"):
        prose = re.sub(r"<(code|span|div|script)[^>]*>.*?</\1>", "", (site / name).read_text(), flags=re.DOTALL)
        assert "$" not in prose
