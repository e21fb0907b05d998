"""The result that a run folder holds: whole, or a sentence that says what it is without."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import contune, train

from contune.config import Config
from contune.errors import UserError
from contune.run import RESULT, RunFolder, gaps

ROOT = Path(__file__).parent.parent
REAL = ROOT / "results" / "digits-tcl-resnet-mini-seed0.json"
WORDS = ("digits", "optim.epochs=1", "data.val_fraction=0.8", "eval.linear=none")


def real() -> dict[str, Any]:
    return dict(json.loads(REAL.read_text()))


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    result = real()
    change(result)
    return result


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    train(folder, *WORDS)
    return folder


def test_what_runs_write_is_whole(finished: Path) -> None:
    kept = [json.loads(path.read_text()) for path in (ROOT / "results").rglob("*.json")]
    results = [result for result in kept if isinstance(result, dict) and "measures" in result]
    assert len(results) > 20
    assert not any(gaps(result) for result in results)
    assert RunFolder(finished).result() is not None


@pytest.mark.parametrize("key", list(RESULT) if isinstance(RESULT, dict) else [])
def test_whatever_is_missing_is_named(key: str) -> None:
    assert gaps(changed(lambda result: result.pop(key))) == [key]
    assert gaps(real() | {key: ...}) == [key]


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        (lambda result: result["measures"][1].pop("top1"), "measures[1].top1"),
        (lambda result: result["measures"].append(3), "measures[4]"),
        (lambda result: result["config"].pop("optim"), "config.optim"),
        (lambda result: result.update(config={"augment": {}, "optim": {}, "method": 1}), "config.method"),
        (lambda result: result.update(linear_top1="high"), "linear_top1"),
    ],
)
def test_parts_are_named_by_where_they_are(change: Callable[[dict[str, Any]], object], missing: str) -> None:
    assert gaps(changed(change)) == [missing]


def test_a_trial_that_was_given_up_has_less() -> None:
    given_up = {"stopped_at": 2, "measures": [], "config": Config().to_dict(), "seen": {}}
    assert gaps(given_up) == []
    assert gaps({"stopped_at": 2, "measures": []}) == ["config"]


def test_the_sentence_has_the_file_what_is_missing_and_the_way_out(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.write_result(changed(lambda result: [result.pop(key) for key in ("seed", "hardware")]))
    with pytest.raises(UserError) as caught:
        folder.result()
    assert str(caught.value) == (
        f"{tmp_path}/result.json is not a result as contune writes it, without a usable seed, hardware; "
        "remove it to measure the run again"
    )
    folder.write_result({})
    with pytest.raises(UserError, match="usable method, data, encoder, split and 10 more; remove it"):
        folder.result()


def test_every_command_that_reads_it_says_so(finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    (run / "result.json").write_text("{}")
    commands = (
        ("report", run),
        ("report", run, finished, "--out", tmp_path / "page.html"),
        ("export", run, "--to", "safetensors", "--out", tmp_path / "exported"),
        ("train", *WORDS, "run.tensorboard=false", "--out", run),
    )
    for command in commands:
        outcome = contune(*command)
        assert outcome.code == 2, command
        assert outcome.err.startswith(f"contune: {run}/result.json is not a result as contune writes it"), command
        assert outcome.err.count("\n") == 1, command
    (run / "result.json").unlink()
    assert contune("train", *WORDS, "run.tensorboard=false", "--out", run).code == 0, "the way out"
