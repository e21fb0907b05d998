"""The training loop: what it feeds a method, what it logs, and how it stops."""

from pathlib import Path

import pytest
import torch
from command_line import PLAIN, contune, read_json, read_lines, train
from pictures import write_picture
from torch import Tensor

from contune.data import load_dataset
from contune.methods.simclr import SimCLR
from contune.methods.tcl import TCL

RUN = ("digits", "optim.epochs=1", "eval.linear=none")


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


def test_a_shuffled_epoch_shows_every_image_at_most_once(seen: list[Tensor], tmp_path: Path) -> None:
    train(tmp_path / "run", *RUN, "optim.batch_images=449", "augment.views=1")
    assert [len(labels_N) for labels_N in seen] == [449, 449]
    every = load_dataset("digits").train.labels
    assert every is not None
    assert torch.equal(torch.cat(seen).bincount(), every.bincount())


def test_balanced_batches_have_their_share_of_each_class(seen: list[Tensor], tmp_path: Path) -> None:
    train(tmp_path / "run", *RUN, "data.sampler=balanced", "data.images_per_class=16", "augment.views=3")
    assert len(seen) == 14
    for labels_N in seen:
        counts = labels_N.bincount()
        assert counts[counts > 0].tolist() == [3 * 16] * 4
    assert not torch.equal(seen[0], seen[1])


def test_a_balanced_batch_has_all_classes_where_fewer_are_there_than_fit(seen: list[Tensor], tmp_path: Path) -> None:
    train(tmp_path / "run", *RUN, "data.sampler=balanced", "data.images_per_class=4")
    assert len(seen) == 14
    assert all(sorted(labels_N.bincount().tolist()) == [2 * 6] * 6 + [2 * 7] * 4 for labels_N in seen)


def test_each_view_may_have_a_policy_of_its_own(tmp_path: Path) -> None:
    views: list[Tensor] = []
    forward = TCL.forward

    def watched(self: TCL, batch: list[Tensor], labels_B: Tensor | None) -> object:
        views.extend(view.clone() for view in batch)
        return forward(self, batch, labels_B)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TCL, "forward", watched)
        train(tmp_path / "run", *RUN, "augment.per_view=none,digits rotation=90", "optim.batch_images=898")
    levels = [(view * 0.377 + 0.3075) * 16 for view in views]
    off_level = [(level - level.round()).abs().max().item() for level in levels]
    assert off_level[0] < 0.04, "digits have 17 levels, and one view is left alone"
    assert off_level[1] > 0.4


def test_views_differ_by_sample_view_and_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of one picture, so that nothing but the augmentation can make a difference."""
    for number in range(8):
        write_picture(tmp_path / "photos" / f"{number}.png", seed=0)
    views: list[Tensor] = []
    encode = SimCLR.encode

    def watched(self: SimCLR, batch: list[Tensor]) -> Tensor:
        views.extend(batch)
        return encode(self, batch)

    monkeypatch.setattr(SimCLR, "encode", watched)
    train(
        tmp_path / "run", "images-ssl", f"data.path={tmp_path / 'photos'}", "data.test_fraction=0", "optim.epochs=2",
        "method.name=simclr", "optim.batch_images=8", "augment.views=2", "model.encoder=resnet-mini",
        "data.image_size=12", "augment.policy=digits",
    )  # fmt: skip
    assert len(views) == 4
    samples = torch.cat(views)
    same = [(i, j) for i in range(len(samples)) for j in range(i) if torch.equal(samples[i], samples[j])]
    assert same == []


def test_the_online_probe_learns_beside_the_encoder_and_leaves_it_alone(tmp_path: Path) -> None:
    for online in ("true", "false"):
        train(tmp_path / online, *RUN, f"eval.online={online}", "run.log_every=1", "optim.epochs=2")
    lines = read_lines(tmp_path / "true")
    assert lines[-1]["online_top1"] > lines[0]["online_top1"] + 0.2
    assert [line["loss"] for line in lines] == [line["loss"] for line in read_lines(tmp_path / "false")]


def test_logged_values_are_means_over_the_steps_between(tmp_path: Path) -> None:
    train(tmp_path / "each", *RUN)
    train(tmp_path / "some", *RUN, "run.log_every=6")
    each = [line["loss"] for line in read_lines(tmp_path / "each")]
    assert len(each) == 14  # every step of so short a run
    some = read_lines(tmp_path / "some")
    assert [line["step"] for line in some] == [6, 12, 14]
    expected = [sum(each[:6]) / 6, sum(each[6:12]) / 6, sum(each[12:]) / 2]
    assert [line["loss"] for line in some] == pytest.approx(expected, rel=1e-6)
    assert [line["epoch"] for line in some] == pytest.approx([6 / 14, 12 / 14, 1.0])


def test_the_rate_follows_the_schedule(tmp_path: Path) -> None:
    arguments = ("optim.schedule=constant", "optim.warmup_epochs=0.5", "optim.lr=0.07", "run.log_every=1")
    train(tmp_path / "run", *RUN, *arguments)
    rates = [line["lr"] for line in read_lines(tmp_path / "run")]
    assert rates == pytest.approx([0.07 * (step + 1) / 8 for step in range(7)] + [0.07] * 7)


@pytest.mark.parametrize("log_every", [1, 5])
def test_a_loss_that_is_no_number_stops_the_run_and_keeps_the_last_checkpoint(tmp_path: Path, log_every: int) -> None:
    folder = tmp_path / "run"
    arguments = ("optim.schedule=constant", "optim.warmup_epochs=0", "run.checkpoint_seconds=0")
    original = TCL.pair_loss
    calls = 0

    def breaks_at_13(self: TCL, z_ND: Tensor, groups_N: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return original(self, z_ND, groups_N) * (float("nan") if calls >= 13 else 1.0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TCL, "pair_loss", breaks_at_13)
        outcome = contune("train", *RUN, *arguments, f"run.log_every={log_every}", *PLAIN, "--out", folder)
    assert outcome.code == 2
    assert outcome.err.startswith("contune: the loss became nan at step 13; the last checkpoint is untouched;")
    assert "lower optim.lr (now 0.1) or raise method.temperature" in outcome.err
    state = torch.load(folder / "checkpoint.pt")
    assert state["step"] == (12 if log_every == 1 else 10)
    assert all(tensor.isfinite().all() for tensor in state["method"].values())
    assert not (folder / "result.json").exists()
    assert len(read_lines(folder)) == (12 if log_every == 1 else 2)


@pytest.mark.parametrize("optimizer", ["lars", "adamw"])
def test_other_optimizers_train_too(tmp_path: Path, optimizer: str) -> None:
    lr = {"lars": 0.4, "adamw": 0.001}[optimizer]
    train(tmp_path / "run", *RUN, f"optim.name={optimizer}", f"optim.lr={lr}", "run.log_every=1")
    lines = read_lines(tmp_path / "run")
    assert lines[-1]["loss"] < lines[0]["loss"] - 0.1


def test_bfloat16_trains_close_to_float32(tmp_path: Path) -> None:
    for precision in ("fp32", "bf16"):
        train(tmp_path / precision, *RUN, f"run.precision={precision}", "run.log_every=1", "optim.lr=0.01")
    single, half = (read_lines(tmp_path / precision) for precision in ("fp32", "bf16"))
    losses = [[line["loss"] for line in lines] for lines in (single, half)]
    assert losses[0] != losses[1]
    assert losses[1] == pytest.approx(losses[0], rel=0.03)


def test_no_epochs_measure_the_untrained_encoder(tmp_path: Path) -> None:
    result = train(tmp_path / "run", *RUN, "optim.epochs=0")
    assert result["views_per_second"] == 0
    assert 0 < result["knn_top1"] < 100
    assert read_json(tmp_path / "run" / "config.json")["optim"]["epochs"] == 0


def test_another_seed_is_another_run_and_the_same_seed_the_same(tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(tmp_path / name, *RUN, f"run.seed={seed}", "run.log_every=1", "data.val_fraction=0.8")
    a, b, c = (read_lines(tmp_path / name) for name in "abc")
    assert a == b
    assert a != c
