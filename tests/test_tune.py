"""`contune tune`: its three strategies on a made-up objective, and one real search."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import log10
from pathlib import Path
from typing import Any

import pytest
from command_line import contune, read_json
from pictures import write_flat, write_picture

from contune import tune
from contune.errors import UserError
from contune.recipes import find_recipe
from contune.run import RunFolder
from contune.training.many import Job
from contune.tune import (
    AUTO,
    AUTO_VALUES,
    OWN,
    PAPER,
    SEARCHED,
    SUPCON,
    SUPCON_VALUES,
    Ranges,
    Runner,
    Trial,
    Values,
    best,
)


def peak_at_800(values: Values) -> float:
    """Highest near k1 = 800, k2 = 1.4."""
    if isinstance(values.k1, str) or isinstance(values.k2, str):
        return 80.0
    return 95 - 10 * abs(log10(max(values.k1, 1)) - log10(800)) - 4 * abs(values.k2 - 1.4)


@dataclass(frozen=True, kw_only=True)
class MadeUpRunner(Runner):
    """Trains nothing: accuracies come from a function of k1 and k2."""

    accuracy: Callable[[Values], float] = peak_at_800
    batches: list[list[Values]] = field(default_factory=list)
    stop_after: int | None = None
    """Batches after which Ctrl-C comes, in the middle of the next."""

    def run(self, batch: Iterable[Values]) -> None:
        if self.stop_after is not None and len(self.batches) == self.stop_after:
            raise KeyboardInterrupt
        self.batches.append(list(dict.fromkeys(batch)))
        for v in batch:
            top1 = self.accuracy(v)
            self.trials[v] = Trial(values=v, why=self.why(v), linear_top1=top1, knn_top1=top1 - 5, num_images=180)


def made_up(folder: Path, kind: type[Runner] = MadeUpRunner, **changes: Any) -> Any:
    config = tune.short_config(find_recipe("digits")(), 10)
    known = {OWN: changes.pop("own", Values(500, 1)), AUTO: AUTO_VALUES, PAPER: changes.pop("paper", Values(5000, 1))}
    options: dict[str, Any] = {"parallel": 2, "known": {**known, SUPCON: SUPCON_VALUES}, **changes}
    return kind(config=config, folder=folder, **options)


def find(runner: Runner, num_trials: int = 8, *, seed: int = 0, ranges: Ranges = SEARCHED) -> list[Trial]:
    tune.search(runner, ranges, num_trials, seed)
    return list(runner.trials.values())


# Values and trials


def test_the_simplest_within_noise_wins_and_supcon_never_does() -> None:
    level = [
        Trial(values=values, linear_top1=99.0, knn_top1=98.0)
        for values in (Values(74.3, 2.35), Values(40.9, 2.5), Values(500, 1), Values(40.9, 1.2))
    ]
    assert [t.values for t in sorted(level, key=tune.simplicity)] == [
        Values(40.9, 1.2),
        Values(40.9, 2.5),
        Values(74.3, 2.35),
        Values(500, 1),
    ]
    supcon = Trial(values=SUPCON_VALUES, linear_top1=99.9, why=SUPCON)
    failed = Trial(values=Values(7, 1), error="no room")
    assert best([*level, supcon, failed]) is level[3]
    with pytest.raises(UserError, match="failed"):
        best([failed])
    own = Trial(values=SUPCON_VALUES, linear_top1=99.9, why=f"{OWN} and {SUPCON}")
    assert best([*level, own]) is own, "the recipe itself has k1 = 0"
    # At 90 % of 900 images the standard error is 1 point.
    top = Trial(values=Values(30, 1), linear_top1=90.0, num_images=900)
    auto = Trial(values=AUTO_VALUES, linear_top1=89.1, why=AUTO, num_images=900)
    assert best([top, auto]) is auto
    assert best([top, Trial(values=AUTO_VALUES, linear_top1=88.9, why=AUTO, num_images=900)]) is top


@pytest.mark.parametrize(("epochs", "short"), [(20, 10), (100, 20), (1000, 200), (5, 5)])
def test_a_short_run_is_the_recipe_on_a_validation_split(epochs: int, short: int) -> None:
    whole = find_recipe("cifar100-byol")()
    whole.optim.epochs = epochs
    config = tune.short_config(whole)
    assert (config.eval.split, config.data.val_fraction, config.optim.epochs) == ("val", 0.2, short)
    assert config.optim.warmup_epochs / short == pytest.approx(whole.optim.warmup_epochs / whole.optim.epochs, abs=1e-3)


def test_a_failed_run_is_a_trial_unless_nothing_ever_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_many(jobs: Sequence[Job], parallel: int) -> list[dict[str, Any]]:
        assert len({job.folder for job in jobs}) == len(jobs)
        return [{"error": f"no room for {job.folder.name}"} for job in jobs]

    monkeypatch.setattr(tune, "run_many", run_many)
    runner = made_up(tmp_path, Runner)
    with pytest.raises(UserError, match="no room for k1-7-k2-1"):
        runner.run([Values(7, 1)])
    runner.trials[SUPCON_VALUES] = Trial(values=SUPCON_VALUES, linear_top1=90.0)
    runner.run([Values(7, 1), Values(7, 1)])
    assert [trial.error for trial in runner.trials.values()] == ["", "no room for k1-7-k2-1"]


# --how search


def test_a_repeated_search_asks_for_the_same_values(tmp_path: Path) -> None:
    """So an interrupted one resumes: the runner reuses finished runs."""
    with pytest.raises(KeyboardInterrupt):
        find(stopped := made_up(tmp_path, stop_after=2))
    whole = made_up(tmp_path)
    trials = find(whole)
    assert stopped.batches == whole.batches[:2]
    assert find(made_up(tmp_path)) == trials
    assert find(made_up(tmp_path), seed=1)[2:] != trials[2:]


def test_ranges_and_time_are_kept(tmp_path: Path) -> None:
    trials = find(made_up(tmp_path / "a", own=Values(0, 1)), ranges={"k1": (10.0, 100.0), "k2": (1.5, 2.0)})
    assert trials[0].values == Values(0, 1), "the recipe's own values are tried wherever they are"
    for trial in trials[3:]:
        assert 10 <= float(trial.values.k1) <= 100
        assert 1.5 <= float(trial.values.k2) <= 2
    assert len(find(made_up(tmp_path / "b", until=0.0))) == 2, "those that start at once"


# --how paper


@pytest.mark.parametrize(
    ("accuracy", "later", "choice"),
    [
        # 4000 and 5000 are enough where they beat SupCon;
        (lambda v: {0: 80, 4000: 90, 5000: 91}.get(v.k1, 85) - abs(v.k2 - 1), [[1.2], [1.1]], Values(5000, 1)),
        # otherwise 2000, 6000 and 8000 too;
        (lambda v: {0: 95, 2000: 94}.get(v.k1, 90) - abs(v.k2 - 1), [[1, 1, 1], [1.2], [1.1]], Values(2000, 1)),
        # k2 rises while it helps, then in smaller steps;
        (lambda v: 90 - 10 * abs(v.k2 - 1.5) + (v.k1 == 4000), [[1.2], [1.4], [1.6], [1.5], [1.6]], Values(4000, 1.5)),
        # and from a k1 of the paper also where the recipe's own does better.
        (lambda v: {500: 99, 0: 80, 4000: 90}.get(v.k1, 85) - abs(v.k2 - 1), [[1.2], [1.1]], Values(500, 1)),
    ],
)
def test_the_papers_procedure(
    accuracy: Callable[[Values], float], later: list[list[float]], choice: Values, tmp_path: Path
) -> None:
    runner = made_up(tmp_path, accuracy=lambda values: 50.0 if values.r else accuracy(values))
    tune.paper_procedure(runner, supervised=True)
    found = max((t for t in runner.trials.values() if t.values.k1), key=tune.rank)
    assert runner.batches[0] == [SUPCON_VALUES, Values(4000, 1), Values(5000, 1), Values(500, 1), AUTO_VALUES]
    assert [[values.k2 for values in batch] for batch in runner.batches[1:]] == later
    assert found.values == choice


def test_without_labels_k1_is_1_and_without_time_nothing_follows(tmp_path: Path) -> None:
    runner = made_up(tmp_path, own=Values(1, 1.5), paper=tune.PAPER_DEFAULTS[False])
    tune.paper_procedure(runner, supervised=False)
    assert {values.k1 for batch in runner.batches for values in batch} == {0.0, 1.0, "auto"}
    hurried = made_up(tmp_path, until=0.0)
    tune.paper_procedure(hurried, supervised=True)
    assert len(hurried.batches) == 1


def test_the_test_images_are_never_opened(tmp_path: Path) -> None:
    """They are no images at all, which a run that evaluates on them does not survive."""
    for split, kind, number in product(("train", "test"), ("a", "b"), range(12)):
        path = tmp_path / "photos" / split / kind / f"{number}.png"
        write_picture(path, seed=number, size=16)
        if split == "test":
            path.write_bytes(b"no picture")
    small = [f"data.path={tmp_path / 'photos'}", "model.encoder=resnet-mini", "optim.batch_images=8"]
    images = find_recipe("images")().override([*small, "data.image_size=16", "optim.epochs=1"])
    result = tune.short_run(tune.short_config(images, 1), RunFolder(tmp_path / "run"))
    assert result["measures"][0]["split"] == "val"
    with pytest.raises(UserError):
        tune.short_run(images, RunFolder(tmp_path / "on test"))


# The command


@pytest.mark.slow
def test_a_real_search_resumes_and_is_never_written_over(tmp_path: Path) -> None:
    """End to end: the recipe's own values, automatic ones and the paper's."""
    folder = tmp_path / "tuned"
    words = ("tune", "digits-tcl", "optim.batch_images=128", "--epochs", "1", "--parallel", "2", "--out", folder)
    done = contune(*words, "--trials", "3")
    assert done.code == 0, done.err
    found = read_json(folder / "tune.json")
    accuracies = {(trial["k1"], trial["k2"]): trial["linear_top1"] for trial in found["trials"]}
    assert {(500.0, 1.0), ("auto", "auto"), (5000.0, 1.0)} == accuracies.keys()
    assert found["linear_top1"] == accuracies[found["k1"], found["k2"]] > max(accuracies.values()) - 5
    assert (found["split"], found["num_images"]) == ("val", 180)
    assert found["command"] in done.out
    config = find_recipe("digits-tcl")().override(found["command"].split()[3:])
    settings: Any = config.method.settings
    assert (config.optim.batch_images, settings.k1, settings.k2) == (128, found["k1"], found["k2"])
    before = {path: path.stat().st_mtime_ns for path in folder.glob("trials/*/result.json")}
    again = contune(*words, "--trials", "3")
    assert again.out.splitlines()[-6:] == done.out.splitlines()[-6:]
    assert {path: path.stat().st_mtime_ns for path in folder.glob("trials/*/result.json")} == before
    for other, word in (
        (("optim.lr=0.3",), "optim.lr"),
        (("--epochs", "2"), "optim.epochs"),
    ):
        refused = contune(*words, *other)
        assert refused.code == 2
        assert word in refused.err
    assert read_json(folder / "tune.json") == found


@pytest.mark.parametrize(
    ("words", "word"),
    [
        (["digits-supcon"], "method.name=tcl"),
        (["digits", "--how", "serch"], "search"),
        (["digits", "--how", "paper", "--trials", "5"], "--trials"),
        (["digits", "--how", "paper", "--k2", "1,2"], "--k2"),
        (["digits", "--k1", "500"], "range"),
        (["digits", "--k1", "5,1"], "range"),
        (["digits", "--r", "1"], "range"),
        (["digits", "--r", "0.1,1", "--k1", "1,5"], "--k1"),
        (["digits", "data.val_fraction=0.05"], "validation images"),
        (["digits", "optim.epochs=0"], "--epochs"),
        (["digits", "--out", "notes.txt"], "is a file"),
        (["digits", "--out", "notes.txt/tune"], "Not a directory"),
        (["images-ssl", "data.path=photos", "--how", "paper"], "labels"),
    ],
)
def test_bad_input(words: list[str], word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("not a folder")
    write_flat(tmp_path / "photos", 8)
    done = contune("tune", *words)
    assert done.code == 2
    assert word in done.err
    assert done.err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "photos"]
