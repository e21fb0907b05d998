"""A whole run, from config to report: what `contune train` and `contune eval` do."""

import shlex
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import nn

from contune import distributed
from contune.config import Config
from contune.console import plural, say
from contune.data.decode import write_broken
from contune.data.images import Loader
from contune.device import choose_device, hardware_name
from contune.errors import UserError
from contune.eval.evaluate import Evaluation, evaluate
from contune.eval.measures import CLASSIFIER, KNN, LINEAR, MAP, MEASURES, START, judged_by
from contune.eval.probes import extract_features
from contune.files import atomic_file, folder_lock
from contune.methods import find_method
from contune.methods.base import Method
from contune.methods.pairwise import SoftmaxMethod
from contune.models import load_encoder, save_encoder
from contune.models.saved import CLASSIFIER_FILE, save_classifier
from contune.run import EXTENDABLE, RunFolder
from contune.training.engine import CapturedStep, can_capture
from contune.training.log import CHECKPOINT, METRICS, MetricsLog, downsampled, git_revision, read_metrics, versions
from contune.training.setup import Own, Setup, build_method, open_setup
from contune.training.signals import stoppable
from contune.training.trainer import Trainer

SKIPPED_FILE = "skipped.json"
"""In a run folder: the images that could not be decoded, and why."""
STUCK = 0.98
"""A softmax method learned nothing if its loss keeps this share of what it began with: that of random embeddings."""


def train(
    config: Config,
    folder: str | Path | RunFolder,
    *,
    write_report: Callable[..., None] | None = None,
    own: Own | None = None,
    extends: RunFolder | None = None,
) -> dict[str, Any]:
    """Train, evaluate and report into `folder`, resuming what an earlier call has begun. Returns its result.json.

    write_report: called with a path and what `contune.report` draws from; the core does not know how to draw.
    own: data, an encoder or a transform of yours, in place of what the config names.
    extends: a run to train further, in its own folder or from a copy of its checkpoint in `folder`.
    Of several processes only the first returns a result, the others {}.
    """
    folder = RunFolder(folder)
    with stoppable(), distributed.process_group(choose_device(config.run.device)), ExitStack() as opened:
        config.check()
        check_folder(config, folder, extends)
        finished = folder.result()
        if finished is not None and finished["epochs"] == config.optim.epochs:
            say(f"already finished: {folder.path}. This is its result; another --out or run.seed starts a new run.")
            return finished if distributed.is_main() else {}
        times = {"start": time.monotonic()}

        # Load and build. Whatever can be wrong with the input shows here, before anything is written.
        for name in config.run.loggers:
            if find_spec(name) is None:
                raise UserError(f"run.loggers={name} is not installed; run pip install -e '.[{name}]' in the clone")
        setup = open_setup(config, own=own)
        method = build_method(setup)
        train_loader = setup.loader(setup.dataset.train, "train images")
        test_set, test_loader, val_loader = setup.eval_set(), None, None
        if test_set is not None and distributed.is_main():
            test_loader = setup.loader(test_set, "test images")
        if config.eval.every and setup.dataset.val is not None and train_loader.labels_N is not None:
            val_loader = setup.loader(setup.dataset.val, "validation images")
        trainer = Trainer(setup, method, train_loader, folder, val_loader)
        setup.augmenter([config.augment.policy])  # the probe needs it at the end; a misspelled one is found now

        # Open the folder, and resume what is in it.
        distributed.barrier()
        if distributed.is_main():
            opened.enter_context(folder_lock(folder.path))
            config.save(folder.config_file)
            folder.result_file.unlink(missing_ok=True)  # of fewer epochs
            if extends is not None and not (folder.path / CHECKPOINT).exists():
                for name in (METRICS, CHECKPOINT):
                    with atomic_file(folder.path / name) as part:
                        shutil.copyfile(extends.path / name, part)
            if setup.dataset.skipped:
                write_broken(folder.path / SKIPPED_FILE, setup.dataset.skipped)
        distributed.barrier()
        say(describe(setup, method, str(trainer.engine)))
        start = None
        if config.eval.start and config.optim.epochs and test_loader is not None:
            features = partial(extract_features, method.encoder, spec=setup.spec, autocast=setup.autocast)
            start = features(train_loader), features(test_loader)
        resumed_at = trainer.resume()
        if resumed_at:
            say(f"resuming from step {resumed_at:,} of {trainer.num_steps:,}")
        times["data"] = time.monotonic()

        # Train.
        loggers, every = config.run.loggers, trainer.log_every
        log = MetricsLog(folder.path, resume_step=resumed_at, log_every=every, loggers=loggers, config=config.to_dict())
        opened.enter_context(log)
        trainer.fit(log)
        # The probe belongs to the last weights, not to the best.
        online = trainer.probe.classifier if trainer.probe and not trainer.best_weights else None
        trainer.release_memory()
        times["training"] = time.monotonic()
        if not distributed.is_main():
            return {}

        # Measure.
        save_encoder(folder.encoder_file, method.encoder, setup.spec)
        found = Evaluation(scores=[], retrieval=[], features_MD=torch.empty(0))
        if test_loader is not None:
            extra = {"classifier": method.classifier, "online": online, "start": start, "val": val_loader}
            found = _evaluate(setup, method.encoder, train_loader, test_loader, **extra)
        if found.classifier is not None:
            save_classifier(folder.path / CLASSIFIER_FILE, found.classifier)
        log.tell_loggers({f"{score['split']}/{score['name']}": score["top1"] for score in found.scores})
        times["measuring"] = time.monotonic()

        # Report.
        metrics = read_metrics(folder.path)
        rate = trainer.step * trainer.views_per_step / (trainer.seconds or 1.0)
        result = build_result(setup, found, seconds=trainer.seconds, views_per_second=rate)
        last = metrics[-1] if metrics else {}
        others = ("step", "epoch", "lr", "views_per_second")
        result["last_logged"] = {name: last[name] for name in last if name not in others}
        result["curves"] = downsampled(metrics)
        result["warnings"] = learned_nothing(result, metrics)
        if trainer.best["epoch"]:
            result["validation"] = {"top1": 100 * trainer.best["accuracy"], "epoch": trainer.best["epoch"]}
        if write_report is not None and config.run.report:
            with atomic_file(folder.report_file) as part:
                write_report(
                    part,
                    result=result,
                    config=config.to_dict(),
                    metrics=metrics,
                    class_names=setup.dataset.class_names,
                    images=test_set,
                    channels=setup.spec.channels,
                    skipped=setup.dataset.skipped,
                    features_MD=found.features_MD,
                    predicted_M=found.classifier.predict(found.features_MD) if found.classifier else None,
                    predicted_by=found.classifier.measure if found.classifier else "",
                )
            times["report"] = time.monotonic()
        if resumed_at:
            result["resumed_at"] = resumed_at  # where `stages` begin; `seconds` are those of the whole training
        result["stages"] = {stage: round(end - begin, 2) for (_, begin), (stage, end) in pairwise(times.items())}
        folder.write_result(result)
        return result


def check_folder(config: Config, folder: RunFolder, extends: RunFolder | None) -> None:
    """Whether a run with this config may train in the folder, or may train another run further."""
    if extends is None or extends.path.resolve() != folder.path.resolve():
        folder.check(config)
    if extends is None:
        return
    before = extends.config()
    different = set(before.differences(config)) - {*EXTENDABLE}
    if different:
        raise UserError(f"a run continues with its own {', '.join(sorted(different))}; change only optim.epochs")
    if config.optim.epochs < before.optim.epochs:
        raise UserError(f"{extends.path} has {before.optim.epochs} epochs; set optim.epochs to the new total")
    if not (extends.path / CHECKPOINT).exists():
        raise UserError(f"{extends.path} has no {CHECKPOINT} to continue from; train it first")


def build_result(
    setup: Setup, found: Evaluation, *, seconds: float = 0.0, views_per_second: float = 0.0
) -> dict[str, Any]:
    """The content of result.json. `linear_top1` is the paper's probe if it was run, else the fast one."""
    config = setup.config
    encoder = setup.spec.encoder if config.model.weights else config.model.encoder  # weights bring their own
    result: dict[str, Any] = {"method": config.method.name, "data": config.data.name, "encoder": encoder}
    for column in (LINEAR, KNN, CLASSIFIER):
        if judged := judged_by({"measures": found.scores}, column):
            score = next(score for score in found.scores if score["name"] == judged["name"])
            for key in ("top1", "top5", MAP, "protocol"):
                if key in score:
                    result[f"{column}_{key}"] = score[key]
    if setup.dataset.skipped:
        result["skipped"] = len(setup.dataset.skipped)
    return result | {
        "split": config.eval.split,
        "epochs": config.optim.epochs,
        "seed": config.run.seed,
        "seconds": round(seconds, 2),
        "views_per_second": round(views_per_second, 1),
        "measures": found.scores,
        "retrieval": found.retrieval,
        "command": "contune " + shlex.join(sys.argv[1:]),
        "config": config.to_dict(),
        "hardware": hardware_name(setup.device),
        "versions": versions(),
        "git_revision": git_revision(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def learned_nothing(result: Mapping[str, Any], metrics: Sequence[Mapping[str, float]]) -> list[str]:
    """A warning if the trained encoder is no better than the untrained one, or if the loss stayed where it began."""
    advice = "Try another optim.lr, more optim.epochs, a milder augment.policy, or model.weights to start from."
    texts = []
    for column in (LINEAR, KNN):
        after, before = judged_by(result, column), judged_by(result, column, prefix=START)
        if after and before and after["top1"] <= before["top1"] and after["top1"] < 100:
            name = MEASURES[after["name"]].title.lower()
            texts.append(f"{name} {before['top1']:.1f} % before, {after['top1']:.1f} % now")
    if len(texts) == 2:
        return [f"The encoder learned nothing: {'; '.join(texts)}. {advice}"]
    losses = [line["loss"] for line in metrics if "loss" in line]
    is_softmax = issubclass(find_method(result["method"]), SoftmaxMethod)
    if is_softmax and len(losses) > 1 and losses[-1] > STUCK * losses[0]:
        return [f"The loss stayed at {losses[-1]:.2f}, near that of random embeddings. {advice}"]
    return []


def describe(setup: Setup, method: Method, engine: str) -> str:
    """Two lines on what is about to happen."""
    config, dataset, spec, test = setup.config, setup.dataset, setup.spec, setup.eval_set()
    classes = plural(setup.num_classes, "class", "es") if setup.num_classes else "no labels"
    if dataset.unseen is not None:
        classes += f"; {plural(len(dataset.unseen), 'image')} of other classes for retrieval"
    if dataset.skipped:
        classes += f"; {plural(len(dataset.skipped), 'broken image')} left out ({SKIPPED_FILE})"
    source = config.model.weights or config.model.encoder
    weights = "random weights" if setup.weights is None else f"weights of {source}"
    parameters = sum(p.numel() for p in method.encoder.parameters()) / 1e6
    batch, views = config.optim.batch_images, config.augment.views
    held_out = f", {len(dataset.val):,} validation" if dataset.val is not None and config.eval.split == "test" else ""
    return (
        f"{dataset.name}: {len(dataset.train):,} training{held_out} and "
        f"{plural(0 if test is None else len(test), f'{config.eval.split} image')} "
        f"of {spec.image_size}×{spec.image_size}×{spec.channels}, {classes}\n"
        f"{config.method.name} with {spec.encoder} ({parameters:.1f} M parameters, {weights}), "
        f"{plural(config.optim.epochs, 'epoch')} of {plural(batch, 'image')} × {plural(views, 'view')} = "
        f"{plural(batch * views, 'embedding')} a batch, on {hardware_name(setup.device)}, {engine}"
    )


def evaluate_run(folder: str | Path | RunFolder, overrides: str | Sequence[str] = ()) -> dict[str, Any]:
    """Evaluate a finished run's encoder again; `overrides` may name other data or other protocols."""
    folder = RunFolder(folder)
    config = folder.config().override(overrides)
    different = set(folder.config().differences(config))
    look = {"data.image_size", "data.channels", "data.resize", "data.range"}
    for key in sorted(different):
        if key.startswith(("model.", "method.", "optim.")) or key in look:
            raise UserError(f"{key} is fixed once the encoder is trained; override only data, eval, augment and run")
        if key.endswith(("_fraction", "unseen_classes")) and not {"data.name", "data.path"} & different:
            raise UserError(f"another {key} would evaluate on training images; leave it as it was")
    encoder = load_encoder(folder.path)
    setup = open_setup(config, encoder.spec)
    dataset = setup.dataset
    if "data.label_column" in different and config.eval.split in dataset.held_out and "data.path" not in different:
        raise UserError("another data.label_column would evaluate on training images; leave it as it was")
    if dataset.skipped:
        say(f"{plural(len(dataset.skipped), 'broken image')} left out, such as {dataset.skipped[0].name!r}")
    test_set = setup.eval_set()
    if test_set is None:
        raise UserError(f"{dataset.name} has no test split to evaluate on; name other images with data.path")
    encoder.to(setup.device)
    train_loader = setup.loader(dataset.train, "train images")
    evaluation = _evaluate(setup, encoder.backbone, train_loader, setup.loader(test_set, "test images"))
    classifier_file = folder.path / CLASSIFIER_FILE
    if evaluation.classifier and not classifier_file.exists():  # for `contune predict`
        save_classifier(classifier_file, evaluation.classifier)
        say(f"classifier {classifier_file}, of {dataset.name}")
    return build_result(setup, evaluation)


def _evaluate(setup: Setup, encoder: nn.Module, train: Loader, test: Loader, **extra: Any) -> Evaluation:
    config, unseen = setup.config, setup.dataset.unseen
    if unseen is not None and config.eval.split == "test":  # otherwise choices would be made on these images
        extra["unseen"] = setup.loader(unseen, "unseen images")
    return evaluate(
        encoder,
        train,
        test,
        spec=setup.spec,
        class_names=setup.dataset.class_names,
        settings=config.eval,
        augmenter=setup.augmenter([config.augment.policy if config.eval.linear in ("paper", "authors") else "none"]),
        policy=config.augment.policy,
        seed=config.run.seed,
        autocast=setup.autocast,
        capture=CapturedStep if can_capture(setup.device) else None,
        own=setup.own.encoder,
        **extra,
    )
