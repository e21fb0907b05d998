"""What watches a run as it trains: means, throughput, NaN guard, spread of the features, gradient responses, probe.

The device never waits for any of it. What is read at a step is shown when its copy has arrived, a few steps later.
Shapes: N views of all images, V views of each, D features, K classes.
"""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contune import distributed
from contune.console import Advance, say
from contune.errors import UserError
from contune.losses.responses import logged_responses
from contune.methods.base import Method, classification_loss, top1
from contune.methods.pairwise import PairwiseMethod
from contune.methods.tcl import TCL
from contune.training.engine import CHECKED, TAKEN
from contune.training.log import MetricsLog

COLLAPSED_RANK = 1.5
"""Below this effective rank all features lie on one line, or in one point."""
ADVICE = "the last checkpoint is untouched; lower optim.lr or raise method.temperature, in a new folder"
MAX_SKIPPED_IN_A_ROW = 30
"""If more steps in a row are not finite, the weights themselves are to blame."""


def to_host(tensor: Tensor) -> tuple[Tensor, torch.cuda.Event | None]:
    """A copy of a tensor as it is when the work queued so far is done, and the event of its arrival."""
    if not tensor.is_cuda:
        return tensor, None
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    copy.copy_(tensor, non_blocking=True)
    arrival = torch.cuda.Event()
    arrival.record()
    return copy, arrival


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


class OnlineProbe:
    """eval.online: a linear classifier that learns from detached features. SGD at 0.1, no decay, as solo-learn's."""

    def __init__(self, num_features: int, num_classes: int, device: torch.device, *, multilabel: bool = False) -> None:
        self.multilabel = multilabel
        self.classifier = nn.Linear(num_features, num_classes).to(device)
        self.trained = distributed.wrap(self.classifier, device)
        fused = device.type == "cuda"
        self.optimizer = torch.optim.SGD(self.classifier.parameters(), lr=0.1, momentum=0.9, fused=fused)

    def step(self, features_ND: Tensor, labels_N: Tensor) -> dict[str, Tensor]:
        """One step on the features of a training batch; its loss and accuracy there."""
        logits_NK = self.trained(features_ND.float())
        loss = classification_loss(logits_NK, labels_N, multilabel=self.multilabel)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"online_loss": loss.detach(), "online_top1": top1(logits_NK.detach(), labels_N)}


class Watch:
    """Collects what steps return; writes a line to the log and the progress bar once in a while."""

    def __init__(
        self, method: Method, on_nan: str, *, num_views: int, views_per_step: int, gradients: bool = False
    ) -> None:
        """on_nan: what to do if a loss or gradient is not finite: `stop` the run, or `skip` the step and say so.

        gradients: whether to log the paper's gradient responses, for TCL also SupCon's on the same embeddings.
        """
        self.method, self.on_nan = method, on_nan
        self.knobs = method.knobs if gradients and isinstance(method, PairwiseMethod) else None
        self.num_views, self.views_per_step = num_views, views_per_step
        self.sums: dict[str, Tensor] = {}
        self.num_steps = 0
        """Since the last line: sums of scalars by name, on the device, and over how many steps."""
        self.unchecked: dict[int, Tensor] = {}
        """The loss and the largest gradient of steps that `check` has not seen."""
        self.num_skipped, self.in_a_row = 0, 0
        self.line: dict[str, Any] | None = None
        """The line whose numbers are still on their way."""
        self.has_collapsed = False
        self.accuracy = ""
        """The last validation, for the progress bar."""

    def begin(self, log: MetricsLog, advance: Advance, step: int = 0) -> None:
        self.log, self.advance = log, advance
        self.shown_at, self.shown_step = time.monotonic(), step

    def add(self, step: int, metrics: Mapping[str, Tensor]) -> None:
        """Add one step. A line whose numbers have arrived is shown."""
        values = dict(metrics)
        if CHECKED in values:
            self.unchecked[step] = values.pop(CHECKED).clone()  # a replayed graph overwrites its own
        for name, value in values.items():
            # Never the value itself: a replayed graph writes its next result over it.
            self.sums.setdefault(name, torch.zeros((), device=value.device))
        torch._foreach_add_([self.sums[name] for name in values], [v.detach().float() for v in values.values()])
        self.num_steps += 1
        if self.line is not None and self.line["arrival"].query():
            self.catch_up()

    def ask(self, step: int, known: Mapping[str, float], features_ND: Tensor, state: Mapping[str, Tensor]) -> None:
        """Ask for the means since the last call, over all processes, and for measures of this step's output.

        `known` numbers join them: the epoch, lr, and others. The previous line is shown now at the latest.
        """
        self.catch_up()
        now = spread(features_ND, self.num_views)
        if self.knobs is not None:
            supcon = isinstance(self.method, TCL)
            now |= logged_responses(state["z_ND"], state["groups_N"], self.knobs, supcon=supcon)
        scalars = torch.stack([*self.sums.values(), *now.values()])
        numbers, arrival = to_host(torch.cat([distributed.mean(scalars), *self.unchecked.values()]))
        self.line = {
            "step": step,
            "known": known,
            "sums": list(self.sums),
            "num_steps": self.num_steps,
            "now": list(now),
            "checked": list(self.unchecked),
            "numbers": numbers,
            "arrival": arrival,
        }
        self.sums, self.num_steps, self.unchecked = {}, 0, {}
        if arrival is None:
            self.catch_up()

    def catch_up(self) -> None:
        """Wait for the numbers asked for, check them and show them."""
        line, self.line = self.line, None
        if line is None:
            return
        if line["arrival"] is not None:
            line["arrival"].synchronize()
        numbers = iter(line["numbers"].tolist())
        sums = dict(zip(line["sums"], numbers, strict=False))
        now = dict(zip(line["now"], numbers, strict=False))
        self.check(line["checked"], zip(numbers, numbers, strict=True))
        step, known, now_at = line["step"], line["known"], time.monotonic()
        rate = (step - self.shown_step) * self.views_per_step / (now_at - self.shown_at)
        self.shown_step, self.shown_at = step, now_at
        num_taken = sums.pop(TAKEN, line["num_steps"])  # skipped steps have added zeros
        if not num_taken:
            return
        means = {name: total / num_taken for name, total in sums.items()} | now
        if self.on_nan == "skip":
            means = {name: mean for name, mean in means.items() if math.isfinite(mean)}
            means["skipped_steps"] = self.num_skipped
        if means.get("effective_rank", math.inf) < COLLAPSED_RANK and not self.has_collapsed:
            self.has_collapsed = True  # said once
            fix = "lower optim.lr, lengthen optim.warmup_epochs, or use a larger optim.batch_images"
            say(f"by step {step} the features have collapsed: all images look alike to the encoder. Stop and {fix}")
        if "val_top1" in known:
            self.accuracy = f"  validation {100 * known['val_top1']:.1f} %"
        self.log.write(step, {**known, **means, "views_per_second": rate})
        self.advance(step, f"loss {means['loss']:.3f}  lr {known['lr']:.2g}  {rate:,.0f} views/s{self.accuracy}")

    def check(self, steps: Iterable[int], losses_and_gradients: Iterable[Sequence[float]]) -> None:
        """Stop the run at a step that was not finite, or report that it was skipped."""
        for step, (loss, gradient) in zip(steps, losses_and_gradients, strict=True):
            if math.isfinite(loss) and math.isfinite(gradient):
                self.in_a_row = 0
                continue
            self.num_skipped += 1
            self.in_a_row += 1
            bad = f"gradient became {gradient}" if math.isfinite(loss) else f"loss became {loss}"
            text = f"the {bad} at step {step}"
            if self.on_nan == "stop":
                raise UserError(f"{text}; {ADVICE}, or skip such steps with run.on_nan=skip")
            if self.in_a_row == MAX_SKIPPED_IN_A_ROW:
                raise UserError(f"{text}, as in the {self.in_a_row - 1} steps before it; {ADVICE}")
            say(f"{text}: skipped because of run.on_nan=skip; {self.num_skipped} so far")

    def settle(self) -> None:
        """Show what was asked for, and check every step so far."""
        self.catch_up()
        self.check(self.unchecked, [checked.tolist() for checked in self.unchecked.values()])
        self.unchecked = {}
