"""The documentation site builds without a warning, says all that it is made to say, and fetches nothing."""

import html
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest

from contune.config import MACHINE_SETTINGS, Config
from contune.methods import METHODS
from contune.recipes import RECIPES

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "docs")
    return importlib.import_module("website.repository")


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def codes(page: Path) -> set[str]:
    """What stands in code on a page, markup aside."""
    return {html.unescape(re.sub("<[^>]+>", "", text)) for text in re.findall(r"<code>(.*?)</code>", read(page))}


def test_the_commands_are_those_of_the_program(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    commands = dict(importlib.import_module("website.commands").commands())
    assert {"train", "tune", "bench loss"} <= set(commands)
    page = read(site / "reference" / "commands.html")
    shown = codes(site / "reference" / "commands.html")
    for name, command in commands.items():
        assert f">contune {name}<" in page
        options = [p.opts[0] for p in command.params if p.param_type_name == "option" and p.name != "help"]
        assert all(any(text.startswith(option) for text in shown) for option in options), name


def test_every_setting_has_its_line(site: Path) -> None:
    shown = codes(site / "reference" / "settings.html")
    keys = set(Config().keys()) - {"method.name"}
    for name in METHODS:
        config = Config()
        config.use_method(name)
        keys |= set(config.keys()) - {"method.name"}
        assert f'id="method-{name}"' in read(site / "reference" / "settings.html")
    assert keys <= shown
    assert set(MACHINE_SETTINGS) <= shown


def test_settings_have_the_docstring_under_their_field(site: Path) -> None:
    page = read(site / "reference" / "settings.html")
    assert "Share of the training images set aside for validation" in page
    assert "raises the gradient from hard positives" in page, "of a method's own settings"


def test_every_recipe_has_its_line(site: Path) -> None:
    assert set(RECIPES) <= codes(site / "reference" / "recipes.html")


@pytest.mark.parametrize(
    ("page", "document"),
    [
        ("changelog.html", "CHANGELOG.md"),
        ("contributing.html", "CONTRIBUTING.md"),
        ("benchmarks.html", "benchmarks/README.md"),
        ("how/kernels.html", "contune/kernels/README.md"),
        ("result-files.html", "results/README.md"),
    ],
)
def test_documents_from_elsewhere_are_there_whole(site: Path, page: str, document: str) -> None:
    text = read(site / page)
    for heading in re.findall(r"^## \[?([\w ]+)", read(ROOT / document), flags=re.MULTILINE):
        assert heading.strip() in text


def test_links_inside_the_site_point_somewhere(site: Path) -> None:
    anchors = {page: set(re.findall(r'\bid="([^"]+)"', read(page))) for page in site.rglob("*.html")}
    num = 0
    for page in anchors:
        for link in re.findall(r'(?:href|src)="([^"]+)"', read(page)):
            parts = urlsplit(html.unescape(link))
            if parts.scheme or page.name == "404.html":
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            assert target.exists(), f"{page.name} links to {link}"
            if parts.fragment and target in anchors and not parts.fragment.startswith("__"):
                assert unquote(parts.fragment) in anchors[target], f"{page.name} links to {link}"
            num += 1
    assert num > 1000


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|img|iframe)[^>]+src="([^"]+)"', read(page))
        loaded += re.findall(r'<link[^>]+rel="(?:stylesheet|preconnect|preload)"[^>]*href="([^"]+)"', read(page))
        assert not [address for address in loaded if urlsplit(address).netloc], page


def test_every_formula_is_one_that_the_script_will_find(site: Path) -> None:
    page = read(site / "how" / "loss.html")
    assert page.count('class="arithmatex"') > 30
    for name in ("how/loss.html", "how/kernels.html"):
        prose = re.sub(r"<(code|span|div)[^>]*>.*?</\1>", "", read(site / name), flags=re.DOTALL)
        assert "$" not in re.sub(r"<script.*?</script>", "", prose, flags=re.DOTALL), (
            "a formula that was not recognised"
        )


def test_links_of_a_document_become_those_of_the_site(repository: ModuleType) -> None:
    text = (
        "[a](results/loss-h200-errors.json) [b](../CONTRIBUTING.md#tests) [c](https://x.org) [d](../README.md#results)"
    )
    assert repository.with_site_links(text, "benchmarks.md") == (
        "[a](files/benchmarks/results/loss-h200-errors.json) [b](contributing.md#tests) [c](https://x.org) [d](runs.md)"
    )
    assert repository.linked_files(text, "benchmarks.md") == {"benchmarks/results/loss-h200-errors.json"}


def test_a_link_to_nothing_is_left_for_mkdocs_to_complain_of(repository: ModuleType) -> None:
    assert repository.with_site_links("[a](nowhere.md)", "benchmarks.md") == "[a](nowhere.md)"


def test_lists_after_a_paragraph_are_lists(repository: ModuleType) -> None:
    assert repository.with_lists_apart("Two:\n- one\n- two\n") == "Two:\n\n- one\n- two\n"
    code = "```\nx\n- y\n```\n"
    assert repository.with_lists_apart(code) == code


def test_described_names_of_a_docstring_become_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    docstrings = importlib.import_module("website.docstrings")
    text = "A loss.\n\n    for each: pass\n\nids: one,\n    repeated.\nk1, k2: knobs.\nMore.\n\nArgs:\n    z: rows\n"
    expected = "A loss.\n\n    for each: pass\n\n\n- `ids`: one,\n    repeated.\n- `k1, k2`: knobs.\n\nMore.\n\n"
    assert docstrings.with_lists(text) == expected + "Args:\n    z: rows"
    assert docstrings.with_lists("Args: as in `f`, and\n    hard: a share\n") == (
        "Arguments as in `f`, and\n\n- `hard`: a share"
    )
