"""`contune report`: the report of one run again, or several runs compared on one page."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import Any

from contune.config import MACHINE_SETTINGS, Config
from contune.console import plural, progress
from contune.errors import UserError
from contune.eval.measures import KNN, LINEAR, MEASURES, TOP1, judged_by
from contune.eval.probes import extract_features
from contune.files import atomic_file, check_like, make_parent, write_atomic
from contune.models import load_encoder
from contune.models.saved import load_classifier
from contune.report import page as html
from contune.report import plots
from contune.report.page import escape, missing, section, table
from contune.report.statistics import Spread, paired
from contune.report.style import PAGE_COLORS, PALETTE, MethodStyle, method_style
from contune.run import RunFolder
from contune.settings import as_text
from contune.training.log import read_metrics
from contune.training.setup import open_setup

COLUMNS = {TOP1: "Classifier or probe", LINEAR: "Linear probe", KNN: MEASURES["knn"].title}
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
    def seed(self) -> int:
        return self.config.run.seed

    @property
    def method(self) -> MethodStyle:
        return method_style(self.config.method.name)

    @property
    def data(self) -> str:
        """What tells the data from other data: its name, or the path of one's own images."""
        data = self.config.data
        return str(data.path) if data.name == "images" else data.name

    def score(self, column: str) -> dict[str, Any] | None:
        """The measure that a column shows of this run; None if it was not measured."""
        return None if self.result is None else judged_by(self.result, column)

    def state(self) -> str:
        """How far it is; empty for a finished run."""
        done = self.metrics[-1]["epoch"] if self.metrics else 0.0
        return "" if self.result else f", not finished: {done:.1f} of {self.config.optim.epochs} epochs"


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
        pairs = []
        for one, two in product(self.runs, other.runs):
            a, b = one.score(column), two.score(column)
            if a is None or b is None or one.seed != two.seed:
                continue
            same_images = (one.data, a["split"]) == (two.data, b["split"])
            if same_images and (a["protocol"] == b["protocol"] or "classifier" in (a["name"], b["name"])):
                pairs.append((a["top1"], b["top1"]))
        return paired(*zip(*pairs, strict=True)) if pairs else None


def grouped(runs: Sequence[ComparedRun]) -> list[Group]:
    """Runs that differ only in the seed are one group, in the order of their first run. A repeat does not count."""
    groups: dict[str, dict[int, ComparedRun]] = {}
    for run in runs:
        by_seed = groups.setdefault(run.config.fingerprint("run.seed"), {})
        if run.seed not in by_seed or by_seed[run.seed].result is None:
            by_seed[run.seed] = run
    members = [[by_seed[seed] for seed in sorted(by_seed)] for by_seed in groups.values()]
    return list(map(Group, titles([each[0] for each in members]), members))


def titles(runs: Sequence[ComparedRun]) -> list[str]:
    """The method, the data if there are several, and the settings that tell a run from those it is compared with."""
    several = len({run.data for run in runs}) > 1
    starts = [f"{run.method.title} on {html.data_title(run.data)}" if several else run.method.title for run in runs]
    named: list[list[str]] = [[] for _ in runs]
    for key, values in different_settings(runs).items():
        among = [run.data for run in runs] if key.startswith(HELD_EQUAL) else starts
        if key not in NOT_IN_TITLES and len(set(zip(among, values, strict=True))) > len(set(among)):
            for row, value in zip(named, values, strict=True):
                row += [f"{key.removesuffix('.name').rpartition('.')[2]} {value}"] if value else []
    found = [", ".join([start, *row[:MOST_NAMED]]) for start, row in zip(starts, named, strict=True)]
    return [f"{name} ({run.name})" if found.count(name) > 1 else name for name, run in zip(found, runs, strict=True)]


def different_settings(runs: Sequence[ComparedRun]) -> dict[str, list[str]]:
    """Settings in which runs differ with the value of each run, the method's first; empty if a run has no such one."""
    settings = [run.config.flat() for run in runs]
    keys = dict.fromkeys(key for each in settings for key in each if key not in MACHINE_SETTINGS)
    values = {
        key: [as_text(each[key]) if key in each else "" for each in settings]
        for key in sorted(keys, key=lambda key: not key.startswith("method."))
    }
    return {key: found for key, found in values.items() if len(set(found)) > 1}


def columns_of(groups: Sequence[Group]) -> list[str]:
    """The columns of the table; the verdict is by the first that settings share."""
    names = {score["name"] for group in groups for run in group.runs if (score := run.score(TOP1)) is not None}
    return [column for column in COLUMNS if column != TOP1 or "classifier" in names]


def verdict(groups: Sequence[Group]) -> str:
    """One sentence on the best two settings that were measured alike, or on the only one."""
    for column in columns_of(groups):
        by = f"By the {COLUMNS[column][0].lower()}{COLUMNS[column][1:]}"
        if len(groups) == 1 and (spread := groups[0].accuracy(column)) is not None:
            return f"{by}, {groups[0].title} gets {spread} % right ({plural(len(groups[0].runs), 'seed')})."
        ranked = sorted(groups, key=lambda group: -(group.accuracy(column) or Spread(-1.0)).mean)
        for best, other in combinations(ranked, 2):
            if (found := best.difference(other, column)) is None:
                continue
            a, b = (best.title, other.title) if found.mean >= 0 else (other.title, best.title)
            b += f" (the best two of {len(groups)} settings)" if len(groups) > 2 else ""
            points, interval = found._replace(mean=abs(found.mean)), "" if found.shown is None else "95 % interval, "
            size = f"{points} points ({interval}{plural(found.num, 'seed')})"
            if found.shown is None or points.mean <= found.shown:
                return f"{by}, {a} and {b} cannot be separated: they differ by {size}."
            return f"{by}, {a} beats {b} by {size}."
    if len(groups) == 1:
        return "No accuracy was measured yet."
    return "These runs cannot be compared: no two settings share a finished seed that was measured alike."


def accuracy_rows(groups: Sequence[Group]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The heads and rows of the table of accuracies, as plain text."""
    columns, rows = columns_of(groups), []
    for group in groups:
        seconds = [run.result["seconds"] for run in group.runs if run.result is not None]
        rows.append((
            group.title,
            *(str(group.accuracy(column) or "–") for column in columns),
            ", ".join(str(run.seed) for run in group.runs),
            html.duration(sum(seconds) / len(seconds)) if seconds else "–",
        ))  # fmt: skip
    return ("Runs", *(f"{COLUMNS[column]}, %" for column in columns), "Seeds", "Training"), rows


def comparison_page(groups: Sequence[Group]) -> str:
    """The whole page, from the run folders alone: neither data nor encoders are needed."""
    runs = [run for group in groups for run in group.runs]
    methods = ", ".join(dict.fromkeys(run.method.title for run in runs))
    data = ", ".join(dict.fromkeys(html.data_title(run.data) for run in runs))
    num_unfinished = sum(run.result is None for run in runs)
    facts = [plural(len(runs), "run"), plural(len(groups), "setting")]
    facts += [f"{num_unfinished} not finished"] if num_unfinished else []
    answer = f'<p class="verdict">{escape(verdict(groups))}</p>'
    parts = [
        html.header("comparison", f"{escape(methods)} <span>on</span> {escape(data)}", facts, answer),
        _accuracies(groups),
        *([_differences(groups)] if len(groups) > 1 else []),
        _curves(groups),
    ]
    rows = [
        (f"<code>{escape(key)}</code>", *(escape(value) or html.NOTHING for value in values))
        for key, values in different_settings([group.runs[0] for group in groups]).items()
        if key != "run.seed"
    ]
    shown = table("comparison settings", ("Setting", *(escape(group.title) for group in groups)), rows)
    shown = f'<div class="scroll">{shown}</div>' if rows else missing("Only the seeds differ.")
    parts.append(section("settings", "Settings that differ", "", shown))
    kind = "comparison" if len(runs) > 1 else "report"  # an unfinished run's page takes its report's place
    return html.page(kind, f"{methods} on {data} · contune", "\n".join(parts))


def _accuracies(groups: Sequence[Group]) -> str:
    (heads, plain), columns, protocols = accuracy_rows(groups), columns_of(groups), dict[str, None]()
    rows = []
    for group, (title, *cells) in zip(groups, plain, strict=True):
        names = "".join(f"<small>{escape(run.name + run.state())}</small>" for run in group.runs)
        rows.append((escape(title) + names, *cells))
        for run, score in ((run, run.score(column)) for column in columns for run in group.runs):
            if score is not None:
                title = f"{MEASURES[score['name']].title}, {score['split']}, {run.data}"
                protocols[f"<li>{escape(title)}: {escape(score['protocol'])}</li>"] = None
    lead = "Top-1: mean over seeds ± 95\u202f% confidence interval (Student’s t), from three seeds on."
    if TOP1 in columns:
        lead += f" “{COLUMNS[TOP1]}”: the classifier of a method that trains one, else the linear probe."
    shown = table("comparison runs", heads, rows, numbers=range(1, len(heads)))
    shown = f'<div style="--measures: {len(columns)}">{shown}</div><ul class="notes">{"".join(protocols)}</ul>'
    return section("accuracy", "Accuracy", lead, shown)


def _differences(groups: Sequence[Group]) -> str:
    """Paired tests of every two rows over the seeds that both have."""
    rows = []
    for one, other in combinations(groups, 2):
        title = f'{escape(one.title)} <span class="none">minus</span> {escape(other.title)}'
        for column in columns_of(groups):
            if (found := one.difference(other, column)) is not None:
                p = 1.0 if found.shown is None or found.p is None else found.p
                points = f"<b>{found.signed}</b>" if p < 0.05 else found.signed
                shown = "–" if found.shown is None else "&lt; 0.001" if p < 0.001 else f"{p:.3f}"
                rows.append((title, COLUMNS[column], points, shown, str(found.num)))
                title = ""
    lead = (
        "Rows that were measured alike are compared in pairs of runs of one seed. p: two-sided paired t-test, not "
        "corrected for the number of rows."
    )
    lead += f" The first {MOST_ROWS} of {len(rows)} rows are shown." if len(rows) > MOST_ROWS else ""
    heads = ("Difference", "Measure", "points, 95\u202f% interval", "p", "shared seeds")
    shown = table("comparison differences", heads, rows[:MOST_ROWS], numbers=(2, 3, 4))
    shown = f'<div class="scroll">{shown}</div>' if rows else missing("No two rows share a seed and a protocol.")
    return section("differences", "Differences", lead, shown)


def _curves(groups: Sequence[Group]) -> str:
    """A line per run: each method in its color, or each row in one of its own if rows share a method."""
    by_method = len({group.runs[0].method for group in groups}) == len(groups)
    palette, logged, keys = [MethodStyle("", color, "o") for color in PALETTE], [], []
    for place, group in enumerate(groups):
        style = group.runs[0].method if by_method else palette[place % len(palette)]
        dash = DASHES[(place + place // len(palette)) % len(DASHES)]
        logged += [(run.metrics, style, dash) for run in group.runs]
        color, gaps = PAGE_COLORS.get(style.color, style.color), " ".join(map(str, dash)) or "none"
        line = f'<line x1="1" y1="6" x2="33" y2="6" stroke="{color}" stroke-width="2.6" stroke-dasharray="{gaps}" />'
        svg = f'<svg viewBox="0 0 34 12" width="34" height="12" aria-hidden="true">{line}</svg>'
        keys.append(f"<li>{svg}{escape(group.title)}</li>")
    return plots.curves(logged, legend=f'<ul class="legend keys">\n{chr(10).join(keys)}\n</ul>')


def write_pages(folders: Sequence[RunFolder], out: Path | None) -> tuple[Path, list[Group]]:
    """Write the report of one finished run again, or else the comparison of all runs, whose groups are returned."""
    folders = list({os.path.realpath(run.path): run for folder in folders for run in folder.runs()}.values())
    runs = [ComparedRun(str(each.path), each.config(), each.result(), read_metrics(each.path)) for each in folders]
    own = folders[0].report_file
    path = out or (own if len(runs) == 1 else Path("comparison.html"))
    if len(runs) > 1 or os.path.realpath(path) != os.path.realpath(own):
        if path.name == own.name and RunFolder(path.parent).config_file.exists():
            raise UserError(f"{path} is the report of another run; choose another file with --out")
        check_like(path, html.GENERATOR.format(kind="comparison" if len(runs) > 1 else "report"))
    make_parent(path)
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
        html.write_report(
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
