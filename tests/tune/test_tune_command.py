"""`contune tune`: a real one on digits, small, and what a person gets wrong."""

from pathlib import Path

import pytest
from command_line import Outcome, contune, read_json
from PIL import Image

from contune.config import Config
from contune.errors import UserError
from contune.recipes import find_recipe
from contune.tune import tuning
from contune.tune.short_run import default_epochs


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """Three trials of an epoch: the recipe's own values, the paper's, and one that was proposed."""
    folder = tmp_path_factory.mktemp("tuned") / "digits"
    words = ("digits", "optim.batch_images=128", "--trials", "3", "--epochs", "1", "--parallel", "2", "--out", folder)
    return folder, contune("tune", *words)


def test_a_search_ends_with_a_choice_and_the_command_to_train_with_it(searched: tuple[Path, Outcome]) -> None:
    folder, outcome = searched
    assert outcome.code == 0, outcome.err
    tuned = read_json(folder / "tune.json")
    accuracies = {(trial["k1"], trial["k2"]): trial["linear_top1"] for trial in tuned["trials"]}
    assert len(accuracies) == 3
    assert {(500.0, 1.0), (5000.0, 1.0)} < accuracies.keys()
    assert tuned["linear_top1"] == accuracies[tuned["k1"], tuned["k2"]] == max(accuracies.values())
    assert (tuned["split"], tuned["num_images"]) == ("val", 180)
    assert tuned["command"] in outcome.out
    assert "the recipe's own" in outcome.out
    assert "the paper's default" in outcome.out
    with Image.open(folder / "trials.png") as picture:
        assert picture.size[0] > 1000


def test_the_command_it_prints_is_one_that_train_takes(searched: tuple[Path, Outcome]) -> None:
    tuned = read_json(searched[0] / "tune.json")
    program, command, recipe, *overrides = tuned["command"].split()
    assert (program, command, recipe) == ("contune", "train", "digits")
    config = find_recipe(recipe)().override(overrides)
    assert config.optim.batch_images == 128
    assert (config.method.settings.k1, config.method.settings.k2) == (tuned["k1"], tuned["k2"])  # type: ignore[attr-defined]


def test_the_same_command_again_runs_nothing_and_says_the_same(searched: tuple[Path, Outcome]) -> None:
    folder, outcome = searched
    before = {path: path.stat().st_mtime_ns for path in folder.glob("trials/*/result.json")}
    again = contune("tune", "digits", "optim.batch_images=128", "--trials", "3", "--epochs", "1", "--out", folder)
    assert again.code == 0, again.err
    assert again.out.splitlines()[-6:] == outcome.out.splitlines()[-6:]
    assert {path: path.stat().st_mtime_ns for path in folder.glob("trials/*/result.json")} == before


def test_a_folder_of_other_trials_is_refused(searched: tuple[Path, Outcome]) -> None:
    outcome = contune("tune", "digits", "--epochs", "1", "--out", searched[0])
    assert outcome.code == 2
    assert "holds trials with another optim.batch_images; give another folder" in outcome.err


def test_another_way_does_not_write_over_what_was_found(searched: tuple[Path, Outcome]) -> None:
    folder = searched[0]
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    outcome = contune("tune", "digits", "optim.batch_images=128", "--how", "paper", "--epochs", "1", "--out", folder)
    assert outcome.code == 2
    assert (
        "holds what --how search did, and this is --how paper, which would write over it; give another" in outcome.err
    )
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_each_way_has_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    folders = []

    def tune(config: Config, folder: Path, **options: object) -> None:
        folders.append(str(folder))
        raise UserError("far enough")

    monkeypatch.setattr(tuning, "tune", tune)
    for words in ([], ["--how", "paper"], ["--how", "advise", "--epochs", "3"]):
        contune("tune", "digits", *words)
    assert folders == ["runs/tune/digits-search", "runs/tune/digits-paper", "runs/tune/digits-advise-3-epochs"]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["paper", "advise"])
def test_the_other_ways(how: str, tmp_path: Path) -> None:
    outcome = contune("tune", "digits", "--how", how, "--epochs", "4", "--out", tmp_path / "tuned")
    assert outcome.code == 0, outcome.err
    tuned = read_json(tmp_path / "tuned" / "tune.json")
    assert tuned["linear_top1"] == max(t["linear_top1"] for t in tuned["trials"] if t["k1"] > 0)
    assert (tuned["advice"] is not None) == (how == "advise")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["digits-supcon"], "k1 and k2 belong to tcl, and the method is supcon; add method.name=tcl"),
        (["digits", "--how", "serch"], "unknown way to tune 'serch'; did you mean search?"),
        (["digits", "--how", "paper", "--trials", "5"], "--trials 5 is for --how search"),
        (["digits", "--how", "paper", "--k1", "1,9"], "--k1 1,9 is for --how search, and this is --how paper"),
        (["digits", "--how", "advise", "--k2", "1,2"], "--k2 1,2 is for --how search"),
        (["digits", "--trials", "0"], "--trials 0 is nothing to tune with"),
        (["digits", "--minutes", "-1"], "--minutes -1 is nothing to tune with"),
        (["digits", "--k1", "500"], "--k1 500 is no range"),
        (["digits", "optim.epochs=0"], "optim.epochs=0 trains nothing"),
        (["digits", "--storage", "nonsense"], "cannot open the study at --storage nonsense"),
        (["digits", "--storage", "foo://bar", "--out", "X"], "cannot open the study at --storage foo://bar"),
        (["digits", "--out", "notes.txt/tune"], "cannot write to notes.txt/tune (settings.json): Not a directory; see"),
        (["digits", "--out", "notes.txt"], "notes.txt is a file; give a folder with --out"),
        (["digitz"], "unknown recipe 'digitz'"),
    ],
)
def test_what_a_person_gets_wrong(words: list[str], sentence: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a folder")
    outcome = contune("tune", *words)
    assert outcome.code == 2
    assert sentence in outcome.err
    assert outcome.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_folder_that_may_not_be_written_to_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    outcome = contune("tune", "digits", "--out", "readonly/tune")
    assert outcome.code == 2
    assert outcome.err.startswith("contune: cannot write to readonly/tune (settings.json): Permission denied; see that")
    assert outcome.err.count("\n") == 1


def test_data_that_is_not_there_is_one_sentence_and_no_table(tmp_path: Path) -> None:
    outcome = contune("tune", "images", "data.path=nowhere", "--trials", "2", "--epochs", "1", "--out", tmp_path / "t")
    assert outcome.code == 2
    assert "nowhere" in outcome.err.splitlines()[-1]
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(("epochs", "short"), [(20, 10), (100, 20), (1000, 200), (5, 5)])
def test_how_long_a_short_run_is(epochs: int, short: int) -> None:
    assert default_epochs(epochs) == short
