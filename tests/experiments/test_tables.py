"""Tables from made-up results, with differences computed by hand."""

import pytest
from made_up import made_up_outcome, made_up_result
from scipy.stats import ttest_ind, ttest_rel  # type: ignore[import-untyped]  # without stubs

from contune.experiments import Outcome, find_experiment
from contune.experiments.plan import PAPER, Experiment
from contune.experiments.tables import Table, make_table
from contune.report.statistics import Spread

ROWS = {row.title: row for row in find_experiment("table1").rows}
GRID = Experiment(title="A title", summary="", rows=(), layout="grid")
ENTROPY, SUPCON, TCL = (ROWS[f"{method}, CIFAR-10"] for method in ("Cross-entropy", "SupCon", "TCL"))


def texts(table: Table) -> list[list[str]]:
    return [[cell.strip("*") for cell in row] for row in table.rows]


def grid(*outcomes: Outcome) -> Table:
    return make_table(GRID, outcomes)


def test_methods_by_data_sets_with_the_papers_numbers() -> None:
    other = [ROWS["SupCon, CIFAR-100"], ROWS["TCL, CIFAR-100"]]
    table = grid(
        made_up_outcome(ENTROPY, 94.0),
        made_up_outcome(SUPCON, 95.0),
        made_up_outcome(TCL, 97.0),
        made_up_outcome(other[0], 71.0),
        made_up_outcome(other[1], 70.5),
    )
    assert table.columns == [
        "data",
        "Cross-entropy, classifier, top-1 %",
        "SupCon, fast probe, top-1 %",
        "TCL, fast probe, top-1 %",
        "TCL − SupCon, points",
        f"{PAPER}, top-1 %",
    ]
    assert texts(table) == [
        ["CIFAR-10", "94.00", "95.00", "97.00", "–", "96.3 / 96.4"],
        ["CIFAR-100", "–", "71.00", "70.50", "–", "79.1 / 79.8"],
    ]
    assert [cell for row in table.rows for cell in row if "**" in cell] == ["**97.00**", "**71.00**"]


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


def test_a_long_tail_shows_the_accuracy_of_rare_classes() -> None:
    experiment = find_experiment("long-tail-digits")
    outcomes = [made_up_outcome(row, 80.0, 82.0) for row in experiment.rows]
    assert "few %" not in make_table(experiment, outcomes).columns
    for number, result in enumerate(result for each in outcomes for result in each.results):
        result["measures"][0] |= {"imbalance": 20.0, "balanced": 80.0, "medium": 90.0, "few": 60.0 + number}
    table = make_table(experiment, outcomes)
    assert [*table.columns][2:] == ["medium %", "few %", "seeds"]
    assert [row[3] for row in table.rows[:2]] == ["60.5", "62.5"]
    assert {len(row) for row in table.rows} == {len(table.columns)}


def test_photos_are_compared_by_probe_neighbors_and_retrieval() -> None:
    experiment = find_experiment("photos")
    outcomes = [made_up_outcome(row, 60.0, 61.0, 62.0) for row in experiment.rows if "SupCon" not in row.method]
    for number, each in enumerate(outcomes):
        for result in each.results:
            result["measures"][0]["name"] = "linear-fast"
            result["retrieval"] = [{"name": "seen", "values": {"recall@1": 50.0 + number}, "protocol": "nearest"}]
    table = make_table(experiment, outcomes)
    assert [*table.columns][1:4] == ["fast probe, top-1 %", "kNN, top-1 %", "Recall@1, %"]
    assert " ".join(row[3].strip("*")[:5] for row in table.rows) == "50.00 51.00 52.00 53.00 +1.00 +2.00 +1.00"
    assert not any("Untrained encoder −" in row[0] for row in table.rows)


def test_many_seeds_have_scipys_paired_interval_for_every_two() -> None:
    experiment = find_experiment("ci")
    values = {
        "Cross-entropy": [70.0, 71.0, 69.5, 70.2],
        "SupCon": [74.5, 75.5, 74.7, 74.2],
        "TCL": [75.1, 75.9, 75.6, 74.9],
    }
    outcomes = [
        Outcome(row, tuple(made_up_result(row, seed, linear=x, knn=x - 1) for seed, x in enumerate(values[row.method])))
        for row in experiment.rows
    ]
    table = make_table(experiment, outcomes)
    assert [*table.columns][1:4] == [f"{name}, top-1 %" for name in ("classifier or fast probe", "fast probe", "kNN")]
    cells = {row[0]: row[1:] for row in texts(table)}
    assert cells["TCL (fast probe)"] == ["75.38 ± 0.73", "75.38 ± 0.73", "74.38 ± 0.73", "4"]
    for upper, lower in (("SupCon", "Cross-entropy"), ("TCL", "Cross-entropy"), ("TCL", "SupCon")):
        low, high = ttest_rel(values[upper], values[lower]).confidence_interval(0.95)
        row = cells[f"{upper} − {lower}"]
        assert row[0] == f"{(low + high) / 2:+.2f} ± {(high - low) / 2:.2f}"
        assert row[3] == "4"
    alike = make_table(experiment, outcomes[1:])
    assert [*alike.columns][1:3] == ["fast probe, top-1 %", "kNN, top-1 %"], "both have the same protocol"
