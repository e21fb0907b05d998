"""The site's pages say what is so: command lines are understood by the program, Python snippets run."""

import ast
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

PLACEHOLDERS = ("COMMAND", "NAME", "RECIPE", "RUN", "[")
"""In a sentence such as `contune export RUN --to timm`."""
SMALL = ("model.encoder=resnet-mini", "data.image_size=12", "optim.epochs=1", "optim.batch_images=8")
PAGES_WITH_PYTHON = [
    pytest.param(list(group), id=page) for page, group in groupby(snippets("python"), key=lambda s: s.page)
]


def understood(words: list[str]) -> tuple[str, dict[str, Any]]:
    """The command and its parameters, as the program itself reads these words; nothing is started."""
    group: Any = typer.main.get_command(app)
    name, *rest = words
    if hasattr(group.commands[name], "commands"):
        group, (name, *rest) = group.commands[name], rest
    context = group.commands[name].make_context(name, rest)
    return name, context.params


def shown_commands() -> list[Any]:
    """Those that could be started as they are; a sentence may name a command without its arguments."""
    return [
        pytest.param(words, id=f"{place} {' '.join(words)}")
        for place, words in command_lines()
        if words != ["--version"]
        and not any(word.startswith(PLACEHOLDERS) for word in words)
        and (":" in place or len(words) > 1)
    ]


def test_every_command_that_a_page_names_exists() -> None:
    names = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]  # a group, typed as a command
    assert {words[0] for _, words in command_lines() if words} - {"COMMAND", "--version"} <= names


def test_there_are_commands_and_snippets_to_check() -> None:
    assert {words[0] for _, words in command_lines() if words} >= {
        "train", "check", "doctor", "tune", "analyze", "report", "embed", "search", "predict", "export", "eval",
    }  # fmt: skip
    assert len(PAGES_WITH_PYTHON) >= 6


@pytest.mark.parametrize("words", shown_commands())
def test_the_program_understands_a_command_that_a_page_shows(words: list[str]) -> None:
    name, parameters = understood(words)
    arguments = parameters.get("arguments") or []
    if name in ("train", "doctor", "tune"):
        assert isinstance(parse_choice(list(arguments))[2], Config)
    elif name == "experiment" and arguments:
        experiment = find_experiment(arguments[0])
        assert isinstance(experiment.rows[0].config([*experiment.overrides, *arguments[1:]], 0), Config)
    elif name in ("eval", "analyze"):
        assert isinstance(RECIPES["digits"]().override(list(parameters["overrides"] or [])), Config)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("train --outt x", "outt"),
        ("trian", "trian"),
        ("export runs/digits", "to"),
        ("train digits optim.epoch=3", "unknown setting 'optim.epoch'"),
        ("experiment table9", "unknown experiment 'table9'"),
    ],
)
def test_a_command_that_is_wrong_would_be_found(line: str, sentence: str) -> None:
    with pytest.raises(Exception, match=sentence):
        test_the_program_understands_a_command_that_a_page_shows(line.split())


def write_photos(folder: Path) -> None:
    for number in range(90):
        label = ("cat", "dog")[number % 2]
        write_picture(folder / label / f"{number + 1}.jpg", seed=number, tint=number % 2 * 150)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a reader's is: photos/ with two classes, runs/photos and runs/digits, all of it tiny."""
    place = tmp_path_factory.mktemp("reader")
    write_photos(place / "photos")
    train(place / "runs" / "digits", "digits", "optim.epochs=1")
    train(place / "runs" / "photos", "images", f"data.path={place / 'photos'}", *SMALL)
    return place


@pytest.mark.parametrize("page", PAGES_WITH_PYTHON)
def test_the_python_of_a_page_runs_from_top_to_bottom(
    page: list[Snippet], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    names: dict[str, Any] = {"__name__": "a page"}
    for snippet in page:
        code = compile(snippet.text, str(snippet), "exec", flags=0)
        if not snippet.only_parsed:
            exec(code, names)


def test_what_is_only_parsed_says_why() -> None:
    for snippet in snippets("python"):
        ast.parse(snippet.text)
    assert sum(snippet.only_parsed for snippet in snippets("python")) <= 2


@pytest.mark.slow
def test_the_start_page_works_to_the_letter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command of the page in its order, for a reader who has nothing but photos/; only trainings are shorter."""
    monkeypatch.chdir(tmp_path)
    write_photos(tmp_path / "photos")
    for words in [words for where, words in command_lines() if where.startswith("start.md:")]:
        shorter = [*SMALL, *PLAIN] if words[:2] == ["train", "images"] else ()
        outcome = contune(*words, *shorter)
        assert outcome.code == 0, (words, outcome.err)
    for file in ("runs/digits/report.html", "alike.html", "classes.csv", "runs/photos/onnx/encoder.onnx"):
        assert (tmp_path / file).exists()
