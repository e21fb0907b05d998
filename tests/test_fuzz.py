"""The whole command line on noise: a sentence at worst, no traceback, no hang, nothing written elsewhere."""

# ruff: noqa: SIM905  (words in a line)

import json
import os
import random
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import PLAIN, contune, train
from fuzzing import at_most, damaged
from PIL import Image
from small_run import png, write_images

from contune.config import Config
from contune.methods import METHODS

SMALL = ("data.val_fraction=0.9", "eval.linear=none", "optim.epochs=1", "optim.batch_images=40", *PLAIN)
TEXTS = "- = a=b none ~nosuchuser .. /nowhere /dev/null /proc/self/mem é [red] %s{} http://x *.png 1 nan".split()
TEXTS += ["", " ", "\udcff", "\x1b[31m", "a\nb", "x" * 300, "x" * 5000]
NUMBERS = ["", *"0 1 2 7 -1 1e3 1e-30 1e30 nan inf x 100000000000000000000".split()]
RUNS = ["run"] * 8 + "other other . photos strange run/encoder.safetensors run/config.json table.parquet".split()
IMAGES = "photos photos photos photos/cat photos/cat/000.png data.parquet data.parquet table.parquet run other".split()
IMAGES += "strange strange/loop strange/gray.tif strange/broken.png".split()
OUTS = "out.parquet out.csv out.json out.html out deep/er/out.csv deep/out.parquet p.csv photos".split()
OUTS += "photos/x.parquet data.parquet table.parquet run run/report.html strange/loop/x.csv".split()
OUT = {"--out": OUTS}
COLUMN = {"--label-column": ["label", "nothing", *TEXTS], "--workers": ["0", "0", "2", "-1", "x", str(10**20)]}
READ = COLUMN | {"--device": ["cpu", "auto", "meta", "cuda", *TEXTS], "--batch": NUMBERS, "--broken": ["stop", "x"]}
HEAVY = ("optim.epochs", "data.image_size", "eval.linear_epochs", "model.encoder", "method.name", "run.engine")
SIZES = {"augment.views": range(7), "optim.batch_images": range(1, 99), "data.workers": ["0", "1", "x", str(10**20)]}
MODEST = [str(number) for number in (*range(-2, 40), 300, 0.3, 1e-30, 1e30)]


def settings(chance: random.Random) -> list[str]:
    """Up to three strange settings, of a size that a small machine survives."""
    known = Config().override([f"method.name={(method := chance.choice(sorted(METHODS)))}"])
    texts = [f"method.name={method}"]
    for key in chance.sample([key for key in known.flat() if key not in HEAVY], chance.randrange(4)):
        texts.append(f"{key}={chance.choice(SIZES.get(key) or [*MODEST, *chance.sample(TEXTS, 5)])}")
    return texts if chance.random() < 0.9 else [*texts, chance.choice(TEXTS)]


COMMANDS: dict[str, tuple[int, Sequence[Any], dict[str, Any]]] = {
    "train": (250, [["digits"], SMALL, settings], OUT | {"--seeds": ["-1", "x", ",", "1e9"], "--parallel": NUMBERS}),
    "eval": (150, [RUNS, ["eval.linear=none"], settings], {}),
    "recipes": (100, [["digits", *TEXTS]], {}),
    "embed": (600, [RUNS, IMAGES], OUT | READ | {"--dtype": ["float16", "x"]}),
    "search": (500, [RUNS, IMAGES, IMAGES], OUT | READ | {"-k": NUMBERS}),
    "predict": (600, [RUNS, IMAGES], OUT | READ),
    "export": (200, [RUNS, ["--to"], ["timm", "safetensors", "safetensors", *TEXTS]], OUT),
    "check": (400, [IMAGES], OUT | COLUMN),
    "doctor": (80, [["digits"], SMALL, settings], {}),
    "analyze": (120, [RUNS, settings], OUT | {"--k1": NUMBERS, "--k2": NUMBERS, "--batches": ["1", "0", "-1", "x"]}),
    "report": (150, [RUNS, ["other"]], OUT),
    "tune": (80, [["digits", *TEXTS], ["optim.epochs=0", "data.path=x"]], OUT | {"--how": TEXTS, "--k1": NUMBERS}),
    "experiment": (120, [["ci-digits", "ssl-digits", *TEXTS], ["--draw"]], OUT | {"--from": RUNS, "--seeds": NUMBERS}),
}
"""How many cases each has, what stands in each place, and values of its options."""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, one that can be resumed, and images of all kinds."""
    folder = tmp_path_factory.mktemp("template")
    train(folder / "run", "digits", *SMALL, "eval.linear=fast")
    shutil.copytree(folder / "run", folder / "other")
    (folder / "other" / "result.json").unlink()
    photos, strange = write_images(folder / "photos", 6), folder / "strange"
    assert contune("embed", folder / "run", photos, "--out", folder / "table.parquet").code == 0
    assert contune("predict", folder / "run", photos, "--out", folder / "p.csv").code == 0
    rows = {"image": [png(number) for number in range(6)], "label": ["a", "b", "a", "b", "=1", "a"]}
    pq.write_table(pa.table(rows), folder / "data.parquet")
    strange.mkdir()
    (strange / "loop").symlink_to("loop")
    (strange / "up").symlink_to("..")
    (strange / "folder.png").mkdir()
    (strange / "broken.png").write_bytes(png(0)[:-20])
    (strange / os.fsdecode(b"\xff.png")).write_bytes(png(0))
    Image.fromarray(np.arange(64, dtype=np.uint16).reshape(8, 8)).save(strange / "gray.tif")
    return folder


_written: list[str] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    writes = event == "open" and arguments[2] is not None and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if (writes or event in ("os.mkdir", "os.remove", "os.rename")) and not isinstance(arguments[0], int):
        _written.append(os.path.abspath(os.fsdecode(arguments[event == "os.rename"])))


sys.addaudithook(_audit)


def damage(place: Path, chance: random.Random) -> bool:
    """Change, remove or replace up to two files. Returns whether result.json was one of them."""
    paths = chance.sample(sorted(path for path in place.rglob("*") if path.is_file()), chance.choice([0, 0, 1, 2]))
    for path in paths:
        content, way = path.read_bytes(), chance.randrange(9)
        path.unlink()
        if path.suffix == ".json" and way < 6:
            path.write_text(json.dumps(with_a_strange_value(json.loads(content), chance)))
        elif way == 0:
            path.mkdir()
        elif way == 1:
            path.symlink_to(path.name)
        elif way > 2:
            path.write_bytes(damaged(content, chance) if content and way > 3 else b"")
    return any(path.name == "result.json" for path in paths)


def with_a_strange_value(tree: Any, chance: random.Random) -> Any:
    if not tree or not isinstance(tree, dict | list) or chance.random() < 0.1:
        return chance.choice([None, True, -1, 10**20, 1e300, "", "x", [], {}, [[]], {"x": 1}])
    key = chance.choice(list(tree) if isinstance(tree, dict) else range(len(tree)))
    tree[key] = with_a_strange_value(tree[key], chance)
    return tree


def command_line(command: str, chance: random.Random) -> Iterator[str]:
    _, places, options = COMMANDS[command]
    yield command
    for pool in places:
        if callable(pool):
            yield from pool(chance)
        elif pool is SMALL:
            yield from SMALL
        else:
            yield chance.choice(TEXTS) if chance.random() < 0.05 else chance.choice(pool)
    for option in chance.sample(sorted(options), min(len(options), chance.randrange(4))):
        yield option
        if options[option] is not None:
            yield chance.choice(options[option])


few = [(command, 3) for command in COMMANDS]
slow = [pytest.param(command, num, marks=pytest.mark.slow) for command, (num, _, _) in COMMANDS.items()]


@pytest.mark.parametrize(("command", "num_cases"), [*few, *slow])
def test_the_command_line_on_noise(
    command: str, num_cases: int, template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = []
    for number in range(num_cases):
        chance, place = random.Random(f"{command} {number}"), tmp_path / str(number)
        shutil.copytree(template, place, symlinks=True)
        strange = damage(place, chance)
        monkeypatch.chdir(place)
        monkeypatch.setattr("tempfile.tempdir", str(place))
        words = list(command_line(command, chance))
        _written.clear()
        try:
            with at_most(60):
                outcome = contune(*words)
            says = outcome.code < 2 or "contune: " in outcome.err or "Usage: " in outcome.err
            fine = outcome.code in ((0, 1, 2) if strange or command in ("check", "doctor") else (0, 2))
            bug = "Traceback" in outcome.out + outcome.err or ("unexpected" in outcome.err and not strange)
            problem = "" if fine and says and not bug else f"{outcome.code}: {outcome.err[-300:]}"
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        elsewhere = {path for path in _written if not path.startswith((str(place), "/dev/"))}
        elsewhere = {path for path in elsewhere if "__pycache__" not in path and "matplotlib" not in path}
        if problem or elsewhere:
            wrong.append(f"{number} {words} {problem} {sorted(elsewhere)}")
        shutil.rmtree(place)
    assert not wrong, f"{len(wrong)} of {num_cases}\n" + "\n".join(wrong)
