"""Runs that are killed again and again, in processes that cost no import of torch: a server has it and forks them."""

import multiprocessing
import random
import time
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

import torch

from contune.config import Config
from contune.recipes import RECIPES
from contune.run import RunFolder
from contune.train.checkpoint import CHECKPOINT, PREVIOUS, read_checkpoint
from contune.train.log import read_metrics

SETTINGS = (
    "optim.epochs=4", "data.val_fraction=0.28", "eval.linear=none", "run.log_every=2", "run.checkpoint_seconds=0",
    "run.tensorboard=false", "run.report=false", "run.device=cpu",
)  # fmt: skip
"""Forty steps, a checkpoint after every other."""
SECONDS_FOR_A_WHOLE_RUN = 600


def run_config(seed: int = 0) -> Config:
    return RECIPES["digits"]().override([*SETTINGS, f"run.seed={seed}"])


def server() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["contune.train.session", "contune.recipes", "killing"])
    return context


def work(config: Config, folder: Path) -> None:
    from contune.train.session import train

    torch.set_num_threads(1)
    train(config, RunFolder(folder))


def start(context: ForkServerContext, config: Config, folder: Path) -> ForkServerProcess:
    process = context.Process(target=work, args=(config, folder))
    process.start()
    return process


def finish(context: ForkServerContext, config: Config, folder: Path) -> float:
    """To the end, undisturbed; the seconds it took."""
    began = time.monotonic()
    process = start(context, config, folder)
    process.join(SECONDS_FOR_A_WHOLE_RUN)
    assert process.exitcode == 0, process.exitcode
    return time.monotonic() - began


def kill_until_done(
    context: ForkServerContext, config: Config, folder: Path, chance: random.Random, *, seconds: float, most: int
) -> int:
    """Starts the run and kills it after a random time, up to `most` times or until it is done; how often.

    `seconds` is what a whole run takes. Most kills come early, so that there are many on the way; a few may come at any
    moment of a run, its end included.
    """
    for kill in range(most):
        process = start(context, config, folder)
        process.join(chance.uniform(0, seconds if kill % 5 == 4 else seconds / 4))
        if not process.is_alive():
            assert process.exitcode == 0, process.exitcode
            return kill
        process.kill()
        process.join()
        assert_readable(config, folder)
    return most


def assert_readable(config: Config, folder: Path) -> None:
    """What the next command, or a person, may find at any moment: whole files, and a checkpoint that is as well."""
    run = RunFolder(folder)
    run.check(config)
    if not folder.exists() or not run.config_file.exists():
        return
    assert run.config().differences(config) == []
    steps = [line["step"] for line in read_metrics(folder)]
    assert steps == sorted(set(steps))
    result = run.result()
    assert result is None or "measures" in result
    present = [name for name in (CHECKPOINT, PREVIOUS) if (folder / name).exists()]
    states = [read_checkpoint(folder / name, torch.device("cpu")) for name in present]
    assert all(state is not None for state in states), "a kill never damages a checkpoint, be it the newest"
