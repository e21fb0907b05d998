"""Which commands may go on in a folder, and what is said of those that may not."""

from pathlib import Path

import pytest

from contune.errors import UserError
from contune.recipes import find_recipe
from contune.tune.folder import Order, TuneFolder


def order(*overrides: str, how: str = "search", epochs: int | None = None) -> Order:
    return Order(how, find_recipe("digits")().override(overrides), epochs)


@pytest.fixture
def folder(tmp_path: Path) -> TuneFolder:
    place = TuneFolder(tmp_path / "tuned")
    place.check(order())
    assert not place.path.exists()
    place.open(order())
    return place


@pytest.mark.parametrize("again", [order(), order(epochs=10), order("data.workers=1")])
def test_the_same_short_runs_go_on(folder: TuneFolder, again: Order) -> None:
    folder.check(again)


@pytest.mark.parametrize(
    ("other", "names"),
    [
        (order("optim.epochs=30"), "optim.epochs"),  # as short as the 20 of the recipe, but less of it is warmup
        (order("optim.epochs=100"), "optim.epochs"),
        (order(epochs=4), "--epochs"),
        (order("run.seed=1", epochs=10), "run.seed"),
        (order("method.k1=7", "optim.lr=0.2", epochs=3), "method.k1, optim.lr, --epochs"),
    ],
)
def test_what_differs_is_named_as_it_was_given(folder: TuneFolder, other: Order, names: str) -> None:
    with pytest.raises(UserError) as caught:
        folder.check(other)
    assert str(caught.value) == f"{folder.path} holds trials with another {names}; give another folder with --out"


def test_another_way_is_refused(folder: TuneFolder) -> None:
    with pytest.raises(UserError, match=r"holds what --how search did, and this is --how advise.*another folder"):
        folder.check(order(how="advise"))


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"how": "search"}', '{"how": 1, "epochs": 2, "config": {"a": 1}}']
)
def test_settings_that_are_none(folder: TuneFolder, content: str) -> None:
    folder.settings_file.write_text(content)
    with pytest.raises(UserError, match="is not one that this version of contune wrote; give another folder"):
        folder.check(order())


def test_a_folder_of_something_else_is_refused_but_not_a_write_that_was_killed(tmp_path: Path) -> None:
    (tmp_path / "settings.json.part").write_text('{"how"')
    TuneFolder(tmp_path).check(order())
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UserError, match="is not empty and holds no trials"):
        TuneFolder(tmp_path).check(order())
