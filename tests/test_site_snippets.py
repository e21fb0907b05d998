"""The README and the pages of the site are true: the program understands their commands, and their Python runs."""

import shutil
from copy import deepcopy
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import typer
from command_line import PLAIN, contune, train
from pictures import write_picture
from site_pages import Snippet, command_lines, snippets

from contune.cli import app, parse_choice
from contune.config import Config
from contune.experiments import find_experiment
from contune.recipes import RECIPES

PLACEHOLDERS = ("COMMAND", "NAME", "RECIPE", "RUN", "PATH", "[")
"""In a sentence such as `contune export RUN --to timm`."""
SMALL = ("model.encoder=resnet-mini", "data.image_size=12", "optim.epochs=1", "optim.batch_images=8")
GROUP: Any = typer.main.get_command(app)
PAGES_WITH_PYTHON = [
    pytest.param(list(group), id=page) for page, group in groupby(snippets("python"), key=lambda s: s.page)
]


def shown_commands() -> list[Any]:
    """Those that could be started as they are; a sentence may name a command without its arguments."""
    return [
        pytest.param(words, id=f"{place} {' '.join(words)}")
        for place, words in command_lines()
        if not words[0].startswith("--")
        and not any(word.startswith(PLACEHOLDERS) for word in words)
        and (":" in place or len(words) > 1)
    ]


def test_pages_name_existing_commands_and_all_of_them() -> None:
    shown = {words[0] for _, words in command_lines() if words} - {"COMMAND", "--version", "--debug"}
    assert shown == set(GROUP.commands)


def test_every_fence_has_a_language() -> None:
    assert [str(snippet) for snippet in snippets("")] == []


@pytest.mark.parametrize("words", shown_commands())
def test_the_program_understands_a_command_that_a_page_shows(words: list[str]) -> None:
    name, *rest = words
    parameters = GROUP.commands[name].make_context(name, rest).params
    arguments = parameters.get("arguments") or []
    if name in ("train", "doctor", "tune"):
        assert parse_choice(list(arguments))  # complains of a wrong recipe or setting
    elif name == "experiment" and arguments:
        experiment = find_experiment(arguments[0])
        assert isinstance(experiment.rows[0].config([*experiment.overrides, *arguments[1:]], 0), Config)
    elif name in ("eval", "analyze"):
        assert isinstance(RECIPES["digits"]().override(list(parameters["overrides"] or [])), Config)


def write_photos(folder: Path) -> None:
    for number in range(90):
        label = ("cat", "dog")[number % 2]
        write_picture(folder / label / f"{number + 1}.jpg", seed=number, tint=number % 2 * 150)


@pytest.fixture(scope="module")
def place(digits_run: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A reader's folder: photos/ with two classes, runs/photos and runs/digits, all of it tiny."""
    place = tmp_path_factory.mktemp("reader")
    write_photos(place / "photos")
    shutil.copytree(digits_run[0], place / "runs" / "digits")
    train(place / "runs" / "photos", "images", f"data.path={place / 'photos'}", *SMALL)
    return place


@pytest.mark.parametrize("page", PAGES_WITH_PYTHON)
def test_the_python_of_a_page_runs_from_top_to_bottom(
    page: list[Snippet], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    for name, shorter in (("digits", ["data.val_fraction=0.8", "optim.batch_images=32"]), ("images", [])):
        recipe = RECIPES[name]().override(["run.report=false", *shorter])
        monkeypatch.setitem(RECIPES, name, partial(deepcopy, recipe))
    names: dict[str, Any] = {"__name__": "a page"}
    for snippet in page:
        code = compile(snippet.text, str(snippet), "exec", flags=0)
        if not snippet.only_parsed:
            exec(code, names)


@pytest.mark.slow
def test_the_start_page_works_to_the_letter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command of the page in its order, for a reader who has nothing but photos/; only trainings are shorter."""
    monkeypatch.chdir(tmp_path)
    write_photos(tmp_path / "photos")
    for words in [words for where, words in command_lines() if where.startswith("docs/start.md:")]:
        shorter = [*SMALL, *PLAIN] if words[:2] in (["train", "images"], ["train", "images-ssl"]) else ()
        outcome = contune(*words, *shorter)
        assert outcome.code == 0, (words, outcome.err)
    for file in ("runs/digits/report.html", "similar.html", "classes.csv", "runs/photos/onnx/encoder.onnx"):
        assert (tmp_path / file).exists()
