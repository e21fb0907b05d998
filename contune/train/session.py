"""A whole run, from config to report: what `contune train` and `contune eval` do."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from contune import distributed
from contune.analysis.ahead import MapAhead
from contune.config import Config
from contune.console import plural, say
from contune.data.loader import Loader
from contune.device import choose_device, hardware_name
from contune.errors import UserError
from contune.eval.evaluate import Evaluation, evaluate
from contune.files import whole_file
from contune.methods import Method
from contune.models import load_encoder, save_encoder
from contune.models.classifier import CLASSIFIER_FILE
from contune.run import RunFolder, as_run_folder
from contune.settings import split_assignments
from contune.train import trained_on
from contune.train.engine import Engine
from contune.train.log import read_metrics
from contune.train.result import build_result
from contune.train.setup import Setup, build_method, open_setup
from contune.train.signals import stoppable
from contune.train.skipped import broken_words, skipped_words, way_around, write_skipped
from contune.train.stopwatch import Stopwatch
from contune.train.take_home import keep_classifier, keep_missing
from contune.train.thinned import thinned
from contune.train.trainer import Trainer

MakeTrainer = Callable[[Setup, Method, Loader, RunFolder], Trainer]


def train(config: Config, folder: str | Path | RunFolder, make_trainer: MakeTrainer = Trainer) -> dict[str, Any]:
    """Trains, measures and reports into `folder`; goes on where an earlier call was stopped."""
    config, folder = Config.from_dict(config.to_dict()), as_run_folder(folder)  # attributes may be set to anything
    with stoppable(), distributed.process_group(choose_device(config.run.device)), way_around():
        folder.check(config)
        finished = folder.result()
        return finished if finished is not None else _train(config, folder, make_trainer)


def _train(config: Config, folder: RunFolder, make_trainer: MakeTrainer) -> dict[str, Any]:
    stopwatch = Stopwatch()
    setup = open_setup(config)
    trained_on.check_same(folder.path, setup)
    method = build_method(setup)
    loader = setup.loader(setup.dataset.train, "train images")
    test_set = setup.eval_set()
    # Opened before training, so that a damaged test image is found now and not after a night.
    test = setup.loader(test_set, "test images") if test_set is not None and distributed.is_main() else None
    trainer = make_trainer(setup, method, loader, folder)
    setup.augmenter([config.augment.policy])  # the probe will want it at the end; a misspelt one is found now
    with _opened(folder, config):
        if distributed.is_main():
            write_skipped(folder.path, setup.dataset.skipped)
            trained_on.write(folder.path, setup)
        say(describe(setup, method, trainer.engine))
        resumed_at = trainer.resume()
        if resumed_at:
            say(f"goes on from step {resumed_at:,} of {trainer.num_steps:,}")
        stopwatch.lap("data")
        trainer.fit()
        stopwatch.lap("training")
        return _finish(trainer, loader, test, stopwatch, resumed_at) if distributed.is_main() else {}


def _finish(
    trainer: Trainer, train: Loader, test: Loader | None, stopwatch: Stopwatch, resumed_at: int
) -> dict[str, Any]:
    """After training, what a run leaves in its folder: encoder, classifier, report, and last the result."""
    setup, method, folder = trainer.setup, trainer.method, trainer.folder
    save_encoder(folder.encoder_file, method.encoder, setup.spec)
    evaluation, measures, ahead = None, [], None
    if test is not None:
        evaluation, ahead = _evaluate(setup, method, train, test)
        measures = evaluation.measures
        keep_classifier(folder.path, evaluation)
    stopwatch.lap("measuring")
    result = build_result(setup, measures, seconds=trainer.seconds, views_per_second=trainer.views_per_second)
    if setup.dataset.skipped:
        result["skipped"] = len(setup.dataset.skipped)
    result["last_logged"] = _last_logged(folder)
    result["curves"] = thinned(read_metrics(folder.path))
    if setup.config.run.report:
        _report(folder, setup, result, evaluation, ahead)
        stopwatch.lap("report")
    if resumed_at:
        result["resumed_at"] = resumed_at  # what `stages` begin with; `seconds` are of the whole training
    result["stages"] = {stage: round(seconds, 2) for stage, seconds in stopwatch.seconds.items()}
    folder.write_result(result)
    return result


def _evaluate(setup: Setup, method: Method, train: Loader, test: Loader) -> tuple[Evaluation, MapAhead | None]:
    """Where a GPU measures, the report's map is begun meanwhile."""
    if not setup.config.run.report or setup.device.type != "cuda":
        return evaluate(setup, method.encoder, train, test, classifier=method.classifier), None
    begun: list[MapAhead] = []
    evaluation = evaluate(
        setup,
        method.encoder,
        train,
        test,
        classifier=method.classifier,
        on_features=lambda features_MD: begun.append(MapAhead(features_MD)),
    )
    return evaluation, begun[0]


@contextmanager
def _opened(folder: RunFolder, config: Config) -> Iterator[None]:
    """Only now, when all that a person can get wrong was checked, is anything written."""
    distributed.barrier()
    with folder.opened(config) if distributed.is_main() else nullcontext():
        distributed.barrier()
        yield


def describe(setup: Setup, method: Method, engine: Engine) -> str:
    """Two lines on what is about to happen."""
    config, dataset, spec = setup.config, setup.dataset, setup.spec
    test = setup.eval_set()
    num_test = 0 if test is None else len(test)
    parameters = sum(p.numel() for p in method.encoder.parameters()) / 1e6
    batch, views = config.optim.batch_images, config.augment.views
    return (
        f"{dataset.name}: {len(dataset.train):,} training and {plural(num_test, f'{config.eval.split} image')} "
        f"of {spec.image_size}×{spec.image_size}×{spec.channels}, {_classes(setup)}"
        f"{skipped_words(dataset.skipped)}{f'; {setup.where_labels_may_be()}' if dataset.maybe_labels else ''}\n"
        f"{config.method.name} with {spec.encoder} ({parameters:.1f} M parameters), "
        f"{plural(config.optim.epochs, 'epoch')} of {plural(batch, 'image')} × {plural(views, 'view')} = "
        f"{plural(batch * views, 'embedding')} a batch, "
        f"on {hardware_name(setup.device)}, {engine}"
    )


def _classes(setup: Setup) -> str:
    return plural(setup.num_classes, "class", "es") if setup.num_classes else "no labels"


@way_around()
def evaluate_run(folder: str | Path | RunFolder, overrides: str | Sequence[str] = ()) -> dict[str, Any]:
    """Measures a finished run's encoder again, on other data or under other protocols if `overrides` say so."""
    folder = as_run_folder(folder)
    _check_settled(overrides)
    config = folder.config().override(overrides)
    encoder = load_encoder(folder.path)
    setup = open_setup(config, encoder.spec)
    if setup.dataset.skipped:
        say(f"{broken_words(setup.dataset.skipped)} left out, such as {setup.dataset.skipped[0].name!r}")
    test_set = setup.eval_set()
    if test_set is None:
        raise UserError(
            f"{setup.dataset.name} has no {config.eval.split} split to measure on; {setup.way_to_measure()}"
        )
    trained_on.check_unseen(folder, setup)
    if setup.dataset.maybe_labels:
        is_drawn = config.eval.split in setup.dataset.held_out
        again = " and train again, as labels decide what is held out" if is_drawn else ""
        say(f"{setup.dataset.name} has no label column of a usual name; {setup.where_labels_may_be()}{again}")
    encoder.to(setup.device)
    train, test = (
        setup.loader(images, title)
        for images, title in ((setup.dataset.train, "train images"), (test_set, "test images"))
    )
    evaluation = evaluate(setup, encoder.backbone, train, test)
    if keep_missing(folder, evaluation, config):
        say(f"classifier {folder.path / CLASSIFIER_FILE}, of {setup.dataset.name}")
    return build_result(setup, evaluation.measures, seconds=0.0, views_per_second=0.0)


def _check_settled(overrides: str | Sequence[str]) -> None:
    """That nothing is asked for which only training could have done."""
    for key, _ in split_assignments(overrides):
        if key.partition(".")[0] in ("model", "method", "optim") or key in ("data.image_size", "data.channels"):
            raise UserError(
                f"{key} was settled when the encoder was trained; an evaluation takes other data.*, eval.*, augment.* "
                "and run.*"
            )


def _last_logged(folder: RunFolder) -> dict[str, float]:
    """The loss and what a method, the online probe and the watch for a collapse said at the end; nothing untrained."""
    lines = read_metrics(folder.path)
    circumstances = ("step", "epoch", "lr", "views_per_second")
    return {name: value for name, value in lines[-1].items() if name not in circumstances} if lines else {}


def _report(
    folder: RunFolder,
    setup: Setup,
    result: dict[str, Any],
    evaluation: Evaluation | None,
    ahead: MapAhead | None,
) -> None:
    from contune.analysis.report import write_report  # matplotlib and t-SNE are slow to import

    with whole_file(folder.report_file) as part:
        write_report(
            part,
            result=result,
            config=setup.config.to_dict(),
            metrics=read_metrics(folder.path),
            class_names=setup.dataset.class_names,
            images=setup.eval_set(),
            channels=setup.spec.channels,
            skipped=setup.dataset.skipped,
            features_MD=None if evaluation is None else evaluation.features_MD,
            predicted_M=None if evaluation is None else evaluation.predicted_M,
            predicted_by="" if evaluation is None else evaluation.predicted_by,
            points_N2=None if ahead is None else ahead.points(),
        )
