"""What watches a run as it trains: means, throughput, NaN guard, spread of the features, gradient responses, probe.

The device never waits for any of it. What is read at a step is shown when its copy has arrived, a few steps later.
Shapes: N views of all images, V views of each, D features, K classes.
"""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contune import distributed
from contune.console import Advance, say
from contune.errors import UserError
from contune.kernels import LossSettings
from contune.losses.responses import logged_responses
from contune.methods import Method, Output
from contune.methods.base import Guess
from contune.methods.pairwise import PairwiseMethod
from contune.methods.tcl import TCL
from contune.train.engine import TAKEN
from contune.train.log import MetricsLog
from contune.train.optim import load_moments

COLLAPSED_RANK = 1.5
"""Below this effective rank all features lie on one line, or in one point."""
GUESSING_SHARE, GUESSING_EPOCHS, GUESSING_STEPS = 0.99, 5, 1000
"""A method is stuck if after this many epochs and steps its loss is still above this share of a guess's."""
MAX_SKIPPED_IN_A_ROW = 30
"""If more steps in a row are not finite, the weights themselves are to blame."""


class HostCopy:
    """Copies of tensors on their way to the host, as they are when the work queued so far is done."""

    def __init__(self, *tensors: Tensor) -> None:
        self.tensors, self.copied = list(tensors), None
        if any(tensor.is_cuda for tensor in tensors):
            self.tensors = [torch.empty(t.shape, dtype=t.dtype, pin_memory=True) for t in tensors]
            for host, tensor in zip(self.tensors, tensors, strict=True):
                host.copy_(tensor, non_blocking=True)
            self.copied = torch.cuda.Event()
            self.copied.record()

    def has_arrived(self) -> bool:
        return self.copied is None or self.copied.query()

    def wait(self) -> list[Any]:
        """The values of each tensor as lists of numbers."""
        if self.copied is not None:
            self.copied.synchronize()
        return [tensor.tolist() for tensor in self.tensors]


class Meter:
    """Sums of scalars by name; they stay on the device until somebody reads them."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, int] = {}

    def add(self, values: Mapping[str, Tensor]) -> None:
        for name, value in values.items():
            # Never the value itself: a replayed graph writes its next result over it.
            self.sums.setdefault(name, torch.zeros((), device=value.device))
            self.counts[name] = self.counts.get(name, 0) + 1
        torch._foreach_add_([self.sums[name] for name in values], [v.detach().float() for v in values.values()])

    def state_dict(self) -> dict[str, Any]:
        return {"sums": dict(self.sums), "counts": dict(self.counts)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.sums, self.counts = dict(state["sums"]), dict(state["counts"])


class Guard:
    """run.on_nan: what happens when a step's loss or gradient is not finite. It stops the run or reports the skip."""

    def __init__(self, policy: str, advice: str) -> None:
        self.policy, self.advice = policy, advice
        self.pending: list[tuple[int, Tensor]] = []
        self.num_skipped = self.in_a_row = 0

    def note(self, step: int, loss_and_gradient: Tensor) -> None:
        self.pending.append((step, loss_and_gradient.clone()))  # a replayed graph overwrites its own

    def take(self) -> tuple[list[int], Tensor]:
        """What was noted since the last call."""
        steps, pairs = [step for step, _ in self.pending], [pair for _, pair in self.pending]
        self.pending = []
        return steps, torch.stack(pairs) if pairs else torch.empty(0)

    def judge(self, steps: Sequence[int], losses_and_gradients: Sequence[tuple[float, float]]) -> None:
        bad = []
        for step, (loss, gradient) in zip(steps, losses_and_gradients, strict=True):
            if math.isfinite(loss) and math.isfinite(gradient):
                self.in_a_row = 0
                continue
            self.in_a_row += 1
            what, value = ("gradient", gradient) if math.isfinite(loss) else ("loss", loss)
            bad.append(f"the {what} became {value} at step {step}")
        if not bad:
            return
        if self.policy == "stop":
            raise UserError(
                f"{bad[0]}; the last checkpoint is untouched; {self.advice}, or skip such steps with run.on_nan=skip"
            )
        self.num_skipped += len(bad)
        say(f"{bad[0]}: skipped because of run.on_nan=skip; {self.num_skipped} so far")
        if self.in_a_row >= MAX_SKIPPED_IN_A_ROW:
            raise UserError(
                f"{bad[-1]}, as in the {self.in_a_row - 1} steps before it; the last checkpoint is untouched; "
                f"{self.advice}"
            )


class Recorder(Protocol):
    """Measures the last step at log points, outside the step."""

    def keep(self, output: Output) -> None:
        """Keep tensors; compute and copy nothing. Each replay of a captured step writes to the same ones."""

    def read(self) -> dict[str, Tensor]:
        """Scalars by name; the host does not wait for them."""


class SpreadRecorder:
    """How spread out the features of the last step are."""

    def __init__(self, num_views: int) -> None:
        self.num_views = num_views
        self.features_ND: Tensor

    def keep(self, output: Output) -> None:
        self.features_ND = output.features_ND

    def read(self) -> dict[str, Tensor]:
        return spread(self.features_ND, self.num_views)


@torch.no_grad()
def spread(features_ND: Tensor, num_views: int) -> dict[str, Tensor]:
    """Of L2-normalized features of one process, stacked view after view.

    feature_std: their standard deviation, times √D: 1 if they point in all directions, 0 if they are one point.
    effective_rank: (Σλ)² / Σλ² of the covariance's eigenvalues: how many dimensions carry the variance.
    alignment: mean squared distance of two views of an image; uniformity: log mean exp(-2 d²) over pairs of images
    (Wang and Isola 2020). Lower is better for both.
    """
    z_ND = F.normalize(features_ND.float(), dim=1)
    first_BD, second_BD = z_ND.chunk(num_views)[0], z_ND.chunk(num_views)[min(1, num_views - 1)]
    variance_D, mean_D = torch.var_mean(z_ND, dim=0, correction=0)
    centred_ND = z_ND - mean_D
    num, dim = centred_ND.shape
    smaller = centred_ND.T @ centred_ND if dim < num else centred_ND @ centred_ND.T
    # exp(-2 d²) is exp(4 cos - 4); an image with itself is no pair.
    potentials_BB = (first_BD @ first_BD.T).fill_diagonal_(-math.inf).mul_(4).exp_()
    pairs = max(1, len(first_BD) * (len(first_BD) - 1))
    return {
        "feature_std": variance_D.sqrt().mean() * math.sqrt(dim),
        "effective_rank": (num * variance_D.sum()).square() / smaller.square().sum().clamp(min=1e-12),
        "alignment": F.mse_loss(first_BD, second_BD) * dim,
        "uniformity": (potentials_BB.sum() * (math.exp(-4) / pairs)).clamp(min=1e-12).log(),
    }


class GradientRecorder:
    """The paper's gradient responses of the last step (run.gradients)."""

    def __init__(self, knobs: LossSettings, *, supcon: bool) -> None:
        self.knobs, self.supcon = knobs, supcon
        self.compared: dict[str, Tensor] = {}

    @classmethod
    def of(cls, method: Method) -> "GradientRecorder | None":
        """For TCL also SupCon's responses on the same embeddings; None for a loss that is not of this family."""
        knobs = method.knobs if isinstance(method, PairwiseMethod) else None
        return None if knobs is None else cls(knobs, supcon=isinstance(method, TCL))

    def keep(self, output: Output) -> None:
        self.compared = output.state

    def read(self) -> dict[str, Tensor]:
        return logged_responses(
            self.compared["z_ND"],
            self.compared["groups_N"],
            temperature=self.knobs.temperature,
            k1=self.knobs.k1,
            k2=self.knobs.k2,
            variant=self.knobs.variant,
            supcon=self.supcon,
        )


class OnlineProbe:
    """eval.online: a linear classifier that learns from detached features. SGD at 0.1, no decay, as solo-learn's."""

    def __init__(self, num_features: int, num_classes: int, device: torch.device) -> None:
        self.classifier = nn.Linear(num_features, num_classes).to(device)
        self.trained = distributed.wrap(self.classifier, device)
        fused = device.type == "cuda"
        self.optimizer = torch.optim.SGD(self.classifier.parameters(), lr=0.1, momentum=0.9, fused=fused)

    def step(self, features_ND: Tensor, labels_N: Tensor) -> dict[str, Tensor]:
        """One step on the features of a training batch; its loss and accuracy there."""
        logits_NK = self.trained(features_ND.float())
        loss = F.cross_entropy(logits_NK, labels_N)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        accuracy = (logits_NK.argmax(dim=1) == labels_N).float().mean()
        return {"online_loss": loss.detach(), "online_top1": accuracy}

    def state_dict(self) -> dict[str, Any]:
        return {"classifier": self.classifier.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.classifier.load_state_dict(state["classifier"])
        load_moments(self.optimizer, state["optimizer"])


class Moment(NamedTuple):
    """Where training is."""

    step: int
    epoch: float
    lr: float


class _Asked(NamedTuple):
    """A line of the log whose numbers are still on their way."""

    moment: Moment
    num_steps: int
    """How many steps its means are taken over."""
    guarded_steps: list[int]
    counts: dict[str, int]
    of_this_moment: frozenset[str]
    """Which values belong to a single step and are no means."""
    copy: HostCopy


class Watch:
    """Collects what steps return; writes a line to the log and the progress bar once in a while."""

    def __init__(
        self,
        log: MetricsLog,
        advance: Advance,
        *,
        meter: Meter,
        guard: Guard,
        recorders: Sequence[Recorder],
        guess: Guess | None,
        views_per_step: int,
        seconds: float = 0.0,
    ) -> None:
        """`seconds` of training came before, in the run that is resumed."""
        self.log, self.advance, self.meter, self.guard, self.recorders = log, advance, meter, guard, recorders
        self.guess, self.views_per_step = guess, views_per_step
        self.shown_at = time.monotonic()
        self.started = self.shown_at - seconds
        self.num_steps = 0
        self.asked: _Asked | None = None
        self.warned: set[str] = set()

    @property
    def seconds(self) -> float:
        """Of the whole training, including what came before this process."""
        return time.monotonic() - self.started

    def add(self, metrics: Mapping[str, Tensor]) -> None:
        """Add one step. A line whose numbers have arrived is shown."""
        self.meter.add(metrics)
        self.num_steps += 1
        if self.asked is not None and self.asked.copy.has_arrived():
            self.catch_up()

    def ask(self, moment: Moment) -> None:
        """Ask for the means since the last call, over all processes; the previous line is shown now at the latest."""
        self.catch_up()
        now = {name: value for recorder in self.recorders for name, value in recorder.read().items()}
        counts = self.meter.counts | dict.fromkeys(now, 1)
        scalars = torch.stack([*self.meter.sums.values(), *(value.float() for value in now.values())])
        guarded_steps, losses_and_gradients = self.guard.take()
        copy = HostCopy(distributed.mean(scalars), losses_and_gradients)
        self.asked = _Asked(moment, self.num_steps, guarded_steps, counts, frozenset(now), copy)
        self.meter.sums, self.meter.counts, self.num_steps = {}, {}, 0
        if copy.has_arrived():
            self.catch_up()

    def catch_up(self) -> None:
        """Wait for the numbers asked for, check them and show them."""
        asked, self.asked = self.asked, None
        if asked is None:
            return
        totals, losses_and_gradients = asked.copy.wait()
        self.guard.judge(asked.guarded_steps, losses_and_gradients)
        means = {name: total / count for (name, count), total in zip(asked.counts.items(), totals, strict=True)}
        now = time.monotonic()
        seconds, self.shown_at = now - self.shown_at, now
        if TAKEN in means:  # skipped steps have added zeros: means over the others only
            share = means.pop(TAKEN)
            means = {
                name: mean if name in asked.of_this_moment else mean / share for name, mean in means.items() if share
            }
            means = {name: mean for name, mean in means.items() if math.isfinite(mean)}
            if "loss" not in means:
                return
            means["skipped_steps"] = self.guard.num_skipped
        step, epoch, lr = asked.moment
        self._warn(means, step, epoch)
        rate = asked.num_steps * self.views_per_step / seconds
        self.log.write(step, {"epoch": epoch, "lr": lr, **means, "views_per_second": rate})
        self.advance(step, f"loss {means['loss']:.3f}  lr {lr:.2g}  {rate:,.0f} views/s")

    def _warn(self, means: Mapping[str, float], step: int, epoch: float) -> None:
        """Say once if the features have collapsed, and once if all predictions stay the same."""
        rank = means.get("effective_rank", math.inf)  # missing after a skipped step
        if rank < COLLAPSED_RANK and "collapse" not in self.warned:
            self.warned.add("collapse")
            say(
                f"by step {step} the features have collapsed: their effective rank is {rank:.2f}, so all images look "
                "alike to this encoder. Stop the run (Ctrl-C) and lower optim.lr, lengthen optim.warmup_epochs, or use "
                "a larger optim.batch_images"
            )
        late = epoch >= GUESSING_EPOCHS and step >= GUESSING_STEPS
        guess = self.guess
        if guess is not None and late and means["loss"] >= GUESSING_SHARE * guess.loss and "guess" not in self.warned:
            self.warned.add("guess")
            say(
                f"at step {step} the loss is still {means['loss']:.2f}, about that of the same prediction for every "
                f"image ({guess.loss:.2f}). This can last for many epochs. To shorten it: {guess.advice}"
            )
