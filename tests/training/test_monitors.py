"""What watches a run: means, the NaN guard, warnings, gradient responses. Values may arrive late, as on a GPU."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from command_line import read_lines, train
from small_run import small_method
from torch import Tensor

from contune.errors import UserError
from contune.losses.responses import coefficients
from contune.methods.pairwise import PairwiseMethod
from contune.training import monitors
from contune.training.log import CURVES, MetricsLog, read_metrics
from contune.training.monitors import MAX_SKIPPED_IN_A_ROW, Watch, to_host

RUN = ("digits", "optim.epochs=1", "eval.linear=none", "data.val_fraction=0.85", "optim.batch_images=32")
"""Four steps."""
OWN = {"positive_gradient", "negative_gradient"}
LOGGED = set(CURVES[1:])
NAN, INF = float("nan"), float("inf")
OUTPUT: tuple[Tensor, dict[str, Tensor]] = (torch.empty(0), {})


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MetricsLog]:
    """With a value of the moment instead of the spread of features."""
    monkeypatch.setattr(monitors, "spread", lambda features_ND, num_views: {"now": torch.tensor(0.25)})
    with MetricsLog(tmp_path, resume_step=0) as log:
        yield log


def watch_of(log: MetricsLog, on_nan: str = "skip") -> Watch:
    method: Any = None
    watch = Watch(method, on_nan, num_views=2, views_per_step=8)
    watch.begin(log, lambda done, text: None)
    return watch


@pytest.mark.parametrize("late", [False, True])
def test_a_line_has_means_since_the_last_one(
    late: bool, log: MetricsLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if late:
        arrival = SimpleNamespace(query=lambda: False, synchronize=lambda: None)
        monkeypatch.setattr(monitors, "to_host", lambda tensor: (tensor, arrival))
    watch = watch_of(log)
    for step, (loss, top1) in enumerate(((1.0, 0.0), (2.0, 1.0), (6.0, 0.5))):
        watch.add(step, {"loss": torch.tensor(loss, requires_grad=True), "top1": torch.tensor(top1)})
    watch.ask(3, {"epoch": 0.5, "lr": 0.1}, *OUTPUT)
    assert len(read_metrics(tmp_path)) == (0 if late else 1)
    watch.add(4, {"loss": torch.tensor(5.0, dtype=torch.bfloat16)})
    watch.settle()
    resumed = watch_of(log)
    resumed.sums, resumed.num_steps = watch.sums, watch.num_steps
    resumed.add(5, {"loss": torch.tensor(7.0)})
    resumed.ask(5, {"epoch": 1.0, "lr": 0.1}, *OUTPUT)
    resumed.settle()
    first, second = read_metrics(tmp_path)
    assert {name: first[name] for name in ("step", "epoch", "lr", "loss", "top1", "now")} == {
        "step": 3,
        "epoch": 0.5,
        "lr": 0.1,
        "loss": 3.0,
        "top1": 0.5,
        "now": 0.25,
    }
    assert second["loss"] == 6.0


@pytest.mark.gpu
def test_copies_are_of_the_moment_they_were_made() -> None:
    values = torch.zeros(3, device="cuda")
    torch.cuda._sleep(100_000_000)
    values += 1
    copy, arrival = to_host(values)
    assert arrival is not None
    assert not arrival.query(), "the host does not wait"
    values += 1
    arrival.synchronize()
    assert copy.tolist() == [1.0, 1.0, 1.0]


def test_skipped_steps_are_counted_and_many_in_a_row_stop_the_run(
    log: MetricsLog, capsys: pytest.CaptureFixture[str]
) -> None:
    watch, bad = watch_of(log), (NAN, 1.0)
    watch.check([1, 2, 3], [(1.0, INF), (1.0, 1.0), bad])
    assert (watch.num_skipped, watch.in_a_row) == (2, 1)
    assert "at step 1" in capsys.readouterr().out
    watch.check(range(4, 2 + MAX_SKIPPED_IN_A_ROW), [bad] * (MAX_SKIPPED_IN_A_ROW - 2))
    with pytest.raises(UserError, match=f"step {2 + MAX_SKIPPED_IN_A_ROW}"):
        watch.check([2 + MAX_SKIPPED_IN_A_ROW], [bad])


@pytest.mark.parametrize(("rank", "is_said"), [(1.6, False), (1.2, True)])
def test_a_collapse_is_reported_once(
    rank: float, is_said: bool, capsys: pytest.CaptureFixture[str], log: MetricsLog
) -> None:
    watch = watch_of(log)
    for step in (10, 11):
        watch.add(step, {"loss": torch.tensor(1.0), "effective_rank": torch.tensor(rank)})
        watch.ask(step, {"epoch": 1.0, "lr": 0.1}, *OUTPUT)
    assert capsys.readouterr().out.count("collapsed") == is_said


def test_spread_by_hand() -> None:
    point = monitors.spread(torch.ones(8, 4), 2)
    assert (point["feature_std"], point["alignment"], point["uniformity"]) == pytest.approx((0, 0, 0), abs=1e-6)
    corners_ND = torch.eye(4).repeat(2, 1)
    spread = monitors.spread(corners_ND, 2)
    assert spread["effective_rank"] == pytest.approx(3), "four corners span three dimensions around their mean"
    assert spread["alignment"] == 0
    assert spread["uniformity"] == pytest.approx(-4), "all pairs are at a squared distance of 2"
    assert monitors.spread(torch.tensor([[1.0, 0], [-1, 0], [1, 0], [-1, 0]]), 2)["effective_rank"] == pytest.approx(1)


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Tensor, Tensor]]:
    """The embeddings and labels of every step."""
    seen: list[tuple[Tensor, Tensor]] = []
    forward = PairwiseMethod.forward

    def watched(self: PairwiseMethod, views: list[Tensor], labels_B: Tensor | None) -> object:
        output = forward(self, views, labels_B)
        seen.append((output.state["z_ND"].clone(), output.state["groups_N"]))
        return output

    monkeypatch.setattr(PairwiseMethod, "forward", watched)
    return seen


def mean_responses(z_ND: Tensor, groups_N: Tensor, k1: float, k2: float) -> tuple[float, float]:
    """In float64, by the whole matrices."""
    terms = coefficients(z_ND.double(), groups_N, temperature=0.1, k1=k1, k2=k2)
    rows = [i for i in range(len(z_ND)) if terms.X_RC[i].any()]
    same_NN = groups_N[:, None] == groups_N
    pull = [terms.positive_RC[i].abs().sum() / (same_NN[i].sum() - 1) for i in rows]
    push = [terms.N_RC[i].sum() / (~same_NN[i]).sum() for i in rows]
    return float(torch.stack(pull).mean()), float(torch.stack(push).mean())


def test_logged_responses_are_those_of_the_last_step(compared: list[tuple[Tensor, Tensor]], tmp_path: Path) -> None:
    train(tmp_path / "run", *RUN, "run.log_every=3", "method.k1=2000", "method.k2=1.5")
    lines = read_lines(tmp_path / "run")
    assert [line["step"] for line in lines] == [3, 4]
    for line in lines:
        z_ND, groups_N = compared[int(line["step"]) - 1]
        tuned, plain = mean_responses(z_ND, groups_N, 2000.0, 1.5), mean_responses(z_ND, groups_N, 0.0, 1.0)
        assert (line["positive_gradient"], line["negative_gradient"]) == pytest.approx(tuned, rel=1e-5)
        assert (line["supcon_positive_gradient"], line["supcon_negative_gradient"]) == pytest.approx(plain, rel=1e-5)
        assert 0.9 < line["theorem1_share"] <= 1


@pytest.mark.parametrize(
    ("name", "settings", "logged"),
    [
        ("tcl", {"k1": 0.0}, LOGGED),
        ("tcl", {"supervised": False}, LOGGED),
        ("supcon", {"variant": "in"}, OWN),
        ("simclr", {}, OWN),
        ("triplet", {}, set()),
        ("byol", {}, set()),
    ],
)
def test_who_logs_which_responses(name: str, settings: dict[str, Any], logged: set[str], tmp_path: Path) -> None:
    method = small_method(name, **settings)
    output = method([torch.randn(8, 1, 8, 8) for _ in range(2)], torch.arange(8) % 4)
    watch = Watch(method, "stop", num_views=2, views_per_step=16, gradients=True)
    with MetricsLog(tmp_path, resume_step=0) as log:
        watch.begin(log, lambda done, text: None)
        watch.add(1, {"loss": output.loss})
        watch.ask(1, {"epoch": 1.0, "lr": 0.1}, output.features_ND, output.state)
    (found,) = read_metrics(tmp_path)
    assert found.keys() & LOGGED == logged
    assert all(found[key] > 0 for key in OWN & logged)
