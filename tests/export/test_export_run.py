"""`contune export` on a run, and the model card."""

import json
from pathlib import Path

import pytest
from command_line import contune, train
from encoders import SPECS, write_run

from contune.errors import UserError
from contune.export import export_run
from contune.export.card import model_card
from contune.export.source import Written, open_source


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "digits"
    train(folder, "digits", "optim.epochs=1")
    return folder


@pytest.mark.parametrize("to", ["timm", "safetensors"])
def test_the_command_says_what_it_wrote_and_checked(run: Path, to: str) -> None:
    outcome = contune("export", run, "--to", to)
    assert outcome.code == 0, outcome.err
    folder = run / to
    files = {
        "timm": "config.json, model.safetensors",
        "safetensors": "classifier.safetensors, config.json, encoder.safetensors",
    }
    assert f"wrote    {folder}: README.md, {files[to]}\n" in outcome.out
    assert "checked  features as in the run, to " in outcome.out
    assert not [path for path in run.iterdir() if path.name.startswith(".")]


def test_the_card_has_data_protocol_numbers_and_revision(run: Path, tmp_path: Path) -> None:
    result = json.loads((run / "result.json").read_text())
    card = (export_run(run, "safetensors", tmp_path / "out").folder / "README.md").read_text()
    assert "# resnet-mini, trained on digits by tcl" in card
    for measure in result["measures"]:
        assert f"| {measure['top1']:.2f} | {measure['top5']:.2f} | 899 | {measure['protocol']} |" in card
    assert "| `method.k1` | 500.0 |" in card
    assert "| `optim.epochs` | 1 |" in card
    assert f"| revision | {result['git_revision'] or 'an installed package, no checkout'} |" in card
    assert "## Images\n\nUpright as their EXIF says, transparency on white," in card
    assert "## Licence\n\n*Not chosen yet." in card


def test_a_card_keeps_the_place_of_the_data_to_itself(run: Path) -> None:
    source = open_source(run)
    assert source.result is not None
    source.result["config"]["data"]["path"] = "/home/me/secret"
    source.result["command"] = "contune train images data.path=/home/me/secret"
    card = model_card(source, Written(usage="", deviation=0.0, library="timm"))
    assert "secret" not in card


def test_an_encoder_without_a_result_says_so(tmp_path: Path) -> None:
    write_run(tmp_path, SPECS["small stem, gray"])
    card = (export_run(tmp_path, "safetensors").folder / "README.md").read_text()
    assert "# resnet-mini\n" in card
    assert "Nothing was measured" in card
    assert "left no result.json" in card


def test_wrong_requests_are_a_sentence(run: Path, tmp_path: Path) -> None:
    assert "unknown format 'tim'; did you mean timm?" in contune("export", run, "--to", "tim").err
    assert "--half is for onnx, and the format is timm" in contune("export", run, "--to", "timm", "--half").err
    empty = contune("export", tmp_path, "--to", "timm", "--out", tmp_path / "out")
    assert (empty.code, empty.err.count("\n")) == (2, 1)
    assert "no encoder at" in empty.err
    assert not list(tmp_path.iterdir())


def test_what_is_there_is_not_overwritten(run: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    with pytest.raises(UserError, match="is not empty; remove it, or give another folder with --out"):
        export_run(run, "safetensors", tmp_path)
    with pytest.raises(UserError, match="mine is a file; give a folder with --out"):
        export_run(run, "safetensors", tmp_path / "mine")
    with pytest.raises(UserError, match="cannot write to"):
        export_run(run, "safetensors", tmp_path / "mine" / "below")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert export_run(run, "safetensors", empty).folder == empty
