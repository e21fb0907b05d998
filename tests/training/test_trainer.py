"""The training loop: what it feeds a method, what it logs, and what it does about a step that is not finite."""

from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import PLAIN, Outcome, contune, read_json, read_lines, train
from torch import Tensor

from contune.methods.tcl import TCL
from contune.training.trainer import Trainer

RUN = ("digits", "optim.epochs=1", "eval.linear=none")
SMALL = (*RUN, "data.val_fraction=0.9", "optim.batch_images=16", "run.log_every=1")
LARGER = (*RUN, "data.val_fraction=0.6", "run.log_every=1")
"""Five steps an epoch."""
INF = float("inf")


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """The labels of each batch that TCL gets, view after view."""
    batches: list[Tensor] = []
    pair_loss = TCL.pair_loss

    def watched(self: TCL, z_ND: Tensor, groups_N: Tensor) -> Tensor:
        batches.append(groups_N)
        return pair_loss(self, z_ND, groups_N)

    monkeypatch.setattr(TCL, "pair_loss", watched)
    return batches


def test_balanced_batches_have_their_share_of_each_class(seen: list[Tensor], tmp_path: Path) -> None:
    train(tmp_path / "a", *LARGER, "optim.balance=sampler", "data.images_per_class=16", "augment.views=3")
    assert len(seen) == 5
    for labels_N in seen:
        counts = labels_N.bincount()
        assert counts[counts > 0].tolist() == [3 * 16] * 4
    assert not torch.equal(seen[0], seen[1])
    seen.clear()
    train(tmp_path / "b", *LARGER, "optim.balance=sampler", "data.images_per_class=4")
    assert all(sorted(labels_N.bincount().tolist()) == [2 * 6] * 6 + [2 * 7] * 4 for labels_N in seen), "all classes"


def test_each_epoch_has_an_order_of_its_own(seen: list[Tensor], tmp_path: Path) -> None:
    train(tmp_path / "run", *LARGER, "optim.epochs=2")
    assert not torch.equal(torch.stack(seen[:5]), torch.stack(seen[5:]))


def test_a_step_leaves_no_autograd_graph_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A captured step would otherwise wait for the streams of the eager steps before it."""
    take_step, returned = Trainer.take_step, list[Tensor]()

    def watched(self: Trainer, *batch: Any) -> dict[str, Tensor]:
        metrics = take_step(self, *batch)
        returned.extend(metrics.values())
        return metrics

    monkeypatch.setattr(Trainer, "take_step", watched)
    train(tmp_path / "run", *SMALL)
    assert returned
    assert not any(value.requires_grad for value in returned)


def test_the_online_probe_learns_and_leaves_the_encoder_alone(tmp_path: Path) -> None:
    results = {
        online: train(tmp_path / online, *LARGER, f"eval.online={online}", "optim.epochs=2")
        for online in ("true", "false")
    }
    scores = {online: {score["name"]: score for score in result["measures"]} for online, result in results.items()}
    assert scores["true"].keys() - scores["false"].keys() == {"online"}
    assert (scores["true"]["online"]["split"], scores["true"]["online"]["top1"] > 30) == ("test", True)
    lines = read_lines(tmp_path / "true")
    assert lines[-1]["online_top1"] > lines[0]["online_top1"] + 0.2
    assert [line["loss"] for line in lines] == [line["loss"] for line in read_lines(tmp_path / "false")]


def lines_of(tmp_path: Path, *runs: str) -> list[list[dict[str, float]]]:
    """Of runs with this setting."""
    for setting in runs:
        train(tmp_path / setting, *SMALL, "optim.lr=0.01", setting)
    return [read_lines(tmp_path / setting) for setting in runs]


def test_the_same_seed_is_the_same_run_and_another_seed_another_one(tmp_path: Path) -> None:
    """Also if it would skip a bad step, and has none."""
    stop, skip, other = lines_of(tmp_path, "run.on_nan=stop", "run.on_nan=skip", "run.seed=1")
    assert [line | {"skipped_steps": 0} for line in stop] == skip
    assert [line["loss"] for line in stop] != [line["loss"] for line in other]


@pytest.mark.slow  # a CPU without bfloat16 instructions takes most of a minute
def test_bfloat16_is_close_to_float32(tmp_path: Path) -> None:
    runs = lines_of(tmp_path, "run.precision=fp32", "run.precision=bf16")
    exact, rounded = ([line["loss"] for line in lines] for lines in runs)
    assert exact != rounded
    assert rounded == pytest.approx(exact, rel=0.03)


class _Spoiled(torch.autograd.Function):
    """A finite loss whose gradient is infinite."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor) -> Tensor:
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0] * INF


def train_with(spoiled: dict[int, str], folder: Path, *arguments: str) -> Outcome:
    """A run in which the loss or the gradient of some steps, counted from 1, is spoiled."""
    pair_loss, calls = TCL.pair_loss, 0

    def spoil(self: TCL, z_ND: Tensor, groups_N: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        loss = pair_loss(self, z_ND, groups_N)
        what = spoiled.get(calls)
        if what == "gradient":
            return _Spoiled.apply(loss)  # type: ignore[no-untyped-call,no-any-return]  # torch leaves it untyped
        return loss if what is None else loss * float(what)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TCL, "pair_loss", spoil)
        return contune(
            "train", *SMALL, "run.checkpoint_seconds=0", "optim.epochs=3", *arguments, *PLAIN, "--out", folder
        )


@pytest.mark.parametrize("what", ["nan", "gradient"])
def test_by_default_a_bad_step_stops_the_run_and_skipping_goes_on_with_it(what: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    outcome = train_with({7: what}, folder, "run.log_every=4")
    assert outcome.code == 2
    assert "at step 7" in outcome.err
    assert "run.on_nan=skip" in outcome.err
    state = torch.load(folder / "checkpoint.pt")
    assert state["step"] == 4, "not the one at step 8, which comes after the damage"
    assert all(tensor.isfinite().all() for tensor in state["method"].values())
    assert not (folder / "result.json").exists()
    again = train_with({3: what}, folder, "run.log_every=4", "run.on_nan=skip")  # the third from step 4 is the seventh
    assert again.code == 0, again.err
    assert "at step 7" in again.out
    assert read_json(folder / "result.json")["last_logged"]["skipped_steps"] == 1


def test_skipped_steps_are_counted_and_leave_no_trace_in_the_log(tmp_path: Path) -> None:
    folder, spoiled = tmp_path / "run", {2: "nan", 6: "gradient", 7: "inf"}
    outcome = train_with(spoiled, folder, "run.on_nan=skip", "eval.online=true")
    assert outcome.code == 0, outcome.err
    lines = read_lines(folder)
    assert [line["step"] for line in lines] == [step for step in range(1, 16) if step not in spoiled]
    assert [line["skipped_steps"] for line in lines] == [0] + [1] * 3 + [3] * 8
    assert all(value == value and abs(value) != INF for line in lines for value in line.values())
