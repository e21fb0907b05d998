"""Tables from made-up results, with differences computed by hand."""

import pytest
from made_up import made_up_outcome, made_up_result
from scipy.stats import ttest_ind  # type: ignore[import-untyped]  # without stubs

from contune.experiments import Outcome, find_experiment
from contune.experiments.plan import Experiment
from contune.experiments.tables import Table, make_table
from contune.report.statistics import Spread

ROWS = {row.title: row for row in find_experiment("table1").rows}
GRID = Experiment(title="A title", summary="", rows=(), layout="grid")
ENTROPY, SUPCON, TCL = (ROWS[f"{method}, CIFAR-10"] for method in ("Cross-entropy", "SupCon", "TCL"))


def texts(table: Table) -> list[list[str]]:
    return [[cell.strip("*") for cell in row] for row in table.rows]


def grid(*outcomes: Outcome) -> Table:
    return make_table(GRID, outcomes)


def test_differences_are_paired_if_the_seeds_are_the_same() -> None:
    first, second = made_up_outcome(SUPCON, 90.0, 80.0, 70.0), made_up_outcome(TCL, 91.0, 81.5, 72.0)
    # +1, +1.5 and +2: mean 1.5, standard deviation 0.5; Student's t of two degrees is 4.303; 4.303 · 0.5 / √3 = 1.24.
    assert texts(grid(first, second))[0][3] == "+1.50 ± 1.24"
    fewer = Outcome(TCL, second.results[:2])
    assert texts(grid(first, fewer))[0][3] == "–"
    found = fewer.difference(first)
    assert found is not None
    assert found.mean == pytest.approx((91.0 + 81.5) / 2 - 80.0)
    assert Outcome(TCL, ()).difference(first) is None


def test_a_seed_that_ran_more_often_counts_once() -> None:
    first, second = made_up_outcome(SUPCON, 77.6, 77.7, 77.3), made_up_outcome(TCL, 77.9, 78.1, 77.8, 78.0)
    again = Outcome(TCL, (*second.results, made_up_result(TCL, 0, linear=76.9)))
    test = ttest_ind([77.4, 78.1, 77.8, 78.0], [77.6, 77.7, 77.3], equal_var=False)
    found, (low, high) = again.difference(first), test.confidence_interval(0.95)
    assert found == pytest.approx(((low + high) / 2, (high - low) / 2, 3))
    same_seeds = Outcome(SUPCON, (*first.results, made_up_result(SUPCON, 3, linear=78.0)))
    assert again.difference(same_seeds) == Spread.of([77.4 - 77.6, 78.1 - 77.7, 77.8 - 77.3, 0.0])
    assert again.num_seeds == 4


def test_gradients_are_means_over_training_beside_supcons() -> None:
    experiment = find_experiment("fig-k2-digits")
    curves = {"epoch": [1, 2], "positive_gradient": [0.2, 0.4], "supcon_positive_gradient": [0.1, None]}
    own = {"epoch": [1, 2], "positive_gradient": [0.5, 0.7], "theorem1_share": [0.5, 1.0]}
    outcomes = [
        made_up_outcome(experiment.rows[0], 90.0, curves=own),
        made_up_outcome(experiment.rows[1], 91.0, curves=curves),
        Outcome(experiment.rows[2], num_missing=1),
    ]
    table = make_table(experiment, outcomes)
    assert [row[3:] for row in texts(table)] == [["–", "–", "75"], ["300.0", "–", "–"], ["–", "–", "–"]]
    assert texts(table)[2][1] == "not run yet"


def test_missing_and_failed_runs_are_in_the_table() -> None:
    some = Outcome(TCL, made_up_outcome(TCL, 95.0).results, num_missing=1)
    failed = Outcome(SUPCON, failures=("seed 0: no room.",))
    table = grid(failed, some)
    assert texts(table) == [["CIFAR-10", "failed", "95.00 (1 of 2 not run yet)", "–", "96.3 / 96.4"]]
    assert "SupCon, CIFAR-10, seed 0: no room." in table.notes


def test_a_row_per_method_with_baselines_last() -> None:
    experiment = find_experiment("ssl-cifar100")
    rows = {row.title: row for row in experiment.rows}
    outcomes = [made_up_outcome(rows[title], top1) for title, top1 in (("Untrained encoder", 95.0), ("SimCLR", 90.0))]
    (result,) = outcomes[1].results
    result["last_logged"]["online_top1"] = 0.7  # on training views
    assert "online probe, top-1 %" not in make_table(experiment, outcomes).columns
    result["measures"].append(result["measures"][0] | {"name": "online", "top1": 60.0})
    table = make_table(experiment, outcomes)
    assert table.columns[3] == "online probe, top-1 %"
    assert [" ".join(row[1:4]) for row in texts(table)] == ["90.00 80.00 60.00", "95.00 80.00 –"]
