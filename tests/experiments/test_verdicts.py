"""Verdicts follow from the runs: made-up results whose verdict is known."""

from pathlib import Path
from typing import Any

import pytest
from made_up import made_up_outcome

from contune.eval.measures import KNN
from contune.experiments import find_experiment, verdicts
from contune.experiments.plan import Outcome
from contune.experiments.verdicts import NOT, OPEN, PARTLY, REPRODUCED, TESTS, Claim, find_all, read_claims

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
        ((90.1, 80.0, 70.0), (90.0, 80.1, 70.0), 0.7, NOT),  # 0.0 ± 0.2 excludes the paper's gain
        ((90.0,), (89.0,), None, OPEN),  # one seed: ± 2.8 points of 899 images
        ((90.0, 90.0), (89.0, 89.1), None, OPEN),  # nor are two enough
        ((90.0,), (80.0,), None, REPRODUCED),
    ],
)
def test_a_difference(tcl: tuple[float, ...], supcon: tuple[float, ...], paper: float | None, verdict: str) -> None:
    assert decided(claim(paper=paper), tcl, supcon) == verdict


def test_a_measure_with_two_protocols_is_not_compared() -> None:
    tcl, supcon = (made_up_outcome(ROWS[title], top1) for title, top1 in zip(PAIR, (99.0, 80.0), strict=True))
    (result,) = tcl.results
    changed = [score | ({"protocol": "another"} if score["name"] == "knn" else {}) for score in result["measures"]]
    tcl = Outcome(tcl.row, (result | {"measures": changed},))
    assert tcl.difference(supcon, KNN) is None
    again = Outcome(tcl.row, (*tcl.results, result))  # this run has the protocol of SupCon's
    assert again.difference(supcon, KNN) == (0.0, None, 1)
    verdict, number, _ = TESTS["above"](claim(columns=(KNN,)), [tcl, supcon])
    assert (verdict, "protocol" in number) == (OPEN, True)
    assert TESTS["above"](claim(columns=("top1", KNN)), [tcl, supcon])[0] == REPRODUCED
    (score, *_), other = result["measures"], Outcome(supcon.row, tcl.results)
    strange = Outcome(tcl.row, (result | {"measures": [score | {"protocol": "another"}]},))
    assert TESTS["larger_gain"](claim(), [strange, supcon, other, supcon])[0] == OPEN


def test_several_settings_have_to_agree() -> None:
    four = claim(rows=(*PAIR, "TCL, CIFAR-10", "SupCon, CIFAR-10"))
    assert decided(four, (99.0,), (90.0,), (98.0,), (90.0,)) == REPRODUCED
    assert decided(four, (91.0,), (90.0,), (91.0,), (90.0,)) == OPEN  # of two, the weaker one counts: ± 2.8 points
    six = claim(rows=(*four.rows, "TCL, Fashion-MNIST", "SupCon, Fashion-MNIST"))
    assert decided(six, (91.0,), (90.0,), (81.1,), (80.0,), (91.0,), (90.0,)) == REPRODUCED  # of three, their interval
    every = claim(rows=(*PAIR, "TCL, CIFAR-10", PAIR[1]))  # of several rows against one, the weakest counts
    assert decided(every, (99.0,), (90.0,), (98.0,), (90.0,)) == REPRODUCED
    assert decided(every, (99.0,), (90.0,), (90.1,), (90.0,)) == OPEN
    assert decided(every, (99.0,), (90.0,), (80.0,), (90.0,)) == NOT
    same = claim("similar", tuple(every.rows))
    assert decided(same, (90.1, 90.0, 90.0), (90.0, 90.1, 90.0), (90.0,), (90.0, 90.1, 90.0)) == OPEN
    assert decided(claim(rows=tuple(four.rows), test="larger_gain"), (90.0,), (60.0,), (80.0,), (79.0,)) == REPRODUCED


def test_accuracies_and_equality_have_margins() -> None:
    reaches = claim("reaches", ("TCL, CIFAR-100",), paper=79.8)
    assert [decided(reaches, (top1,)) for top1 in (79.5, 78.9, 77.0)] == [REPRODUCED, PARTLY, NOT]
    similar = claim("similar")
    assert decided(similar, (90.1, 80.0, 70.0), (90.0, 80.1, 70.0)) == REPRODUCED
    assert decided(similar, (92.0, 82.1, 72.0), (90.0, 80.0, 70.0)) == NOT
    worse = [made_up_outcome(ROWS[title], top1) for title, top1 in zip(PAIR, (60.0, 90.0), strict=True)]
    assert TESTS["similar"](similar, worse, one_sided=True)[0] == REPRODUCED
    assert TESTS["above"](claim(paper=40.0), worse[::-1], sized=True)[0] == PARTLY, "better by less than the paper has"


def test_gradients_are_compared_on_the_same_batches() -> None:
    def rises(*values: float) -> str:
        curves = [{"epoch": [1], "positive_gradient": [value], "supcon_positive_gradient": [1.0]} for value in values]
        rows = [made_up_outcome(ROWS["TCL, CIFAR-100"], 90.0, curves=each) for each in curves]
        return verdicts.response(claim(), rows, key="positive_gradient")[0]

    assert [rises(1.0, 1.1, 1.2), rises(1.0, 1.3, 1.2), rises(1.2, 1.1)] == [REPRODUCED, PARTLY, NOT]
    curves = [{"epoch": [1], "theorem1_share": [0.5], "hard_theorem1_share": [share]} for share in (1.0, 0.9, 0.4)]
    rows = [made_up_outcome(ROWS["TCL, CIFAR-100"], 90.0, curves=each) for each in curves]
    assert [verdicts.holds(claim(), [row])[0] for row in rows] == [REPRODUCED, PARTLY, NOT]
