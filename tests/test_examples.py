"""The scripts in examples/ run as a person runs them."""

import os
import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"


def printed_by(name: str, folder: Path) -> str:
    """What the script prints when it is started in an empty folder, in which it must leave nothing."""
    command = [sys.executable, str(EXAMPLES / name)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    assert not list(folder.iterdir())
    return done.stdout


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


def test_every_example_is_tested_and_linked_from_the_readme() -> None:
    names = {path.name for path in EXAMPLES.glob("*.py")}
    assert names == {"plain_loop.py", "own_images.py"}
    readme = (EXAMPLES.parent / "README.md").read_text()
    assert all(f"(examples/{name})" in readme for name in names)
