"""The training loop: fetch, augment, step, and once in a while log and save.

Everything random is a pure function of the seed and the epoch or step, drawn for the whole global batch, so
a run that was stopped goes on exactly, and any number of processes sees the same views.
"""

import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from contune import distributed
from contune.console import Advance, progress
from contune.data.augment import Params, slice_params
from contune.data.augment.crops import Crops, begin_with_crops, crops_of
from contune.data.loader import Batch, Loader
from contune.data.seeding import mixed_generator, mixed_seed
from contune.errors import UserError
from contune.methods import Method
from contune.methods.base import labels_of_views
from contune.models.fused_resnet import fuse_norms, has_norms_to_fuse
from contune.run import RunFolder
from contune.train.batch_look import batch_look
from contune.train.checkpoint import load_checkpoint, save_checkpoint
from contune.train.collapse import SpreadRecorder
from contune.train.engine import choose_engine, compiled_forward, eager_forward
from contune.train.finite import CHECKED, checked
from contune.train.gradients import recorder_for
from contune.train.graph import GraphedStep, Step
from contune.train.guard import Guard
from contune.train.log import MetricsLog, log_interval
from contune.train.meter import Meter
from contune.train.online import OnlineProbe
from contune.train.optim import build_optimizer, load_moments, set_learning_rate
from contune.train.order import epoch_indices
from contune.train.schedule import learning_rate
from contune.train.setup import Setup, local_batch, view_policies
from contune.train.signals import Stopped, put_off
from contune.train.watch import Moment, Recorder, Watch

AUGMENT_STREAM = 1


class Trainer:
    """Trains a method on a loader's images and leaves checkpoints and metrics in a run folder."""

    def __init__(self, setup: Setup, method: Method, loader: Loader, folder: RunFolder) -> None:
        self.setup, self.method, self.loader, self.folder = setup, method, loader, folder
        self.optim, self.run = setup.config.optim, setup.config.run
        self.local_batch = local_batch(setup.config, len(loader))
        self.steps_per_epoch = len(self._epoch_indices(0))
        self.num_steps = self.steps_per_epoch * self.optim.epochs
        self.log_every = log_interval(self.run.log_every, self.num_steps)
        self.augmenter = setup.augmenter(view_policies(setup.config.augment))
        self.engine = choose_engine(
            self.run.engine, device=setup.device, num_steps=self.num_steps, fusable=has_norms_to_fuse(method)
        )
        if self.engine.fused:
            fuse_norms(method)
        self.model = distributed.wrap(method, setup.device)
        self.optimizer = build_optimizer(
            method,
            self.optim.name,
            lr=self.optim.lr,
            momentum=self.optim.momentum,
            weight_decay=self.optim.weight_decay,
        )
        self.probe = self._online_probe()
        self.recorders: list[Recorder] = [SpreadRecorder(len(self.augmenter.policies))]
        if self.run.gradients and (gradients := recorder_for(method)) is not None:
            self.recorders.append(gradients)
        self.generator = torch.Generator(setup.device)
        self.step, self.seconds, self.lr = 0, 0.0, self.optim.lr
        self.forward = (compiled_forward if self.engine.compiled else eager_forward)(self.model, setup.autocast)
        changed = [method, self.optimizer, *([] if self.probe is None else self.probe.parts)]
        step = checked(self._step, method, changed, skip=self.run.on_nan == "skip")
        self.run_step: Step = GraphedStep(step, self.generator) if self.engine.recorded else step
        advice = f"lower optim.lr (now {self.optim.lr:g}) or raise method.temperature, in a new folder"
        self.guard = Guard(self.run.on_nan, folder.path, self._look_at, advice)
        self.meter = Meter()

    def fit(self) -> None:
        """Trains to the last epoch, from where `resume` left it. Asked to stop, it saves first."""
        self.method.train()
        with put_off() as asked, self._log() as log, progress("train", self.num_steps, unit="steps") as advance:
            if self.engine.compiled and self.step < self.num_steps:
                advance(self.step, "compiling the step: up to two minutes, less when it was done before")
            watch = self.watch(log, advance)
            saved_at = time.monotonic()
            for images_BCHW, labels_B in self._batches(self.step):
                watch.add(self.take_step(images_BCHW, labels_B))
                logs = self.step % self.log_every == 0 or self.step == self.num_steps
                if logs:
                    watch.ask(self.moment)
                stopped = self._is_stopped(asked(), logs)
                # Else only where means are taken, so that those of a run that goes on from here are the same.
                if stopped or (logs and time.monotonic() - saved_at > self.run.checkpoint_seconds):
                    self._save(watch)
                    saved_at = time.monotonic()
                if stopped:
                    distributed.barrier()
                    raise Stopped
            self._save(watch)

    def take_step(self, images_BCHW: Tensor, labels_B: Tensor | None) -> dict[str, Tensor]:
        """One step on a batch; the host does not wait for it."""
        self.lr = self._learning_rate()
        set_learning_rate(self.optimizer, self.lr)
        self.method.set_time(self.step / self.steps_per_epoch, self.optim.epochs)
        self.generator.manual_seed(mixed_seed(self.run.seed, AUGMENT_STREAM, self.step))
        metrics = dict(self.run_step(images_BCHW, labels_B))  # a replayed graph has but one
        self.step += 1
        self.guard.note(self.step, metrics.pop(CHECKED))
        return metrics

    def _is_stopped(self, asked: bool, logs: bool) -> bool:
        """Whether a signal ends the run after this step; several processes agree on it where they log anyway."""
        if distributed.world_size() == 1:
            return asked
        return logs and distributed.total(torch.tensor(float(asked), device=self.setup.device)).item() > 0

    def watch(self, log: MetricsLog, advance: Advance) -> Watch:
        """To be told of every step, and asked once in a while."""
        return Watch(
            log,
            advance,
            meter=self.meter,
            guard=self.guard,
            recorders=self.recorders,
            guess=self.method.guess,
            views_per_step=self.views_per_step,
            seconds=self.seconds,
        )

    @property
    def moment(self) -> Moment:
        return Moment(self.step, self.step / self.steps_per_epoch, self.lr)

    @property
    def views_per_second(self) -> float:
        return self.num_steps * self.views_per_step / self.seconds if self.seconds else 0.0

    @property
    def views_per_step(self) -> int:
        return self.optim.batch_images * len(self.augmenter.policies)

    def _step(self, images_BCHW: Tensor, labels_B: Tensor | None) -> dict[str, Tensor]:
        """Augment, forward, backward, update; no value is looked at in it, so that it can be recorded."""
        views = self._augment(images_BCHW)
        output = self.forward(views, labels_B)
        self.optimizer.zero_grad()
        output.loss.backward()
        self.optimizer.step()
        self.method.after_step(output)
        for recorder in self.recorders:
            recorder.keep(output)
        metrics = {"loss": output.loss, **output.metrics}
        if self.probe is not None:
            metrics |= self.probe.step(output.features_ND, labels_of_views(labels_B, views))
        return metrics

    def _augment(self, images_BCHW: Tensor) -> list[Tensor]:
        return self.augmenter.apply(images_BCHW, self._draw(self.generator), self.setup.view_dtype)

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

    def _draw(self, generator: torch.Generator) -> list[Params]:
        """This process's part of what is drawn for the views of a whole batch."""
        start = distributed.rank() * self.local_batch
        drawn = self.augmenter.draw(self.optim.batch_images, generator)
        return [slice_params(view, start, start + self.local_batch) for view in drawn]

    def _batches(self, first: int) -> Iterator[Batch]:
        """This process's part of every batch from step `first` on; a loader may read it ahead of its use."""
        crops = self._crops(first) if begin_with_crops(self.augmenter.policies) else None
        return self.loader.batches(self._indices(first), crops)

    def _look_at(self, step: int) -> dict[str, Any]:
        """What was in the batch of a step, counted from 1; fetched again, with the same views, as nothing was kept."""
        epoch, number = divmod(step - 1, self.steps_per_epoch)
        indices_B = self._epoch_indices(epoch)[number].tolist()
        images_BCHW, _ = next(self._batches(step - 1))
        seen = torch.Generator(self.setup.device).manual_seed(mixed_seed(self.run.seed, AUGMENT_STREAM, step - 1))
        train, labels_N = self.setup.dataset.train, self.loader.labels_N
        return batch_look(
            indices_B,
            names=train.names,
            labels=None if labels_N is None else labels_N[indices_B].tolist(),
            class_names=self.setup.dataset.class_names,
            images=images_BCHW,
            views=self.augmenter.apply(images_BCHW, self._draw(seen), self.setup.view_dtype),
        )

    def _indices(self, first: int) -> Iterator[Tensor]:
        start = distributed.rank() * self.local_batch
        for epoch in range(first // self.steps_per_epoch, self.optim.epochs):
            done = max(0, first - epoch * self.steps_per_epoch)
            yield from self._epoch_indices(epoch)[done:, start : start + self.local_batch]

    def _crops(self, first: int) -> Iterator[Crops]:
        """What a loader that streams cuts out of its pictures, drawn on the host from each step's own generator."""
        for step in range(first, self.num_steps):
            generator = mixed_generator(self.run.seed, AUGMENT_STREAM, step)
            yield crops_of(self.augmenter.policies, self._draw(generator))

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

    def _save(self, watch: Watch) -> None:
        """After a look at every step: weights that are no numbers must not replace those that are."""
        watch.catch_up()
        self.guard.judge(self.guard.take())
        self.seconds = watch.seconds
        if not distributed.is_main():
            return
        state: dict[str, Any] = {
            "step": self.step,
            "seconds": self.seconds,
            "skipped": self.guard.num_skipped,
            "random": torch.get_rng_state(),
        }
        parts = {"optimizer": self.optimizer, **self._parts()}
        state |= {name: part.state_dict() for name, part in parts.items()}
        save_checkpoint(self.folder.path, state)

    def resume(self) -> int:
        """Takes up the newest checkpoint, if there is one. The step that it was made at, else 0."""
        state = load_checkpoint(self.folder.path, self.setup.device)
        try:
            if state is not None:
                self._restore(state)
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise UserError(
                f"the checkpoint in {self.folder.path} is not one of this run ({type(error).__name__}); "
                "remove the folder to start over"
            ) from error
        step = torch.tensor(float(self.step), device=self.setup.device)
        if distributed.world_size() > 1 and distributed.mean(step).item() != self.step:
            raise UserError(
                f"the processes of this run found different checkpoints; {self.folder.path} must be one folder for all"
            )
        return self.step

    def _restore(self, state: dict[str, Any]) -> None:
        self.step, self.seconds, self.guard.num_skipped = state["step"], state["seconds"], state["skipped"]
        torch.set_rng_state(state["random"].cpu())
        load_moments(self.optimizer, state["optimizer"])
        for name, part in self._parts().items():
            part.load_state_dict(state[name])

    def _parts(self) -> dict[str, Any]:
        """All beside the optimizer with a state of their own that a run goes on from."""
        parts = {"method": self.method, "meter": self.meter, "probe": self.probe}
        return {name: part for name, part in parts.items() if part is not None}
