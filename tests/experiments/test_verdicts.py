"""Verdicts follow from the runs: made-up results whose verdict is known."""

from pathlib import Path
from typing import Any

import pytest
from made_up import made_up_outcome

from contune.experiments import find_experiment
from contune.experiments.verdicts import NOT, OPEN, REPRODUCED, TESTS, Claim, find_all, read_claims

RESULTS = Path(__file__).parents[2] / "results"
CLAIMS = read_claims(RESULTS)

ROWS = {row.title: row for row in find_experiment("table1").rows}
PAIR = ("TCL, CIFAR-100", "SupCon, CIFAR-100")


def claim(test: str = "above", rows: tuple[str, ...] = PAIR, **settings: Any) -> Claim:
    return Claim(text="", source="", test=test, experiment="table1", rows=rows, seeds=1, **settings)


def decided(tested: Claim, *runs: tuple[float, ...]) -> str:
    rows = [made_up_outcome(ROWS[title], *values) for title, values in zip(tested.rows, runs, strict=True)]
    return TESTS[tested.test](tested, rows)[0]


def test_without_results_every_claim_is_open_and_has_its_price() -> None:
    findings = find_all(CLAIMS, {})
    assert len(findings) == len(CLAIMS) > 25
    assert {finding.verdict for finding in findings} == {OPEN}
    assert all(finding.minutes > 0 and not finding.files for finding in findings)
    assert len({each.text for each in CLAIMS}) == len(CLAIMS)
    assert {"table 1", "table 2", "table 3", "appendix B.1", *(f"figure {n}" for n in ("2a", "2c", "3a", "3d"))} <= {
        each.source for each in CLAIMS
    }


@pytest.mark.parametrize(
    ("tcl", "supcon", "paper", "verdict"),
    [
        ((91.0, 81.5, 72.0), (90.0, 80.0, 70.0), None, REPRODUCED),  # +1.50 ± 1.24
        ((90.0, 80.0, 70.0), (91.0, 81.5, 72.0), None, NOT),
        ((91.0, 80.0), (90.0, 80.5), None, OPEN),
        ((90.1, 80.0, 70.0), (90.0, 80.1, 70.0), 0.7, NOT),  # 0.0 ± 0.2 excludes the paper's gain
        ((90.0,), (89.0,), None, OPEN),  # one seed: ± 2.8 points of 899 images
        ((90.0, 90.0), (89.0, 89.1), None, OPEN),  # nor are two enough
        ((90.0,), (80.0,), None, REPRODUCED),
    ],
)
def test_a_difference(tcl: tuple[float, ...], supcon: tuple[float, ...], paper: float | None, verdict: str) -> None:
    assert decided(claim(paper=paper), tcl, supcon) == verdict
