"""Settings and files made of noise: a sentence at worst, no traceback, no hang, nothing outside the folder."""

import hashlib
import json
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import PLAIN, contune, last_line, train
from fuzzing import cases, damaged, for_all, seeds
from hypothesis import strategies as st

from contune.config import Config
from contune.data.augment import build_policy
from contune.errors import UserError
from contune.methods import METHODS
from contune.models import load_encoder
from contune.recipes import RECIPES
from contune.run import RunFolder
from contune.train import checkpoint
from contune.train.checkpoint import load_checkpoint, save_checkpoint
from contune.train.log import read_metrics
from contune.train.setup import view_policies

CPU = torch.device("cpu")
few_cases = pytest.mark.parametrize("num_cases", [5, pytest.param(150, marks=pytest.mark.slow)])
KEYS = sorted({key for name in METHODS for key in Config().override([f"method.name={name}"]).keys()})  # noqa: SIM118

words = st.one_of(
    st.integers().map(str),
    st.floats().map(str),
    st.text(max_size=20),
    st.sampled_from(["", "none", "true", "1e999", "-0", "nan", "9" * 5000, "a" * 5000, "../..", "/", "%s{}", "\x00"]),
    st.sampled_from([*METHODS, "autoaugment", "digits rotation=5", "simaugment crop_scale=0.2,1", "lars", "1,2;3"]),
)  # fmt: skip
keys = st.one_of(
    st.sampled_from(KEYS), st.text(max_size=12), st.sampled_from(["method", "run.", ".seed", "__class__.x"])
)
overrides = st.lists(st.one_of(st.tuples(keys, words).map("=".join), st.text(max_size=12)), max_size=4)
leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8))
values = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
)
trees = st.one_of(
    values,
    st.dictionaries(
        st.sampled_from([*Config().to_dict(), "more"]),
        st.dictionaries(st.sampled_from([key.partition(".")[2] for key in KEYS]), values, max_size=4),
    ),
)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working folder, which has to be as empty at the end."""
    place = tmp_path / "elsewhere"
    place.mkdir()
    monkeypatch.chdir(place)
    yield tmp_path
    assert list(place.iterdir()) == []


def assert_usable(config: Config, folder: Path) -> None:
    """What passed is the same after a trip to the disk, and its policies are policies or a sentence."""
    config.save(folder / "config.json")
    assert Config.load(folder / "config.json").differences(config) == []
    for text in view_policies(config.augment)[:3]:
        build_policy(text, image_size=8, channels=1)


@cases
def test_settings_of_noise(num_cases: int, elsewhere: Path) -> None:
    def check(texts: list[str]) -> None:
        with suppress(UserError):
            assert_usable(RECIPES["digits"]().override(texts), elsewhere)

    for_all(num_cases, overrides, check)


@cases
def test_configs_of_noise(num_cases: int, elsewhere: Path) -> None:
    def check(tree: Any) -> None:
        (elsewhere / "config.json").write_text(json.dumps(tree))
        with suppress(UserError):
            assert_usable(Config.load(elsewhere / "config.json"), elsewhere)

    for_all(num_cases, trees, check)


def sealed(content: bytes) -> bytes:
    return content + checkpoint._SEAL + hashlib.sha256(content).hexdigest().encode() + b"\n"


@cases
def test_damaged_checkpoints(num_cases: int, elsewhere: Path) -> None:
    """The newest, the one before, or both; those with a checksum that fits nevertheless are read or refused."""
    states = [{"step": step, "method": {"w": torch.randn(40, 40)}, "seconds": 0.5} for step in (1, 2)]
    for state in states:
        save_checkpoint(elsewhere, state)
    paths = [elsewhere / name for name in ("checkpoint.pt", "checkpoint.previous.pt")]
    whole = [path.read_bytes() for path in paths]

    def check(seed: int) -> None:
        chance = random.Random(seed)
        which, resealed = chance.choice([(0,), (1,), (0, 1)]), chance.random() < 0.3
        for number, (path, content) in enumerate(zip(paths, whole, strict=True)):
            if number in which:
                body = content[: -checkpoint._SEAL_LENGTH]
                content = sealed(damaged(body, chance)) if resealed else damaged(content, chance)
            path.write_bytes(content)
        if len(which) == 2:
            with (
                pytest.raises(UserError, match="remove the folder to start over")
                if not resealed
                else suppress(UserError)
            ):
                load_checkpoint(elsewhere, CPU)
            return
        found = load_checkpoint(elsewhere, CPU)
        assert found is not None
        if not resealed:
            assert found["step"] == (1 if which == (0,) else 2)
            assert torch.equal(found["method"]["w"], states[found["step"] - 1]["method"]["w"])

    for_all(num_cases, seeds, check)


@cases
def test_damaged_files_of_a_run(num_cases: int, elsewhere: Path) -> None:
    folder = RunFolder(elsewhere / "run")
    train(folder.path, "digits", "optim.epochs=1", "data.val_fraction=0.6", "eval.linear=none", "run.log_every=1")
    files = [folder.config_file, folder.encoder_file, folder.result_file, folder.path / "metrics.jsonl"]
    whole = [file.read_bytes() for file in files]
    readers: list[Callable[[], object]] = [
        folder.config, lambda: load_encoder(folder.path), folder.result, lambda: read_metrics(folder.path),
    ]  # fmt: skip

    def check(seed: int) -> None:
        chance = random.Random(seed)
        number = chance.randrange(len(files))
        files[number].write_bytes(damaged(whole[number], chance))
        with suppress(UserError):
            readers[number]()
        files[number].write_bytes(whole[number])

    for_all(num_cases, seeds, check)


MODEST = st.one_of(st.integers(-2, 40), st.floats(-1, 3), st.just(1e-30), st.just(1e30)).map(str)
"""Numbers that a small machine survives, in sizes and counts at least."""
COUNTS = st.integers(0, 6).map(str)
SIZES = {"optim.batch_images": st.integers(1, 90).map(str), "augment.views": COUNTS, "optim.epochs": st.just("1")}
SIZES |= {"method.queue_size": st.integers(1, 300).map(str), "eval.knn_k": st.integers(1, 99).map(str)}
RUNNABLE = [key for key in KEYS if key.split(".")[0] in ("method", "optim", "eval", "augment") and "linear" not in key]


@st.composite
def runs(draw: st.DrawFn) -> list[str]:
    """Settings of a run that takes a moment, one to three of them strange."""
    method = draw(st.sampled_from(sorted(METHODS)))
    known = [key for key in Config().override([f"method.name={method}"]).keys() if key in RUNNABLE]  # noqa: SIM118
    chosen = draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True))
    texts = [f"{key}={draw(SIZES.get(key, MODEST))}" for key in chosen if key != "method.name"]
    return [f"method.name={method}", "eval.linear=none", "optim.batch_images=40", "optim.epochs=1", *texts]


@few_cases
def test_runs_with_strange_settings(num_cases: int, elsewhere: Path) -> None:
    """Trained for real, for two steps: a result or a sentence."""
    number = 0

    def check(texts: list[str]) -> None:
        nonlocal number
        number += 1
        outcome = contune("train", "digits", "data.val_fraction=0.9", *texts, *PLAIN, "--out", elsewhere / str(number))
        assert outcome.code in (0, 2)
        assert "Traceback" not in outcome.err
        assert (outcome.code == 2) == last_line(outcome.err).startswith("contune: ")

    for_all(num_cases, runs(), check)
