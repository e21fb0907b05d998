"""`contune report`: pages made again, or of several runs together, from what their folders hold."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from contune.analysis.measured import Measured
from contune.analysis.page import is_page
from contune.console import progress
from contune.data.broken import Broken
from contune.errors import UserError
from contune.eval.features import extract_features
from contune.files import check_like, whole_file, write_whole
from contune.models import load_encoder
from contune.models.saved import Classifier, load_classifier
from contune.run import RunFolder
from contune.train.log import read_metrics
from contune.train.setup import open_setup


def write_pages(folders: Sequence[RunFolder], out: Path | None) -> Path:
    """One finished run: its report.html again; several, or one that has not ended: a comparison. Where it is."""
    several = list({run.path.resolve(): run for folder in folders for run in folder.runs()}.values())
    for run in several:
        run.config()  # says so where it is no run
    if len(several) > 1:
        path = out or Path("comparison.html")
        check_like(path, partial(is_page, kind="comparison"))
        return _compare(several, path)
    (run,) = several
    path = out or run.report_file
    if path.resolve() != run.report_file.resolve():
        _check_not_of_another(path)
        check_like(path, partial(is_page, kind="report"))
    return _compare(several, path) if run.result() is None else _rewrite(run, path)


def _check_not_of_another(path: Path) -> None:
    folder = RunFolder(path.parent)
    if path.name == folder.report_file.name and folder.config_file.exists():
        raise UserError(f"{path} is the place of another run's report; give another file with --out")


def _rewrite(folder: RunFolder, path: Path) -> Path:
    from contune.analysis.report import write_report  # matplotlib and t-SNE are slow to import

    result = folder.result()
    assert result is not None
    measured, skipped = _measure(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as part:
        write_report(
            part,
            result=result,
            config=folder.config().to_dict(),
            metrics=read_metrics(folder.path),
            class_names=() if measured is None else measured.class_names,
            images=None if measured is None else measured.images,
            channels=1 if measured is None else measured.channels,
            skipped=skipped,
            features_MD=None if measured is None else measured.features,
            predicted_M=None if measured is None else measured.predicted,
            predicted_by="" if measured is None else measured.predicted_by,
        )
    return path


def _compare(folders: Sequence[RunFolder], path: Path) -> Path:
    from contune.analysis.comparison.page import comparison_page, mapped_runs
    from contune.analysis.comparison.runs import Run

    runs = {
        Run(str(folder.path), folder.config().to_dict(), folder.result(), read_metrics(folder.path)): folder
        for folder in folders
    }
    maps: dict[str, Measured | str] = {}
    wanted = mapped_runs(list(runs))
    with progress("maps", len(wanted), unit="runs") as advance:
        for number, run in enumerate(wanted):
            maps[run.name] = _mapped(runs[run])
            advance(number + 1, "")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, comparison_page(list(runs), maps))
    return path


def _mapped(folder: RunFolder) -> Measured | str:
    try:
        measured, _ = _measure(folder)
    except UserError as error:
        return f"No map: {error}"
    return measured or "No map: its data has no split that was measured."


def _measure(folder: RunFolder) -> tuple[Measured | None, Sequence[Broken]]:
    """The features of the measured split by the encoder of a run, and what its own classifier makes of them."""
    config = folder.config()
    encoder = load_encoder(folder.path)
    setup = open_setup(config, encoder.spec)
    images = setup.eval_set()
    if images is None:
        return None, setup.dataset.skipped
    loader = setup.loader(images, "images")
    with progress("features", len(loader), unit="images") as advance:
        backbone = encoder.to(setup.device).backbone
        features_MD = extract_features(backbone, loader, setup.spec, autocast=setup.autocast, advance=advance).cpu()
    classifier = _classifier(folder.path)
    measured = Measured(
        images=images,
        channels=setup.spec.channels,
        class_names=setup.dataset.class_names,
        features=features_MD,
        predicted=None if classifier is None else classifier.predict(features_MD),
        predicted_by="" if classifier is None else classifier.measure,
    )
    return measured, setup.dataset.skipped


def _classifier(folder: Path) -> Classifier | None:
    try:
        return load_classifier(folder)
    except UserError:  # measured without a linear probe, or without labels
        return None
