"""Values as text and numbers, and which trial is taken."""

import pytest

from contune.config import Config
from contune.tune.trial import OWN, SUPCON, Trial, Values, best, named, rank, rounded


@pytest.mark.parametrize("values", [Values(500, 1), Values(5000, 1.25), Values(1234567.8, 1.1), Values(0.1 + 0.2, 1)])
def test_the_command_line_reads_back_the_same_numbers(values: Values) -> None:
    settings = Config().override(values.overrides).method.settings
    assert (settings.k1, settings.k2) == values  # type: ignore[attr-defined]  # of tcl


def test_proposals_are_rounded_to_what_a_person_types() -> None:
    assert rounded(1234.5678, 1.23456) == Values(1230.0, 1.23)
    assert rounded(1234.5678, 1.23456).folder == "k1-1230-k2-1.23"


def test_the_highest_accuracy_is_taken_and_knn_settles_a_tie() -> None:
    trials = [
        Trial(values=Values(1, 1), accuracy=90.0, knn=80.0),
        Trial(values=Values(2, 1), accuracy=95.0, knn=81.0),
        Trial(values=Values(3, 1), accuracy=95.0, knn=82.0),
        Trial(values=Values(4, 1), knn=99.0, stopped_at=4),
    ]
    assert best(trials) is trials[2]
    assert best(trials[3:]) is None


def test_what_is_level_goes_to_the_smaller_k1_then_to_the_k2_nearer_to_1() -> None:
    level = [
        Trial(values=values, accuracy=100.0, knn=99.0)
        for values in (Values(74.3, 2.35), Values(40.9, 2.5), Values(500, 1), Values(40.9, 1.2), Values(40.9, 0.5))
    ]
    for trials in (level, level[::-1]):
        assert [trial.values for trial in sorted(trials, key=rank, reverse=True)] == [
            Values(40.9, 1.2), Values(40.9, 0.5), Values(40.9, 2.5), Values(74.3, 2.35), Values(500, 1),
        ]  # fmt: skip
        choice = best(trials)
        assert choice is not None
        assert choice.values == Values(40.9, 1.2)


def test_supcon_is_for_comparison_unless_it_is_what_the_recipe_has() -> None:
    supcon = Trial(values=Values(0, 1), accuracy=99.0, why=SUPCON)
    other = Trial(values=Values(5, 1), accuracy=90.0)
    assert best([supcon, other]) is other
    own = Trial(values=Values(0, 1), accuracy=99.0, why=named(Values(0, 1), own=Values(0, 1), paper=Values(5000, 1)))
    assert OWN in own.why
    assert best([own, other]) is own
