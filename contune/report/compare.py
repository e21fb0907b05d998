"""`contune report`: the report of one run again, or several runs compared on one page."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, combinations, product
from pathlib import Path
from typing import Any

from contune.config import Config
from contune.console import plural, progress, say
from contune.errors import UserError
from contune.eval.measures import KNN, LINEAR, MAP, MEASURES, TOP1, judged_by
from contune.eval.probes import extract_features
from contune.files import atomic_file, check_like, write_atomic
from contune.models import load_encoder
from contune.models.saved import load_classifier
from contune.report import plots
from contune.report.page import GENERATOR, data_title, duration, render, write_report
from contune.report.statistics import FEW, Spread
from contune.report.style import PAGE_COLORS, PALETTE, MethodStyle, run_style
from contune.run import RunFolder
from contune.settings import as_text
from contune.training.log import INCOMPLETE, read_metrics
from contune.training.setup import open_setup

NOT_IN_TITLES = ("run.seed", "method.name", "data.path", "data.name")
HELD_EQUAL = ("model.", "optim.epochs", "optim.batch_images", "augment.views", "data.")
"""Settings that a fair comparison of methods holds equal. Each method may have its own of the others."""
MOST_NAMED, MOST_ROWS = 5, 30
"""Settings in a title, and rows in the table of differences."""
DASHES = ((), (5, 2), (1.5, 1.5), (6, 2, 1.5, 2))


@dataclass(frozen=True, eq=False)
class ComparedRun:
    """What a run folder holds."""

    name: str
    """The path as the person gave it."""
    config: Config
    result: dict[str, Any] | None
    """None until the run has finished."""
    metrics: list[dict[str, float]]

    @property
    def method(self) -> MethodStyle:
        return run_style(self.config.to_dict()["method"])

    @property
    def data(self) -> str:
        """What tells the data from other data: its name, or the path of one's own images."""
        data = self.config.data
        return str(data.path) if data.name == "images" else data.name

    def score(self, column: str) -> dict[str, Any] | None:
        """The measure that a column shows of this run; None if it was not measured."""
        return judged_by(self.result or {"measures": ()}, column)


@dataclass(frozen=True, eq=False)
class Group:
    """Runs with the same settings, one per seed."""

    title: str
    runs: list[ComparedRun]

    def accuracy(self, column: str) -> Spread | None:
        """Over seeds; None if no run was measured."""
        scores = [score["top1"] for run in self.runs if (score := run.score(column)) is not None]
        return Spread.of(scores) if scores else None

    def difference(self, other: "Group", column: str) -> Spread | None:
        """Over the seeds that both have and that were measured alike; None if there are none.

        A method that trains a classifier is judged by it, and may be compared with the probe of one that does not.
        """
        differences = []
        for one, two in product(self.runs, other.runs):
            a, b = one.score(column), two.score(column)
            if a is None or b is None or one.config.run.seed != two.config.run.seed:
                continue
            same_images = (one.data, a["split"], a.get("num_images")) == (two.data, b["split"], b.get("num_images"))
            if same_images and (a["protocol"] == b["protocol"] or "classifier" in (a["name"], b["name"])):
                differences.append(a["top1"] - b["top1"])
        return Spread.of(differences) if differences else None


def grouped(runs: Sequence[ComparedRun]) -> list[Group]:
    """Runs that differ only in the seed are one group, the finished ones first. A repeat does not count."""
    groups: dict[str, dict[int, ComparedRun]] = {}
    for run in sorted(runs, key=lambda run: run.result is None):
        groups.setdefault(run.config.fingerprint("run.seed"), {}).setdefault(run.config.run.seed, run)
    members = [[by_seed[seed] for seed in sorted(by_seed)] for by_seed in groups.values()]
    return list(map(Group, titles([each[0] for each in members]), members))


def titles(runs: Sequence[ComparedRun]) -> list[str]:
    """The method, the data if there are several, and the settings that tell a run from those it is compared with."""
    several = len({run.data for run in runs}) > 1
    starts = [f"{run.method.title} on {data_title(run.data)}" if several else run.method.title for run in runs]
    named = [[start] for start in starts]
    for key, values in different_settings(runs).items():
        among = [run.data for run in runs] if key.startswith(HELD_EQUAL) else starts
        if key not in NOT_IN_TITLES and len(set(zip(among, values, strict=True))) > len(set(among)):
            for row, value in zip(named, values, strict=True):
                row += [f"{key.removesuffix('.name').rpartition('.')[2]} {value}"] if value else []
    found = [", ".join(row[: MOST_NAMED + 1]) for row in named]
    return [f"{name} ({run.name})" if found.count(name) > 1 else name for name, run in zip(found, runs, strict=True)]


def different_settings(runs: Sequence[ComparedRun]) -> dict[str, list[str]]:
    """Settings in which runs differ with the value of each run, the method's first; empty if a run has no such one."""
    settings = [run.config.flat(machine=False) for run in runs]
    keys = sorted(dict.fromkeys(chain.from_iterable(settings)), key=lambda key: not key.startswith("method."))
    values = {key: [as_text(each[key]) if key in each else "" for each in settings] for key in keys}
    return {key: found for key, found in values.items() if len(set(found)) > 1}


def columns_of(groups: Sequence[Group]) -> dict[str, str]:
    """The columns of the table with their measures; the verdict is by the first that settings share."""
    columns = {}
    for column in (TOP1, LINEAR, KNN):
        scores = [score for group in groups for run in group.runs if (score := run.score(column)) is not None]
        names = [MEASURES[score["name"]].short_title + " (mAP)" * (MAP in score) for score in scores]
        columns[column] = " or ".join(dict.fromkeys(names))
    return {column: title for column, title in columns.items() if title and (column != TOP1 or "classifier" in title)}


def verdict(groups: Sequence[Group]) -> str:
    """One sentence on the best two settings that were measured alike."""
    for column, title in columns_of(groups).items():
        ranked = sorted(groups, key=lambda group: -(group.accuracy(column) or Spread(-1.0)).mean)
        for best, other in combinations(ranked, 2):
            if (found := best.difference(other, column)) is None:
                continue
            a, b = (best.title, other.title) if found.mean >= 0 else (other.title, best.title)
            b += f" (the best two of {len(groups)} settings)" if len(groups) > 2 else ""
            points, interval = found._replace(mean=abs(found.mean)), "" if found.shown is None else "95 % interval, "
            size = f"{points} points ({interval}{plural(found.num, 'seed')})"
            by = f"By {'' if column == KNN else 'the '}{title}"
            if found.shown is None:
                return f"{by}, {a} is above {b} by {size}. That may be chance: train at least {FEW} seeds."
            if points.mean <= found.shown:
                return f"{by}, {a} and {b} cannot be separated: they differ by {size}."
            return f"{by}, {a} beats {b} by {size}."
    if len(groups) == 1:
        if groups[0].runs[0].result is None:
            return "This run has not finished."
        what = "All runs have the same settings" if len(groups[0].runs) > 1 else "There is only one run"
        return f"{what}, so there is nothing to compare."
    return "These runs cannot be compared: no two settings share a finished seed that was measured alike."


def accuracy_rows(groups: Sequence[Group]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The heads and rows of the table of accuracies, as plain text."""
    columns, rows = columns_of(groups), []
    for group in groups:
        seconds = [run.result["seconds"] for run in group.runs if run.result is not None]
        seeds = ", ".join(str(run.config.run.seed) for run in group.runs)
        took = duration(sum(seconds) / len(seconds)) if seconds else "–"
        rows.append((group.title, *(str(group.accuracy(column) or "–") for column in columns), seeds, took))
    return ("Runs", *(f"{title}, %" for title in columns.values()), "Seeds", "Training"), rows


def comparison_page(groups: Sequence[Group]) -> str:
    """The whole page."""
    runs, columns = [run for group in groups for run in group.runs], columns_of(groups)
    methods = ", ".join(dict.fromkeys(run.method.title for run in runs))
    data = ", ".join(dict.fromkeys(data_title(run.data) for run in runs))
    heads, rows = accuracy_rows(groups)
    protocols = dict.fromkeys(
        f"{MEASURES[score['name']].title}, {score['split']}, {run.data}: {score['protocol']}"
        for group, column in product(groups, columns)
        for run in group.runs
        if (score := run.score(column)) is not None
    )
    differences = [
        (one.title, other.title, columns[column], found)
        for (one, other), column in product(combinations(groups, 2), columns)
        if (found := one.difference(other, column)) is not None
    ]
    # A line per run: each method in its color, or each row in one of its own if rows share a method.
    by_method = len({group.runs[0].method[1:] for group in groups}) == len(groups)
    palette, logged, keys = [MethodStyle("", color, "o") for color in PALETTE], [], []
    for place, group in enumerate(groups):
        style = group.runs[0].method if by_method else palette[place % len(palette)]
        dash = DASHES[(place + place // len(palette)) % len(DASHES)]
        logged += [(run.metrics, style, dash) for run in group.runs]
        keys.append((group.title, PAGE_COLORS.get(style.color, style.color), dash))
    settings = different_settings([group.runs[0] for group in groups])
    settings.pop("run.seed", None)
    return render(
        "comparison.html",
        "comparison" if len(runs) > 1 else "report",  # an unfinished run's page takes its report's place
        f"{methods} on {data}",
        groups=groups,
        methods=methods,
        data=data,
        verdict=verdict(groups),
        columns=columns,
        heads=heads,
        rows=rows,
        protocols=protocols,
        differences=differences,
        most_rows=MOST_ROWS,
        figures=plots.curves(logged),
        keys=keys,
        settings=settings,
    )


def write_pages(folders: Sequence[RunFolder], out: Path | None) -> tuple[Path, list[Group]]:
    """Write the report of one finished run again, or else the comparison of all runs, whose groups are returned."""
    folders = list({os.path.realpath(run.path): run for folder in folders for run in folder.runs()}.values())
    runs = [ComparedRun(str(each.path), each.config(), each.result(), read_metrics(each.path)) for each in folders]
    for run in runs:
        if run.result and (run.metrics[-1]["epoch"] if run.metrics else 0) < run.config.optim.epochs - 0.01:
            say(INCOMPLETE.format(f"{run.name}/metrics.jsonl"))
    path = out or (folders[0].report_file if len(runs) == 1 else Path("comparison.html"))
    check_like(path, GENERATOR.format(kind="comparison" if len(runs) > 1 else "report"))
    if len(runs) > 1 or runs[0].result is None:
        groups = grouped(runs)
        write_atomic(path, comparison_page(groups))
        return path, groups
    # The evaluated split through the run's encoder and classifier.
    encoder = load_encoder(folders[0].path)
    setup = open_setup(runs[0].config, encoder.spec)
    images, features_MD, classifier = setup.eval_set(), None, None
    if images is not None:
        loader, backbone = setup.loader(images, "images"), encoder.to(setup.device).backbone
        with progress("features", len(loader), unit="image") as advance:
            features_MD = extract_features(backbone, loader, setup.spec, autocast=setup.autocast, advance=advance).cpu()
        with suppress(UserError):  # evaluated without a linear probe, or without labels
            classifier = load_classifier(folders[0].path)
    with atomic_file(path) as part:
        write_report(
            part,
            result=runs[0].result,
            config=runs[0].config.to_dict(),
            metrics=runs[0].metrics,
            class_names=setup.dataset.class_names,
            images=images,
            channels=setup.spec.channels,
            features_MD=features_MD,
            predicted_M=None if classifier is None or features_MD is None else classifier.predict(features_MD),
            predicted_by="" if classifier is None else classifier.measure,
            skipped=setup.dataset.skipped,
        )
    return path, []
