"""The scripts in examples/ and the notebook run as a person runs them, but in this process: torch is loaded already."""

import json
import re
import runpy
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_own_images_become_an_encoder_whose_neighbors_are_of_the_same_class(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "own_images.py"), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    classes = [re.findall(r"(digit-\d)/", line) for line in lines if " is like " in line]
    assert [len(found) for found in classes] == [4, 4, 4, 4]
    assert sum(neighbor == asked for asked, *neighbors in classes for neighbor in neighbors) >= 10


@pytest.mark.parametrize(
    ("name", "arguments", "gain"),
    [
        ("plain_loop.py", (), 0),
        pytest.param("sklearn_pipeline.py", ("5",), 0, marks=pytest.mark.slow),
        pytest.param("sentence_embeddings.py", ("10",), 5, marks=pytest.mark.slow),
        pytest.param("timm_training.py", ("--epochs=4",), 10, marks=pytest.mark.slow),
        pytest.param("lightning_module.py", (), 0, marks=pytest.mark.slow),
    ],
)
def test_features_are_better_than_what_they_started_from(
    name: str,
    arguments: tuple[str, ...],
    gain: float,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if name.startswith("lightning") and find_spec("lightning") is None:
        pytest.skip("needs lightning")
    monkeypatch.setattr("sys.argv", [name, *arguments])
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    before, after = map(float, re.findall(r": ([\d.]+) %", capsys.readouterr().out))
    assert after > before + gain
    assert not list(folder.iterdir()), "nothing is left behind"


@pytest.mark.slow
def test_the_notebook_runs_and_is_stored_without_outputs() -> None:
    cells = json.loads((EXAMPLES / "notebook.ipynb").read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in code)
    names: dict[str, Any] = {}
    for cell in code:
        exec("".join(cell["source"]), names)
    assert "kNN" in repr(names["run"])
    assert names["accuracy"] > 0.7
