"""The paper's procedure: what it tries, in which order, and where it stops."""

from pathlib import Path

from made_up_trials import workshop

from contune.tune.paper import as_in_the_paper
from contune.tune.trial import Values, best


def test_4000_and_5000_are_enough_where_they_beat_supcon(tmp_path: Path) -> None:
    shop = workshop(tmp_path, accuracy=lambda v: {0: 80, 4000: 90, 5000: 91}.get(v.k1, 85) - abs(v.k2 - 1))
    trials = as_in_the_paper(shop, supervised=True)
    assert shop.batches[0] == [Values(500, 1), Values(0, 1), Values(4000, 1), Values(5000, 1)]
    assert shop.batches[1:] == [[Values(5000, 1.2)], [Values(5000, 1.1)]]
    assert best(trials) is trials[3]


def test_otherwise_2000_to_8000_too(tmp_path: Path) -> None:
    shop = workshop(tmp_path, accuracy=lambda v: {0: 95, 2000: 94}.get(v.k1, 90) - abs(v.k2 - 1))
    trials = as_in_the_paper(shop, supervised=True)
    assert shop.batches[1] == [Values(2000, 1), Values(6000, 1), Values(8000, 1)]
    choice = best(trials)
    assert choice is not None
    assert choice.values == Values(2000, 1)


def test_k2_rises_while_it_helps_then_in_smaller_steps(tmp_path: Path) -> None:
    shop = workshop(tmp_path, accuracy=lambda v: 90 - 10 * abs(v.k2 - 1.5) + (v.k1 == 4000))
    choice = best(as_in_the_paper(shop, supervised=True))
    raised = [batch[0].k2 for batch in shop.batches[1:]]
    assert raised == [1.2, 1.4, 1.6, 1.5, 1.6]
    assert choice is not None
    assert choice.values == Values(4000, 1.5)


def test_k2_rises_from_a_k1_of_the_paper_also_where_the_recipes_own_does_better(tmp_path: Path) -> None:
    shop = workshop(tmp_path, accuracy=lambda v: {500: 99, 0: 80, 4000: 90}.get(v.k1, 85) - abs(v.k2 - 1))
    choice = best(as_in_the_paper(shop, supervised=True))
    assert shop.batches[1:] == [[Values(4000, 1.2)], [Values(4000, 1.1)]]
    assert choice is not None
    assert choice.values == Values(500, 1)


def test_without_labels_k1_is_1_and_only_k2_rises(tmp_path: Path) -> None:
    shop = workshop(tmp_path, "method.supervised=false", "method.k1=1", "method.k2=1.5")
    as_in_the_paper(shop, supervised=False)
    assert {values.k1 for batch in shop.batches for values in batch} == {0.0, 1.0}


def test_no_more_is_begun_when_the_time_is_over(tmp_path: Path) -> None:
    shop = workshop(tmp_path, until=0.0)
    as_in_the_paper(shop, supervised=True)
    assert len(shop.batches) == 1
