"""The scripts in examples/ run as a person runs them."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parent.parent / "examples"
PREPARED = (
    "import runpy, sys; from contune.device import torchvision; sys.argv.pop(0); "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)
"""Starts a script where `import timm` works even if torchvision was built for another torch."""


def printed_by(name: str, folder: Path, *arguments: str, prepared: bool = False) -> str:
    """What the script prints when it is started in an empty folder, in which it must leave nothing."""
    command = [sys.executable, *(["-c", PREPARED] if prepared else []), str(EXAMPLES / name), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    assert not list(folder.iterdir())
    return done.stdout


def percents(out: str) -> list[float]:
    return [float(found) for found in re.findall(r": ([\d.]+) %", out)]


@pytest.mark.slow
def test_own_images_become_an_encoder_whose_neighbors_are_of_the_same_class(tmp_path: Path) -> None:
    out = printed_by("own_images.py", tmp_path)
    classes = [re.findall(r"(digit-\d)/", line) for line in out.splitlines() if " is like " in line]
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
    name: str, arguments: tuple[str, ...], gain: float, tmp_path: Path
) -> None:
    if name.startswith("lightning") and find_spec("lightning") is None:
        pytest.skip("needs lightning")
    before, after = percents(printed_by(name, tmp_path, *arguments, prepared=name.startswith(("lightning", "timm"))))
    assert after > before + gain


def test_the_notebook_runs_and_is_stored_without_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.reads((EXAMPLES / "notebook.ipynb").read_text(), as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in cells)
    NotebookClient(notebook, timeout=200, resources={"metadata": {"path": str(tmp_path)}}).execute()
    results = [cell.outputs[-1].data["text/plain"] for cell in cells if cell.source.endswith(("\nrun", "accuracy"))]
    assert "kNN" in results[0]
    assert float(re.findall(r"[\d.]+", results[1])[-1]) > 0.7


def test_the_readme_links_every_example() -> None:
    readme = (EXAMPLES.parent / "README.md").read_text()
    assert [
        path.name
        for path in (*EXAMPLES.glob("*.py"), *EXAMPLES.glob("*.ipynb"))
        if f"(examples/{path.name})" not in readme
    ] == []
