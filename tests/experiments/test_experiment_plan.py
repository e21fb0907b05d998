"""Which runs an experiment is made of, and where they go."""

from pathlib import Path

import pytest

from contune.errors import UserError
from contune.experiments import EXPERIMENTS, find_experiment
from contune.experiments.plan import Row, check_overrides, folder_name, jobs
from contune.recipes import summary

TCL = Row(title="TCL", recipe="digits", overrides=("optim.lr=0.3",), name="tuned")
CE = Row(title="cross-entropy", recipe="digits-ce")


def test_a_run_for_each_row_and_seed() -> None:
    found = jobs([TCL, CE], ["optim.epochs=3"], [0, 4], Path("out"))
    assert [str(job.folder) for job in found] == [
        "out/tuned-seed0", "out/digits-ce-seed0", "out/tuned-seed4", "out/digits-ce-seed4",
    ]  # fmt: skip
    assert [job.config.run.seed for job in found] == [0, 0, 4, 4]
    assert {job.config.optim.epochs for job in found} == {3}
    assert [job.config.optim.lr for job in found[:2]] == [0.3, 0.1]
    assert found[2].title == "TCL, seed 4"


def test_a_rows_own_settings_stand_above_those_of_all() -> None:
    assert TCL.config(["optim.lr=0.7"], seed=0).optim.lr == 0.3
    assert CE.config(["optim.lr=0.7"], seed=0).optim.lr == 0.7


def test_what_only_goes_well_with_a_row_gives_way_to_a_persons_settings() -> None:
    few = "TCL, a fifth of them"
    for given, epochs in (((), 40), (("optim.epochs=1",), 1), (("optim.lr=0.3",), 40)):
        experiment = find_experiment("table1-digits").changed(given)
        row = next(row for row in experiment.rows if row.title == few)
        assert row.config(experiment.overrides, 0).optim.epochs == epochs


def test_rows_that_keep_their_own_are_named() -> None:
    changed = find_experiment("ssl-digits").changed(["optim.epochs=1"])
    assert "(Random encoder has its own optim.epochs, Raw pixels has its own optim.epochs)" in changed.notes[-1]


@pytest.mark.parametrize("key", ["method.k1=7", "optim.batch_images=8", "optim.lr=0.1"])
def test_what_an_experiment_varies_cannot_be_given(key: str) -> None:
    with pytest.raises(UserError, match=rf"^{key.partition('=')[0]} is what the runs of this experiment differ in"):
        find_experiment("fig-batch").changed([key])


def test_what_others_report_is_for_the_settings_as_they_were() -> None:
    paper = find_experiment("table1").changed(["data.path=here"])
    assert all(row.beside for row in paper.rows)
    assert paper.notes == ()
    changed = find_experiment("table1").changed(["model.encoder=resnet18"])
    assert not any(row.beside for row in changed.rows)
    assert changed.notes[-1] == "The paper's numbers are for other settings, and left out."
    longer = find_experiment("ssl-cifar100").changed(["optim.epochs=1000"])
    assert longer.rows[0].beside == find_experiment("ssl-cifar100").rows[0].beside, "they say which epochs they had"


def test_rows_of_one_name_share_their_runs() -> None:
    twin = Row(title="twin", recipe="digits", overrides=("optim.lr=0.3",), name="tuned")
    assert [job.title for job in jobs([TCL, twin], [], [0], Path("out"))] == ["TCL, seed 0"]


def test_what_does_not_fit_every_row_is_refused() -> None:
    with pytest.raises(UserError, match=r"^cross-entropy, a run of this experiment: unknown setting 'method\.k1'"):
        check_overrides([TCL, CE], ["method.k1=3"])
    with pytest.raises(UserError, match=r"^unknown setting 'optim\.epoch'"):
        check_overrides([TCL, CE], ["optim.epoch=3"])
    with pytest.raises(UserError, match=r"run\.seed would be the same for all runs; say --seeds 3"):
        check_overrides([TCL], ["run.seed=3"])


def test_other_settings_have_a_folder_of_their_own() -> None:
    assert folder_name("ssl-digits", []) == "ssl-digits"
    assert folder_name("ssl-digits", ["data.path=elsewhere", "run.device=cpu"]) == "ssl-digits"
    longer = folder_name("ssl-digits", ["optim.epochs=9", "run.device=cpu"])
    assert longer.startswith("ssl-digits-")
    assert longer == folder_name("ssl-digits", ["optim.epochs=9"])
    assert longer != folder_name("ssl-digits", ["optim.epochs=8"])


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_is_whole(name: str) -> None:
    experiment = find_experiment(name)
    assert experiment.title
    assert summary(EXPERIMENTS[name]).endswith(".")
    found = jobs(experiment.rows, experiment.overrides, [0, 1], Path("out"))
    assert len({job.folder for job in found}) == len(found)
    titles = [row.title for row in experiment.rows]
    assert len(set(titles)) == len(titles)
    for row in experiment.rows:
        twins = [other for other in experiment.rows if other.folder(0) == row.folder(0)]
        assert len({(other.recipe, other.overrides) for other in twins}) == 1, "they share runs"


def test_all_methods_without_labels_are_compared_with_an_untrained_encoder() -> None:
    digits, cifar100 = find_experiment("ssl-digits"), find_experiment("ssl-cifar100")
    methods = [row.title for row in cifar100.rows if not row.is_baseline]
    assert len(methods) == 12
    assert methods == [row.title for row in digits.rows if not row.is_baseline]
    assert [row.title for row in digits.rows if row.is_baseline] == ["Random encoder", "Raw pixels"]
    assert {row.config(cifar100.overrides, 0).optim.epochs for row in cifar100.rows} == {0, 100}
    tcl = next(row for row in cifar100.rows if row.title.startswith("TCL"))
    byol = next(row for row in cifar100.rows if row.title == "BYOL")
    assert tcl.beside == {"paper, 1000 epochs": 66.7}
    assert byol.beside == {"paper, 1000 epochs": 70.2, "solo-learn, 1000 epochs": 70.46}


def test_an_unknown_experiment_names_the_nearest() -> None:
    with pytest.raises(UserError, match="unknown experiment 'ssl-cifar'; did you mean ssl-cifar10"):
        find_experiment("ssl-cifar")
