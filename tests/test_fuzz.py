"""Settings and files made of noise: a sentence at worst, no traceback, no hang, nothing outside the folder."""

import json
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from command_line import PLAIN, contune, last_line
from fuzzing import cases, damaged, for_all, seeds
from hypothesis import strategies as st

from contune.config import Config
from contune.data.augment import build_policy
from contune.errors import UserError
from contune.methods import METHODS
from contune.models import load_encoder
from contune.recipes import RECIPES
from contune.run import RunFolder
from contune.train.log import read_metrics
from contune.train.setup import view_policies

few_cases = pytest.mark.parametrize("num_cases", [5, pytest.param(150, marks=pytest.mark.slow)])
KEYS = sorted({key for name in METHODS for key in Config().override([f"method.name={name}"]).keys()})  # noqa: SIM118

words = st.one_of(
    st.integers().map(str),
    st.floats().map(str),
    st.text(max_size=20),
    st.sampled_from(["", "none", "true", "1e999", "-0", "nan", "9" * 5000, "a" * 5000, "../..", "/", "%s{}", "\x00"]),
    st.sampled_from([*METHODS, "autoaugment", "digits rotation=5", "simaugment crop_scale=0.2,1", "lars", "1,2;3"]),
)
keys = st.one_of(st.sampled_from(KEYS), st.sampled_from(["seed", "run.seeds", "run.", ".seed", "__class__.x"]))
overrides = st.lists(st.one_of(st.tuples(keys, words).map("=".join), st.text(max_size=12)), max_size=4)
leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8))
values = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
)
sections = st.sampled_from([*Config().to_dict(), "more"])
names = st.sampled_from([key.partition(".")[2] for key in KEYS])
trees = st.one_of(values, st.dictionaries(sections, st.dictionaries(names, values, max_size=4)))


def assert_usable(config: Config, folder: Path) -> None:
    """What passed the checks survives a round trip to disk, and its policies can be built or are refused."""
    config.save(folder / "config.json")
    assert Config.load(folder / "config.json").differences(config) == []
    for text in view_policies(config.augment)[:3]:
        build_policy(text, image_size=8, channels=1)


@cases
def test_settings_of_noise(num_cases: int, tmp_path: Path) -> None:
    def check(texts: list[str]) -> None:
        with suppress(UserError):
            assert_usable(RECIPES["digits"]().override(texts), tmp_path)

    for_all(num_cases, overrides, check)


@cases
def test_configs_of_noise(num_cases: int, tmp_path: Path) -> None:
    def check(tree: Any) -> None:
        (tmp_path / "config.json").write_text(json.dumps(tree))
        with suppress(UserError):
            assert_usable(Config.load(tmp_path / "config.json"), tmp_path)

    for_all(num_cases, trees, check)


@cases
def test_damaged_files_of_a_run(num_cases: int, digits_run: tuple[Path, str], tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    readers: dict[str, Callable[[], object]] = {
        "config.json": folder.config,
        "encoder.safetensors": lambda: load_encoder(tmp_path),
        "result.json": folder.result,
        "metrics.jsonl": lambda: read_metrics(tmp_path),
    }

    def check(seed: int) -> None:
        chance = random.Random(seed)
        name = chance.choice(sorted(readers))
        (tmp_path / name).write_bytes(damaged((digits_run[0] / name).read_bytes(), chance))
        with suppress(UserError):
            readers[name]()

    for_all(num_cases, seeds, check)


MODEST = st.one_of(st.integers(-2, 40), st.floats(-1, 3), st.just(1e-30), st.just(1e30)).map(str)
"""Numbers that a small machine survives, as sizes and counts at least."""
SIZES = {
    "optim.batch_images": st.integers(1, 90).map(str),
    "augment.views": st.integers(0, 6).map(str),
    "optim.epochs": st.just("1"),
    "method.queue_size": st.integers(1, 300).map(str),
    "eval.knn_k": st.integers(1, 99).map(str),
}
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
def test_runs_with_strange_settings(num_cases: int, tmp_path: Path) -> None:
    """Two real steps end in a result or in a sentence."""
    number = 0

    def check(texts: list[str]) -> None:
        nonlocal number
        number += 1
        outcome = contune("train", "digits", "data.val_fraction=0.9", *texts, *PLAIN, "--out", tmp_path / str(number))
        assert outcome.code in (0, 2), (texts, outcome.err)
        assert (outcome.code == 2) == last_line(outcome.err).startswith("contune: ")

    for_all(num_cases, runs(), check)
