"""`contune tune`: its three strategies on a made-up objective, advice on known embeddings, and one real search."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import log10
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from command_line import contune, read_json
from pictures import write_flat, write_picture
from PIL import Image

from contune import tune
from contune.config import Config
from contune.errors import UserError
from contune.losses.responses import responses
from contune.recipes import find_recipe
from contune.run import RunFolder
from contune.train.many import Job
from contune.tune import OWN, SUPCON, SUPCON_VALUES, Ranges, Runner, Snapshot, Trial, Values, advise, best


def peak_at_800(values: Values) -> float:
    """Highest near k1 = 800, k2 = 1.4."""
    return 95 - 10 * abs(log10(max(values.k1, 1)) - log10(800)) - 4 * abs(values.k2 - 1.4)


@dataclass(frozen=True, kw_only=True)
class MadeUpRunner(Runner):
    """Trains nothing: accuracies come from a function of k1 and k2."""

    accuracy: Callable[[Values], float] = peak_at_800
    batches: list[list[Values]] = field(default_factory=list)
    stop_after: int | None = None
    """Batches after which Ctrl-C comes, in the middle of the next."""

    def run(self, batch: Sequence[Values], work: object = None) -> list[Trial]:
        if self.stop_after is not None and len(self.batches) == self.stop_after:
            raise KeyboardInterrupt
        self.batches.append(list(dict.fromkeys(batch)))
        reached = {values: self.accuracy(values) for values in batch}
        return [
            Trial(values=v, why=self.why(v), linear_top1=reached[v], knn_top1=reached[v] - 5, num_images=180)
            for v in batch
        ]


def made_up(folder: Path, kind: type[Runner] = MadeUpRunner, **changes: Any) -> Any:
    config = tune.short_config(find_recipe("digits")(), 10)
    options: dict[str, Any] = {"parallel": 2, "own": Values(500, 1), "paper": Values(5000, 1)} | changes
    return kind(config=config, folder=folder, **options)


def find(
    runner: Runner, num_trials: int = 8, *, seed: int = 0, ranges: Ranges | None = None, url: str = ""
) -> list[Trial]:
    runner.folder.mkdir(parents=True, exist_ok=True)
    study = tune.open_study(url or f"sqlite:///{runner.folder}/study.db", "study")
    return tune.search(study, runner, ranges or Ranges(), num_trials, seed)


# Values and trials


@pytest.mark.parametrize("values", [Values(500, 1), Values(5000, 1.25), Values(1234567.8, 1.1), Values(0.1 + 0.2, 1)])
def test_the_command_line_reads_back_the_same_numbers(values: Values) -> None:
    settings: Any = Config().override(values.overrides).method.settings
    assert (settings.k1, settings.k2) == values


def test_of_equals_the_smaller_k1_wins_and_supcon_never_does() -> None:
    level = [
        Trial(values=values, linear_top1=99.0, knn_top1=98.0)
        for values in (Values(74.3, 2.35), Values(40.9, 2.5), Values(500, 1), Values(40.9, 1.2))
    ]
    assert [t.values for t in sorted(level, key=tune.rank, reverse=True)] == [
        Values(40.9, 1.2), Values(40.9, 2.5), Values(74.3, 2.35), Values(500, 1),
    ]  # fmt: skip
    nearer = Trial(values=Values(5000, 1), linear_top1=99.0, knn_top1=98.5)
    supcon = Trial(values=SUPCON_VALUES, linear_top1=99.9, why=SUPCON)
    failed = Trial(values=Values(7, 1), error="no room")
    assert best([*level, nearer, supcon, failed]) is nearer, "kNN settles a tie"
    assert best([failed]) is None
    own = Trial(values=SUPCON_VALUES, linear_top1=99.9, why=f"{OWN} and {SUPCON}")
    assert best([*level, own]) is own, "the recipe itself has k1 = 0"


@pytest.mark.parametrize(("epochs", "short"), [(20, 10), (100, 20), (1000, 200), (5, 5)])
def test_a_short_run_is_the_recipe_on_a_validation_split(epochs: int, short: int) -> None:
    assert tune.default_epochs(epochs) == short
    whole = find_recipe("cifar100-byol")()
    config = tune.short_config(whole, short)
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
    (tmp_path / "trials" / "other").mkdir(parents=True)
    (tmp_path / "trials" / "other" / "result.json").write_text("{}")
    assert [trial.error for trial in runner.run([Values(7, 1), Values(7, 1)])] == ["no room for k1-7-k2-1"] * 2
    with pytest.raises(UserError, match="no room"):
        find(runner)  # two batches in a row: it is not the values


# --how search


def test_the_recipes_values_and_the_papers_come_first(tmp_path: Path) -> None:
    trials = find(made_up(tmp_path, accuracy=lambda v: 99.0 if v == Values(500, 1) else 50.0 + v.k2))
    assert [trial.values for trial in trials[:2]] == [Values(500, 1), Values(5000, 1)]
    assert [trial.why for trial in trials[:2]] == [OWN, tune.PAPER]
    assert best(trials) is trials[0]


def test_an_interrupted_search_resumes_as_if_nothing_had_happened(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        find(made_up(tmp_path / "stopped", stop_after=2))
    again = made_up(tmp_path / "stopped")
    whole = find(made_up(tmp_path / "whole"))
    assert find(again) == whole
    assert sum(map(len, again.batches)) == 8 - 2 * 2
    finished = made_up(tmp_path / "whole")
    assert find(finished) == whole
    assert finished.batches == []
    assert find(made_up(tmp_path / "other"), seed=1)[2:] != whole[2:]


def test_two_hosts_share_a_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    with pytest.raises(KeyboardInterrupt):  # this host is in the middle of its second batch when the other comes
        find(made_up(tmp_path / "one", stop_after=1), url=url)
    other = made_up(tmp_path / "other")
    trials = find(other, url=url)
    assert "without 2 running trials of other hosts" in capsys.readouterr().out
    assert Values(500, 1) not in [values for batch in other.batches for values in batch]
    assert len(trials) == 6
    assert len(find(made_up(tmp_path / "one"), url=url)) == 8


def test_ranges_and_time_are_kept(tmp_path: Path) -> None:
    trials = find(made_up(tmp_path / "a", own=Values(0, 1)), ranges=Ranges((10.0, 100.0), (1.5, 2.0)))
    assert trials[0].values == Values(0, 1), "the recipe's own values are tried wherever they are"
    assert all(10 <= trial.values.k1 <= 100 and 1.5 <= trial.values.k2 <= 2 for trial in trials[2:])
    assert find(made_up(tmp_path / "b", until=0.0)) == []


def test_without_optuna_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(UserError, match="pip install"):
        tune.open_study("sqlite:///x.db", "study")


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
    runner = made_up(tmp_path, accuracy=accuracy)
    found = best(tune.paper_procedure(runner, supervised=True))
    assert runner.batches[0] == [Values(500, 1), SUPCON_VALUES, Values(4000, 1), Values(5000, 1)]
    assert [[values.k2 for values in batch] for batch in runner.batches[1:]] == later
    assert found is not None
    assert found.values == choice


def test_without_labels_k1_is_1_and_without_time_nothing_follows(tmp_path: Path) -> None:
    runner = made_up(tmp_path, own=Values(1, 1.5), paper=tune.PAPER_DEFAULTS[False])
    tune.paper_procedure(runner, supervised=False)
    assert {values.k1 for batch in runner.batches for values in batch} == {0.0, 1.0}
    hurried = made_up(tmp_path, until=0.0)
    tune.paper_procedure(hurried, supervised=True)
    assert len(hurried.batches) == 1


# --how advise


def snapshot(step: int, *, similarity: float, apart: float, classes: int = 10, num: int = 120) -> Snapshot:
    """Unit vectors with about this similarity to those of their class, and so much less to others."""
    generator = torch.Generator().manual_seed(step)
    labels_N = torch.arange(num) % classes
    common, own = (similarity - apart) ** 0.5, apart**0.5
    centres_KD = F.normalize(torch.randn(classes, 256, generator=generator), dim=1)
    noise_ND = F.normalize(torch.randn(num, 256, generator=generator), dim=1)
    axis_D = F.normalize(torch.randn(256, generator=generator), dim=0)
    z_ND = common * axis_D + own * centres_KD[labels_N] + (1 - similarity) ** 0.5 * noise_ND
    return step, F.normalize(z_ND, dim=1), labels_N


UNTRAINED, CLOSE = snapshot(1, similarity=0.55, apart=0.02), snapshot(1, similarity=0.97, apart=0.01)
TRAINED = [snapshot(step, similarity=0.92, apart=0.7) for step in (50, 100)]


def push(at: Snapshot, k1: float, k2: float = 1.0) -> float:
    found = responses(at[1], at[2], temperature=0.1, k1=k1, k2=k2, hard=None)
    return float(found["negative_gradient"] / found["supcon_negative_gradient"])


def test_the_advised_k1_leaves_negatives_nine_tenths_of_their_push() -> None:
    advice = advise([UNTRAINED, *TRAINED], 0.1)
    k1 = advice.values.k1
    assert min(push(each, k1) for each in (UNTRAINED, *TRAINED)) == pytest.approx(0.9, abs=0.003)
    assert min(push(each, 2 * k1) for each in (UNTRAINED, *TRAINED)) < 0.85
    assert advice.decisive_step == 1
    assert advise([UNTRAINED, *TRAINED], 0.2).values.k1 < k1 / 3, "a higher temperature allows less"
    far = snapshot(1, similarity=0.999, apart=0.0005)
    assert advise([far] * 3, 0.02).values.k1 == tune.HIGHEST_K1


def test_the_advised_k2_restores_the_push_at_the_end_of_the_run() -> None:
    """As with a ResNet on CIFAR, whose untrained embeddings are close, so that the paper's thousands are harmless."""
    advice = advise([CLOSE, *TRAINED], 0.1)
    assert advice.decisive_step > 1
    assert advice.values.k2 > 1
    assert push(TRAINED[-1], *advice.values) == pytest.approx(1, abs=0.02)
    assert advice.push == pytest.approx(1, abs=0.02)
    assert advice.pull > 1


def test_a_run_of_supcon_keeps_snapshots(tmp_path: Path) -> None:
    config = tune.short_config(find_recipe("digits")().override(["optim.batch_images=128", "eval.knn_k=5"]), 2)
    result = tune.short_run(config, RunFolder(tmp_path), tune.SnapshotTrainer)
    assert {measure["split"] for measure in result["measures"]} == {"val"}
    assert result["measures"][0]["num_images"] == 180  # a fifth of the 898 training images
    assert not list(tmp_path.glob("checkpoint*"))
    (step, z_ND, groups_N), *_, (last, _, _) = tune.read_snapshots(tmp_path)
    assert (step, last) == (1, 10)
    assert z_ND.shape == (256, 128)
    assert len(groups_N.unique()) == 10


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


def test_a_real_search_resumes_and_is_never_written_over(tmp_path: Path) -> None:
    """End to end: the recipe's own values, the paper's, and one that was proposed."""
    folder = tmp_path / "tuned"
    words = ("tune", "digits-tcl", "optim.batch_images=128", "--epochs", "1", "--parallel", "2", "--out", folder)
    done = contune(*words, "--trials", "3")
    assert done.code == 0, done.err
    found = read_json(folder / "tune.json")
    accuracies = {(trial["k1"], trial["k2"]): trial["linear_top1"] for trial in found["trials"]}
    assert len(accuracies) == 3
    assert {(500.0, 1.0), (5000.0, 1.0)} < accuracies.keys()
    assert found["linear_top1"] == accuracies[found["k1"], found["k2"]] == max(accuracies.values())
    assert (found["split"], found["num_images"], found["advice"]) == ("val", 180, None)
    assert found["command"] in done.out
    config = find_recipe("digits-tcl")().override(found["command"].split()[3:])
    settings: Any = config.method.settings
    assert (config.optim.batch_images, settings.k1, settings.k2) == (128, found["k1"], found["k2"])
    with Image.open(folder / "trials.png") as picture:
        assert picture.size[0] > 1000
    before = {path: path.stat().st_mtime_ns for path in folder.glob("trials/*/result.json")}
    again = contune(*words, "--trials", "3")
    assert again.out.splitlines()[-6:] == done.out.splitlines()[-6:]
    assert {path: path.stat().st_mtime_ns for path in folder.glob("trials/*/result.json")} == before
    for other, word in (
        (("--how", "paper"), "--how"),
        (("optim.lr=0.3",), "optim.lr"),
        (("--epochs", "2"), "optim.epochs"),
    ):
        refused = contune(*words, *other)
        assert refused.code == 2
        assert word in refused.err
    assert read_json(folder / "tune.json") == found


@pytest.mark.slow
@pytest.mark.parametrize("how", ["paper", "advise"])
def test_the_other_ways(how: str, tmp_path: Path) -> None:
    done = contune("tune", "digits-tcl", "--how", how, "--epochs", "4", "--out", tmp_path / "tuned")
    assert done.code == 0, done.err
    found = read_json(tmp_path / "tuned" / "tune.json")
    assert found["linear_top1"] == max(t["linear_top1"] for t in found["trials"] if t["k1"] > 0)
    assert (found["advice"] is not None) == (how == "advise")


@pytest.mark.parametrize(
    ("words", "word"),
    [
        (["digits-supcon"], "method.name=tcl"),
        (["digits", "--how", "serch"], "search"),
        (["digits", "--how", "paper", "--trials", "5"], "--trials"),
        (["digits", "--how", "advise", "--k2", "1,2"], "--k2"),
        (["digits", "--trials", "0"], "--trials"),
        (["digits", "--minutes", "-1"], "--minutes"),
        (["digits", "--k1", "500"], "range"),
        (["digits", "--k1", "5,1"], "range"),
        (["digits", "optim.epochs=0"], "--epochs"),
        (["digits", "--storage", "foo://bar"], "study"),
        (["digits", "--out", "notes.txt"], "is a file"),
        (["digits", "--out", "notes.txt/tune"], "cannot write"),
        (["images", "data.path=nowhere"], "nowhere"),
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
