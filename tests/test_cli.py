"""Every command from end to end, on one small run."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from command_line import PLAIN, Outcome, contune, read_json, train
from pictures import write_classes
from PIL import Image
from sklearn.datasets import load_digits

import contune as library
from contune.cli import app
from contune.recipes import RECIPES

ROOT = Path(__file__).parent.parent
QUICK = ("model.encoder=resnet-mini", "data.image_size=8", "optim.batch_images=16", "optim.epochs=1")
COMMANDS = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]


def succeed(*arguments: str | Path) -> Outcome:
    outcome = contune(*arguments)
    assert outcome.code == 0, outcome.err
    return outcome


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits as files: 20 images in each of two class folders."""
    folder = tmp_path_factory.mktemp("photos")
    digits = load_digits()
    for number in range(100):
        if digits.target[number] < 2:
            path = folder / f"digit{digits.target[number]}" / f"{number}.png"
            path.parent.mkdir(exist_ok=True)
            Image.fromarray((digits.images[number] * 15.9).astype("uint8")).save(path)
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_a_panel_and_an_example(command: str) -> None:
    assert f"Example: contune {command}" in " ".join(succeed(command, "--help").out.split())
    assert all(entry.rich_help_panel for entry in app.registered_commands)


def test_version_and_recipes() -> None:
    assert succeed("--version").out == f"contune {library.__version__}\n"
    assert all(command in succeed("--help").out for command in COMMANDS)
    listed = {line.split()[0] for line in succeed("recipes").out.splitlines() if line.strip()}
    assert set(RECIPES) <= listed
    fewer = succeed("recipes", "fmnist").out
    assert "fmnist-tcl" in fewer
    assert "cifar" not in fewer


def test_train_writes_every_file_of_the_contract(digits_run: tuple[Path, str]) -> None:
    folder, printed = digits_run
    names = {path.name.partition(".tfevents")[0] for path in folder.iterdir()}
    assert names == {
        "config.json", "metrics.jsonl", "checkpoint.pt", "encoder.safetensors", "result.json", "report.html",
        "classifier.safetensors", "events.out",
    }  # fmt: skip
    result = read_json(folder / "result.json")
    assert result["linear_top1"] > 80
    assert result["knn_top1"] > 70
    assert {
        "linear_protocol", "knn_protocol", "seconds", "views_per_second", "versions", "seed", "git_revision",
        "hardware", "split", "epochs", "measures", "method", "data", "encoder", "config", "finished",
    } <= result.keys()  # fmt: skip
    steps = [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert steps == [5, 10, 15, 20, 25, 28]
    assert [measure["name"] for measure in result["measures"]] == [
        "linear-fast", "knn", "pixels-linear-fast", "pixels-knn",
    ]  # fmt: skip
    for measure in result["measures"]:
        assert f"{measure['top1']:.2f}" in printed
        assert measure["protocol"] in printed
    assert library.load_encoder(folder)(torch.zeros(3, 1, 20, 20, dtype=torch.uint8)).shape == (3, 256)


def test_the_default_folder_is_named_after_recipe_and_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        succeed("train", "digits-ce", "optim.epochs=0", "eval.linear=none", *PLAIN)
    (name,) = (path.name for path in (tmp_path / "runs").iterdir())
    assert len(name) == len("digits-ce-") + 8


def test_eval_repeats_and_changes_the_protocol(digits_run: tuple[Path, str], photos: Path) -> None:
    folder, _ = digits_run
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    printed = succeed("eval", folder).out
    for measure in read_json(folder / "result.json")["measures"]:
        assert f"{measure['top1']:.2f}" in printed
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    printed = succeed("eval", folder, "eval.linear=paper", "eval.linear_epochs=2", "eval.knn_k=3").out
    assert "linear probe, the paper's" in printed
    assert "k=3, T=0.1" in printed
    assert "kNN" in succeed("eval", folder, "data.name=images", f"data.path={photos}").out


def test_embed_search_and_predict(digits_run: tuple[Path, str], photos: Path, tmp_path: Path) -> None:
    run, table = digits_run[0], tmp_path / "table.parquet"
    succeed("embed", run, photos, "--out", table)
    num = pq.read_table(table).num_rows
    assert num == len(list(photos.rglob("*.png")))
    query = next(iter(sorted(photos.rglob("*.png"))))
    for images in (photos, table):
        found = succeed("search", run, images, query, "-k", "3", "--out", tmp_path / "page.html").out
        assert found.count("digit0") > 2, "the query and its nearest neighbors"
    assert "<img" in (tmp_path / "page.html").read_text()
    for out in ("classes.csv", "classes.json", "classes.parquet"):
        succeed("predict", run, photos, "--out", tmp_path / out)
    assert len((tmp_path / "classes.csv").read_text().splitlines()) == num + 1


def test_export(digits_run: tuple[Path, str], tmp_path: Path) -> None:
    assert "README.md" in succeed("export", digits_run[0], "--to", "safetensors", "--out", tmp_path / "exported").out
    assert (tmp_path / "exported" / "README.md").exists()


def test_check_and_doctor(photos: Path, tmp_path: Path) -> None:
    assert "✓" in succeed("check", photos, "--out", tmp_path / "check.json").out
    assert read_json(tmp_path / "check.json")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "a.png").write_text("text")
    assert contune("check", tmp_path / "broken").code == 1
    assert "✓ machine" in succeed("doctor").out
    assert contune("doctor", "optim.batch_images=9999").code == 1


def test_analyze_and_report(digits_run: tuple[Path, str], tmp_path: Path) -> None:
    assert "TCL" in succeed("analyze", digits_run[0], "--batches", "1", "--k1", "0,500", "--out", tmp_path / "a").out
    assert (tmp_path / "a" / "gradients.html").exists()
    succeed("report", digits_run[0], "--out", tmp_path / "report.html")
    assert "<html" in (tmp_path / "report.html").read_text()


def test_experiment(tmp_path: Path) -> None:
    assert "ci-digits" in succeed("experiment").out
    drawn = succeed("experiment", "ci-digits", "--draw", "--from", ROOT / "results", "--out", tmp_path / "ci").out
    assert "table.md" in drawn
    assert (tmp_path / "ci" / "figure.png").exists()


@pytest.mark.parametrize(("num_classes", "gray"), [(2, True), (7, False)])
def test_a_folder_of_labelled_images(num_classes: int, gray: bool, tmp_path: Path) -> None:
    write_classes(tmp_path / "photos", num_classes=num_classes, gray=gray)
    result = train(tmp_path / "run", "images", f"data.path={tmp_path / 'photos'}", *QUICK)
    assert library.load_encoder(tmp_path / "run").spec.channels == (1 if gray else 3)
    assert (result["knn_top5"] is None) == (num_classes == 2)
    if num_classes == 2:
        assert result["linear_top1"] == 100.0, "dark and bright"


def test_an_unexpected_error_leaves_a_traceback_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("contune.recipes.find_recipe", lambda name: 1 / 0)
    outcome = contune("train", "digits")
    assert outcome.code == 1
    assert "ZeroDivisionError" in outcome.err
    (file,) = tmp_path.glob("contune-*.txt")
    assert str(file) in outcome.err
    assert "Traceback" in file.read_text()
    with pytest.raises(ZeroDivisionError):
        contune("train", "digits", "--debug")
