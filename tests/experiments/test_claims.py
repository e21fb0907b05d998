"""What the paper says of k1 and k2, beside what runs show."""

from made_up import made_up_result

from contune.experiments import find_experiment
from contune.experiments.claims import claims_of_k1, claims_of_k2
from contune.experiments.outcome import Outcome

K1 = find_experiment("fig-k1-digits").rows
K2 = find_experiment("fig-k2-digits").rows


def outcome(row: int, positive: float, negative: float, *, beside: float = 0.2) -> Outcome:
    """SupCon has the same from both."""
    curves = {"epoch": [1.0], "positive_gradient": [positive], "negative_gradient": [negative]}
    curves |= {"supcon_positive_gradient": [beside], "supcon_negative_gradient": [beside]}
    return Outcome(K1[row], (made_up_result(K1[row], curves=curves),))


def test_a_claim_that_holds_at_every_step_holds() -> None:
    found = claims_of_k1([outcome(1, 0.2, 0.2), outcome(2, 0.22, 0.18), outcome(3, 0.3, 0.1)])
    assert found == [
        "The paper says that the gradient from positives grows with k1. Beside SupCon's on the same batches it does "
        "(100 % at k1 = 10, 150 % at 500), from run to run it does (0.2, 0.3).",
        "The paper says that the gradient from negatives falls with k1. Beside SupCon's on the same batches it does "
        "(100 % at k1 = 10, 50 % at 500), from run to run it does (0.2, 0.1).",
    ]


def test_the_states_of_runs_are_told_from_what_k1_does_in_them() -> None:
    """The second run has learnt less: more of everything, and less than SupCon from negatives there."""
    _, negatives = claims_of_k1([outcome(1, 0.2, 0.2), outcome(2, 0.5, 0.3, beside=0.4)])
    assert "on the same batches it does (100 % at k1 = 10, 75 % at 100), from run to run it does not" in negatives


def test_steps_that_go_the_other_way_are_counted() -> None:
    positives, _ = claims_of_k1([outcome(1, 0.2, 0.2), outcome(2, 0.19, 0.2), outcome(3, 0.3, 0.2)])
    assert "it does in 1 of 2 steps (100 % at k1 = 10, 150 % at 500)" in positives


def test_nothing_is_said_of_one_value_or_of_runs_without_curves() -> None:
    bare = [Outcome(row, (made_up_result(row),)) for row in K1]
    assert claims_of_k1(bare) == []
    assert claims_of_k1([outcome(1, 0.2, 0.2), outcome(2, 0.3, 0.1, beside=0.0)]) == []
    assert claims_of_k1([outcome(1, 0.2, 0.2), *bare[2:]]) == []
    assert claims_of_k2([Outcome(row) for row in K2]) == []


def test_the_table_of_k2_has_them_first() -> None:
    experiment = find_experiment("fig-k2-digits")
    runs = [Outcome(row, outcome(1, 0.2, 0.1 * number).results) for number, row in enumerate(experiment.rows)]
    table = experiment.table(runs)
    assert table.sentences[0].startswith("The paper says that the gradient from negatives grows with k2. Beside")
    assert table.findings == (table.sentences[0],)
