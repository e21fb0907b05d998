"""The training loop: fetch, augment, step, and once in a while log and save.

Everything random is a pure function of the seed and the epoch or step, drawn for the whole global batch. So a run
resumes exactly, and any number of processes sees the same views.
"""

import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from contune import distributed
from contune.config import Config
from contune.console import progress, say
from contune.data.augment import Mix
from contune.data.images import Loader
from contune.data.sampler import mixed_generator, mixed_seed
from contune.errors import UserError
from contune.eval.probes import validation_accuracy
from contune.methods.base import Method, Output, labels_of_views
from contune.run import EXTENDABLE, RunFolder
from contune.training import engine
from contune.training.log import MetricsLog, load_checkpoint, save_checkpoint
from contune.training.monitors import OnlineProbe, Watch
from contune.training.optim import build_optimizer, layer_rates, learning_rate, load_moments, set_learning_rate
from contune.training.setup import Setup, epoch_indices, local_batch
from contune.training.signals import Stopped, put_off

AUGMENT_STREAM = 1
USUAL_INTERVAL, LINES_OF_A_CURVE = 20, 50
"""Steps between lines of the log; in short runs fewer, so that a curve has 50 points."""


class Trainer:
    """Trains a method on a loader's images and leaves checkpoints and metrics in a run folder."""

    def __init__(
        self, setup: Setup, method: Method, loader: Loader, folder: RunFolder, val_loader: Loader | None = None
    ) -> None:
        config = setup.config
        augment, optim, run = config.augment, config.optim, config.run
        self.setup, self.method, self.loader, self.folder = setup, method, loader, folder
        self.val_loader, self.optim, self.run = val_loader, optim, run
        if val_loader is None and (optim.patience or run.keep == "best"):
            raise UserError("optim.patience and run.keep=best need eval.every, labels and a validation split")
        self.best: dict[str, float] = {"accuracy": -1.0, "epoch": 0, "num_worse": 0}
        """The best validation so far, and how many have followed it."""
        self.best_weights: dict[str, Tensor] = {}
        self.step, self.seconds, self.lr = 0, 0.0, optim.lr
        num_rows = local_batch(config, len(loader))
        self.rows = slice(distributed.rank() * num_rows, (distributed.rank() + 1) * num_rows)
        """This process's part of every batch."""
        self.steps_per_epoch = len(epoch_indices(config, len(loader), loader.labels_N, epoch=0))
        self.num_steps = self.steps_per_epoch * optim.epochs
        self.log_every = run.log_every or min(USUAL_INTERVAL, max(1, self.num_steps // LINES_OF_A_CURVE))
        self.generator = torch.Generator(setup.device)
        self.augmenter, self.mix = setup.augmenter(), None
        if augment.mix != "none":
            self.mix = Mix(augment.mix, augment.mix_alpha, augment.mix_probability, setup.num_classes)
        num_views = len(self.augmenter.policies)
        self.views_per_step = optim.batch_images * num_views
        fusable = False
        if engine.can_capture(setup.device):
            from contune.models.fused_norm import fuse_norms, parts_to_fuse  # a CPU has no use for it

            fusable = bool(parts_to_fuse(method))
        self.engine = engine.choose_engine(
            run.engine, device=setup.device, num_steps=self.num_steps, fusable=fusable, in_chunks=optim.micro_batch > 0
        )
        if self.engine.fused:
            fuse_norms(method)
        self.model = distributed.wrap(method, setup.device)
        if self.engine.compiled:
            self.model = engine.compiled(self.model)
        rates = None
        if optim.layer_decay < 1 or optim.freeze_epochs:
            rates = layer_rates(method.encoder, optim.layer_decay)
        numbers = {"lr": optim.lr, "momentum": optim.momentum, "weight_decay": optim.weight_decay}
        constant = method.constant_rate
        self.optimizer = build_optimizer(method, optim.name, constant=constant, encoder_rates=rates, **numbers)
        changed: list[engine.Part] = [method, self.optimizer]
        self.probe: OnlineProbe | None = None
        if config.eval.online and loader.labels_N is not None:
            self.probe = OnlineProbe(method.num_features, setup.num_classes, setup.device, multilabel=method.multilabel)
            changed += [self.probe.classifier, self.probe.optimizer]
        self.watch = Watch(
            method, run.on_nan, num_views=num_views, views_per_step=self.views_per_step, gradients=run.gradients
        )
        self.run_step: engine.Step = self._step
        if run.on_nan == "skip":
            self.run_step = engine.undoable(self._step, changed)
        if self.engine.captured:
            self.run_step = engine.CapturedStep(self.run_step, self.generator)

    def fit(self, log: MetricsLog) -> None:
        """Train to the last epoch, from where `resume` left off. When asked to stop, save first."""
        self.method.train()
        with put_off() as asked, progress("train", self.num_steps, unit="step") as advance:
            if self.engine.compiled and self.step < self.num_steps:
                advance(self.step, "compiling the step: up to two minutes, less if it is cached")
            self.watch.begin(log, advance, self.step)
            saved_at = time.monotonic()
            started = saved_at - self.seconds
            for images_BCHW, labels_B in self._batches():
                if 0 < self.optim.patience <= self.best["num_worse"]:  # also of a run that is resumed
                    say(f"stopped early: validation was best at epoch {self.best['epoch']}")
                    break
                metrics = self.take_step(images_BCHW, labels_B)
                self.watch.add(self.step, metrics)
                epoch = self.step / self.steps_per_epoch
                validates = self.val_loader is not None and epoch % self.setup.config.eval.every == 0
                logs = self.step % self.log_every == 0 or self.step == self.num_steps or validates
                if logs:
                    validated = self._validate() if validates else {}
                    self.watch.ask(self.step, {"epoch": epoch, "lr": self.lr, **validated}, *self.measured)
                stopped = asked()
                if distributed.world_size() > 1:  # the processes agree where they log and communicate anyway
                    stopped = logs and any(distributed.gather_objects(stopped))
                # Otherwise only where means are taken, so that a resumed run takes the same means.
                if stopped or (logs and time.monotonic() - saved_at > self.run.checkpoint_seconds):
                    self._save(started)
                    saved_at = time.monotonic()
                if stopped:
                    distributed.barrier()
                    raise Stopped
            self._save(started)
        if self.best_weights:
            self.method.load_state_dict(self.best_weights)

    def _validate(self) -> dict[str, float]:
        """kNN accuracy of the validation images among training images."""
        assert self.val_loader is not None
        share = torch.zeros((), device=self.setup.device)
        if distributed.is_main():
            loaders, setup, asked = (self.loader, self.val_loader), self.setup, self.setup.config.eval
            knn: Any = {"num_classes": setup.num_classes, "k": asked.knn_k, "temperature": asked.knn_temperature}
            share += validation_accuracy(self.method.encoder, *loaders, setup.spec, autocast=setup.autocast, **knn)
        accuracy = distributed.total(share).item()
        self.best["num_worse"] += 1
        if accuracy > self.best["accuracy"]:
            self.best = {"accuracy": accuracy, "epoch": self.step // self.steps_per_epoch, "num_worse": 0}
            if self.run.keep == "best":
                self.best_weights = {name: tensor.clone() for name, tensor in self.method.state_dict().items()}
        return {"val_top1": accuracy}

    def take_step(self, images_BCHW: Tensor, labels_B: Tensor | None) -> dict[str, Tensor]:
        """One step on a batch; the host does not wait for it."""
        optim = self.optim
        self.lr = learning_rate(
            self.step,
            schedule=optim.schedule,
            lr=optim.lr,
            steps_per_epoch=self.steps_per_epoch,
            epochs=optim.epochs,
            warmup_epochs=optim.warmup_epochs,
            final_lr=optim.final_lr,
        )
        epoch = self.step / self.steps_per_epoch
        set_learning_rate(self.optimizer, self.lr, frozen=epoch < optim.freeze_epochs)
        self.method.set_time(epoch, optim.epochs)
        self.generator.manual_seed(mixed_seed(self.run.seed, AUGMENT_STREAM, self.step))
        metrics = self.run_step(images_BCHW, labels_B)
        self.step += 1
        return metrics

    def _step(self, images_BCHW: Tensor, labels_B: Tensor | None) -> dict[str, Tensor]:
        """Augment, forward, backward, update. Nothing in it looks at a value, so that it can be captured."""
        drawn = self.augmenter.draw(self.optim.batch_images, self.generator, self.rows)
        at_once = -(-self.optim.micro_batch // len(self.augmenter.policies))
        views = self.augmenter.apply(images_BCHW, drawn, self.setup.view_dtype, at_once)
        if self.mix is not None:
            views, labels_B = self.mix(views, labels_B, self.generator)
        with self.setup.autocast():
            output: Output = self.model(views, labels_B)
        self.optimizer.zero_grad()
        output.loss.backward()
        self.optimizer.step()
        self.method.after_step(output)
        # To be measured at log points; each replay of a captured step writes to these tensors.
        self.measured = output.features_ND, output.state
        # Detached: a loss that outlives its step keeps nodes of autograd, which are bound to the stream of that step.
        metrics = {name: value.detach() for name, value in {"loss": output.loss, **output.metrics}.items()}
        if self.probe is not None:
            metrics |= self.probe.step(output.features_ND, labels_of_views(labels_B, views))
        return metrics | {engine.CHECKED: torch.stack([metrics["loss"].float(), engine.largest_gradient(self.method)])}

    def _batches(self) -> Iterator[tuple[Tensor, Tensor | None]]:
        """This process's part of every batch from the current step on; a loader may read ahead."""
        first = self.step

        def indices() -> Iterator[Tensor]:
            for epoch in range(first // self.steps_per_epoch, self.optim.epochs):
                rows_SB = epoch_indices(self.setup.config, len(self.loader), self.loader.labels_N, epoch)
                done = max(0, first - epoch * self.steps_per_epoch)
                yield from rows_SB[done:, self.rows]

        hosts = (mixed_generator(self.run.seed, AUGMENT_STREAM, step) for step in range(first, self.num_steps))
        return self.loader.batches(indices(), self.augmenter.crops_of_steps(self.optim.batch_images, hosts, self.rows))

    def _save(self, started: float) -> None:
        """Checks every step first: weights that are not finite must not replace a good checkpoint."""
        self.watch.settle()
        self.seconds = time.monotonic() - started
        if not distributed.is_main():
            return
        state = {
            "config": self.setup.config.to_dict(),
            "step": self.step,
            "seconds": self.seconds,
            "skipped": self.watch.num_skipped,
            "random": torch.get_rng_state(),
            "optimizer": self.optimizer.state_dict(),
            "method": self.method.state_dict(),
            "meter": {"sums": self.watch.sums, "num_steps": self.watch.num_steps},
            "best": self.best,
            "best_weights": self.best_weights,
        }
        if probe := self.probe:
            state["probe"] = {"classifier": probe.classifier.state_dict(), "optimizer": probe.optimizer.state_dict()}
        save_checkpoint(self.folder.path, state)

    def resume(self) -> int:
        """Continue from the newest checkpoint, if there is one. Returns its step, else 0."""
        state = load_checkpoint(self.folder.path, self.setup.device)
        if state is not None:
            # A run may be extended, but RunFolder.check refuses it unless that is asked for.
            different = set(Config.from_dict(state["config"]).differences(self.setup.config)) - {*EXTENDABLE}
            if different:
                raise UserError(
                    f"the checkpoint in {self.folder.path} is not one of this run: another {', '.join(different)}; "
                    "remove the folder to start over"
                )
            self.step, self.seconds = state["step"], state["seconds"]
            self.watch.num_skipped = state["skipped"]
            self.watch.sums, self.watch.num_steps = state["meter"]["sums"], state["meter"].get("num_steps", 0)
            torch.set_rng_state(state["random"].cpu())
            try:
                self.method.load_state_dict(state["method"])
                load_moments(self.optimizer, state["optimizer"])
                if self.probe is not None:
                    self.probe.classifier.load_state_dict(state["probe"]["classifier"])
                    load_moments(self.probe.optimizer, state["probe"]["optimizer"])
            except (RuntimeError, ValueError) as error:
                raise UserError(f"{self.folder.path} was begun on other data; restore them or remove it") from error
            self.best, self.best_weights = state["best"], state["best_weights"]
            if state["config"]["optim"]["epochs"] != self.optim.epochs:
                self.best["num_worse"] = 0  # the patience starts over
        if len({*distributed.gather_objects(self.step)}) > 1:
            raise UserError(f"the processes found different checkpoints; {self.folder.path} must be on a shared disk")
        return self.step

    def release_memory(self) -> None:
        """After `fit`: free the captured step with its memory pool, and the gradients, for the evaluation."""
        del self.run_step, self.model, self.watch
        vars(self).pop("measured", None)  # missing after 0 steps
        self.optimizer.zero_grad(set_to_none=True)
        self.probe, self.best_weights = None, {}
        torch.cuda.empty_cache()
