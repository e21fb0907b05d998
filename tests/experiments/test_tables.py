"""Tables from made-up results, with differences computed by hand."""

import pytest
from made_up import made_up_outcome, made_up_result
from scipy.stats import ttest_ind, ttest_rel  # type: ignore[import-untyped]  # without stubs

from contune.experiments import Outcome, find_experiment
from contune.experiments.plan import PAPER, Experiment
from contune.experiments.tables import Table, make_table

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
    assert table.columns == ["data", "Cross-entropy", "SupCon", "TCL", "TCL − SupCon", PAPER]
    assert texts(table) == [
        ["CIFAR-10", "94.00", "95.00", "97.00", "+2.00", "95.0 / 96.3 / 96.4"],
        ["CIFAR-100", "–", "71.00", "70.50", "−0.50", "79.1 / 79.8"],
    ]
    assert [cell for row in table.rows for cell in row if "**" in cell] == ["**97.00**", "**71.00**"]


def test_differences_are_paired_and_empty_for_other_seeds() -> None:
    first, second = made_up_outcome(SUPCON, 90.0, 80.0, 70.0), made_up_outcome(TCL, 91.0, 81.5, 72.0)
    # +1, +1.5 and +2: mean 1.5, standard deviation 0.5; Student's t of two degrees is 4.303; 4.303 · 0.5 / √3 = 1.24.
    assert texts(grid(first, second))[0][3] == "+1.50 ± 1.24"
    fewer = Outcome(TCL, second.results[:2])
    assert texts(grid(first, fewer))[0][3] == "–"
    found = fewer.difference(first)
    assert found is not None
    assert found.num == 2
    assert found.mean == pytest.approx(1.25)


def test_several_runs_of_a_seed_all_count_with_welchs_interval() -> None:
    first, second = made_up_outcome(SUPCON, 77.6, 77.7, 77.3), made_up_outcome(TCL, 77.9, 78.1, 77.8, 78.0)
    again = Outcome(TCL, (*second.results, made_up_result(TCL, 0, linear=77.0)))
    test = ttest_ind([77.9, 78.1, 77.8, 78.0, 77.0], [77.6, 77.7, 77.3], equal_var=False)
    found, (low, high) = again.difference(first), test.confidence_interval(0.95)
    assert found is not None
    assert found[:3] == pytest.approx(((low + high) / 2, (high - low) / 2, test.pvalue))


def test_many_seeds_have_scipys_paired_test_for_every_two() -> None:
    experiment = find_experiment("ci")
    values = {
        "Cross-entropy": [70.0, 71.0, 69.5, 70.2], "SupCon": [74.5, 75.5, 74.7, 74.2], "TCL": [75.1, 75.9, 75.6, 74.9],
    }  # fmt: skip
    outcomes = [
        Outcome(row, tuple(made_up_result(row, seed, linear=x, knn=x - 1) for seed, x in enumerate(values[row.method])))
        for row in experiment.rows
    ]
    table = make_table(experiment, outcomes)
    assert table.columns == ["", "top-1 %", "fast probe %", "kNN %", "runs", "p"]
    cells = {row[0]: row[1:] for row in texts(table)}
    assert cells["TCL"] == ["75.38 ± 0.73", "75.38 ± 0.73", "74.38 ± 0.73", "4", "–"]
    for upper, lower in (("SupCon", "Cross-entropy"), ("TCL", "Cross-entropy"), ("TCL", "SupCon")):
        test = ttest_rel(values[upper], values[lower])
        low, high = test.confidence_interval(0.95)
        row = cells[f"{upper} − {lower}"]
        assert row[0] == f"{(low + high) / 2:+.2f} ± {(high - low) / 2:.2f}"
        assert row[3:5] == ["4", f"{test.pvalue:.2g}"]
    alike = make_table(experiment, outcomes[1:])
    assert "fast probe %" not in alike.columns, "both have the same protocol"
