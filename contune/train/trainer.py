"""The training loop: fetch, augment, step, and once in a while log and save.

Everything random is a pure function of the seed and the epoch or step, drawn for the whole global batch, so
a run that was stopped goes on exactly, and any number of processes sees the same views.
"""

import time
from collections.abc import Iterator
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from contune import distributed
from contune.data.augment import slice_params
from contune.data.loader import Batch, Loader
from contune.data.seeding import mixed_seed
from contune.errors import UserError
from contune.methods import Method
from contune.methods.base import labels_of_views
from contune.progress import progress
from contune.run import RunFolder
from contune.train.checkpoint import load_checkpoint, save_checkpoint
from contune.train.graph import GraphedStep, Step, use_graph
from contune.train.log import MetricsLog
from contune.train.meter import Meter
from contune.train.online import OnlineProbe
from contune.train.optim import build_optimizer, set_learning_rate
from contune.train.order import epoch_indices
from contune.train.schedule import learning_rate
from contune.train.setup import Setup, local_batch, view_policies

AUGMENT_STREAM = 1


class Trainer:
    """Trains a method on a loader's images and leaves checkpoints and metrics in a run folder."""

    def __init__(self, setup: Setup, method: Method, loader: Loader, folder: RunFolder) -> None:
        self.setup, self.method, self.loader, self.folder = setup, method, loader, folder
        self.optim, self.run = setup.config.optim, setup.config.run
        self.local_batch = local_batch(setup.config, len(loader))
        self.steps_per_epoch = len(self._epoch_indices(0))
        self.num_steps = self.steps_per_epoch * self.optim.epochs
        self.augmenter = setup.augmenter(view_policies(setup.config.augment))
        self.model = distributed.wrap(method, setup.device)
        self.optimizer = build_optimizer(
            method,
            self.optim.name,
            lr=self.optim.lr,
            momentum=self.optim.momentum,
            weight_decay=self.optim.weight_decay,
        )
        self.probe = self._online_probe()
        self.generator = torch.Generator(setup.device)
        self.step, self.seconds, self.lr = 0, 0.0, self.optim.lr
        graphed = use_graph(self.run.engine, self.optim.name, setup.device)
        self.run_step: Step = GraphedStep(self._step, self.generator) if graphed else self._step

    def fit(self) -> None:
        """Trains to the last epoch, from the newest checkpoint if there is one."""
        self._resume()
        meter, views_per_step = Meter(), self.optim.batch_images * len(self.augmenter.policies)
        self.method.train()
        with self._log() as log, progress("train", self.num_steps, unit="steps") as advance:
            logged_at = saved_at = time.monotonic()
            for images_BCHW, labels_B in self._batches():
                self.lr = self._learning_rate()
                set_learning_rate(self.optimizer, self.lr)
                self.generator.manual_seed(mixed_seed(self.run.seed, AUGMENT_STREAM, self.step))
                meter.add(self.run_step(images_BCHW, labels_B))
                self.step += 1
                if self.step % self.run.log_every == 0 or self.step == self.num_steps:
                    num_views = meter.count * views_per_step
                    values = self._checked(meter.read())
                    now = time.monotonic()
                    rate = num_views / (now - logged_at)
                    self.seconds, logged_at = self.seconds + now - logged_at, now
                    epoch = self.step / self.steps_per_epoch
                    log.write(self.step, {"epoch": epoch, "lr": self.lr, **values, "views_per_second": rate})
                    advance(self.step, f"loss {values['loss']:.3f}  lr {self.lr:.2g}  {rate:,.0f} views/s")
                    if now - saved_at > self.run.checkpoint_seconds:  # only here: this loss is known to be finite
                        self._save()
                        saved_at = time.monotonic()
        self._save()

    @property
    def views_per_second(self) -> float:
        views = self.num_steps * self.optim.batch_images * len(self.augmenter.policies)
        return views / self.seconds if self.seconds else 0.0

    def _step(self, images_BCHW: Tensor, labels_B: Tensor | None) -> dict[str, Tensor]:
        """Augment, forward, backward, update; no value is looked at in it, so that it can be recorded."""
        views = self._augment(images_BCHW)
        with self.setup.autocast():
            output = self.model(views, labels_B)
        self.optimizer.zero_grad()
        output.loss.backward()
        self.optimizer.step()
        self.method.after_step()
        metrics = {"loss": output.loss, **output.metrics}
        if self.probe is not None:
            metrics |= self.probe.step(output.features_ND, labels_of_views(labels_B, views))
        return metrics

    def _augment(self, images_BCHW: Tensor) -> list[Tensor]:
        start = distributed.rank() * self.local_batch
        params = [
            slice_params(drawn, start, start + self.local_batch)
            for drawn in self.augmenter.draw(self.optim.batch_images, self.generator)
        ]
        views = self.augmenter.apply(images_BCHW, params)
        if self.setup.device.type == "cuda":
            views = [view.contiguous(memory_format=torch.channels_last) for view in views]
        return views

    def _learning_rate(self) -> float:
        return learning_rate(
            self.step,
            schedule=self.optim.schedule,
            lr=self.optim.lr,
            steps_per_epoch=self.steps_per_epoch,
            epochs=self.optim.epochs,
            warmup_epochs=self.optim.warmup_epochs,
            final_lr=self.optim.final_lr,
        )

    def _batches(self) -> Iterator[Batch]:
        """This process's part of every batch from the current step on."""
        start = distributed.rank() * self.local_batch
        for epoch in range(self.step // self.steps_per_epoch, self.optim.epochs):
            indices_SB = self._epoch_indices(epoch)[self.step % self.steps_per_epoch :]
            yield from self.loader.batches(list(indices_SB[:, start : start + self.local_batch]))

    def _epoch_indices(self, epoch: int) -> Tensor:
        return epoch_indices(self.setup.config, len(self.loader), self.loader.labels_N, epoch)

    def _online_probe(self) -> OnlineProbe | None:
        if not self.setup.config.eval.online:
            return None
        if self.loader.labels_N is None:
            raise UserError("eval.online=true needs labels, and this data has none; leave it off")
        return OnlineProbe(self.method.num_features, self.setup.num_classes, self.setup.device)

    def _log(self) -> MetricsLog:
        return MetricsLog(self.folder.path, resume_step=self.step, tensorboard=self.run.tensorboard)

    def _checked(self, values: dict[str, float]) -> dict[str, float]:
        if not isfinite(values["loss"]):
            raise UserError(
                f"the loss became {values['loss']} by step {self.step}; the last checkpoint is untouched; "
                f"lower optim.lr (now {self.optim.lr:g}) or raise method.temperature, in a new folder"
            )
        return values

    def _save(self) -> None:
        if not distributed.is_main():
            return
        state: dict[str, Any] = {
            "step": self.step,
            "seconds": self.seconds,
            "method": self.method.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": torch.get_rng_state(),
        }
        if self.probe is not None:
            state["probe"] = self.probe.state_dict()
        save_checkpoint(self.folder.path, state)

    def _resume(self) -> None:
        state = load_checkpoint(self.folder.path, self.setup.device)
        if state is None:
            return
        self.step, self.seconds = state["step"], state["seconds"]
        self.method.load_state_dict(state["method"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"].cpu())
        if self.probe is not None:
            self.probe.load_state_dict(state["probe"])
