"""The scripts in examples/ run as a person runs them."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


PREPARED = (
    "import runpy, sys; from contune.device import torchvision; sys.argv.pop(0); "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)
"""Starts a script where `import timm` works even beside a torchvision that was built for another torch."""


def printed_by(name: str, folder: Path, *arguments: str, prepared: bool = False) -> str:
    """What the script prints when it is started in an empty folder, in which it must leave nothing."""
    launcher = ["-c", PREPARED] if prepared else []
    command = [sys.executable, *launcher, str(EXAMPLES / name), *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    assert not list(folder.iterdir())
    return done.stdout


def percents(out: str) -> list[float]:
    return [float(found) for found in re.findall(r": ([\d.]+) %", out)]


def test_the_plain_loop_makes_features_that_beat_raw_pixels(tmp_path: Path) -> None:
    out = printed_by("plain_loop.py", tmp_path)
    pixels, features = (float(found) for found in re.findall(r"nearest neighbour on .*: ([\d.]+) %", out))
    assert features > pixels


def test_own_images_become_an_encoder_whose_neighbours_are_of_the_same_class(tmp_path: Path) -> None:
    out = printed_by("own_images.py", tmp_path)
    classes = [re.findall(r"(digit-\d)/", line) for line in out.splitlines() if " is like " in line]
    assert [len(found) for found in classes] == [4, 4, 4, 4]
    right = sum(neighbour == asked for asked, *neighbours in classes for neighbour in neighbours)
    assert right >= 10


@pytest.mark.slow
def test_a_pipeline_of_scikit_learn_classifies_better_on_features(tmp_path: Path) -> None:
    pixels, features = percents(printed_by("sklearn_pipeline.py", tmp_path, "5"))
    assert features > pixels > 90


@pytest.mark.slow
@pytest.mark.skipif(find_spec("lightning") is None, reason="needs lightning")
def test_lightning_trains_with_the_loss(tmp_path: Path) -> None:
    pixels, features = percents(printed_by("lightning_module.py", tmp_path, prepared=True))
    assert features > pixels


@pytest.mark.slow
def test_a_timm_script_trains_with_the_loss(tmp_path: Path) -> None:
    before, after = percents(printed_by("timm_training.py", tmp_path, "--epochs=4", prepared=True))
    assert after > before + 10


@pytest.mark.slow
def test_sentences_are_nearer_to_their_like(tmp_path: Path) -> None:
    words, embeddings = percents(printed_by("sentence_embeddings.py", tmp_path, "10"))
    assert embeddings > words + 5


def test_every_example_is_tested_and_linked_from_the_readme() -> None:
    names = {path.name for path in EXAMPLES.glob("*.py")}
    tested = set(re.findall(r'printed_by\("(\w+\.py)"', Path(__file__).read_text()))
    assert names == tested
    readme = (EXAMPLES.parent / "README.md").read_text()
    assert [name for name in sorted(names) if f"(examples/{name})" not in readme] == []
