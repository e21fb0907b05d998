"""The sentences at the end of tuning."""

from contune.tune.trial import OWN, Trial, Values
from contune.tune.tuning import Outcome
from contune.tune.written import rows, train_command, verdict

CHOICE = Trial(values=Values(74.3, 2.35), accuracy=100.0, knn=99.0, num_images=180)


def outcome(own: float, num_images: int = 180, *others: Trial) -> Outcome:
    trial = Trial(values=Values(500, 1), accuracy=own, why=OWN, num_images=num_images)
    choice = Trial(values=CHOICE.values, accuracy=100.0, knn=99.0, num_images=num_images)
    return Outcome([choice, trial, *others], choice, trial, None)


def test_a_lead_of_two_images_is_said_to_be_chance() -> None:
    text = verdict(outcome(98.89), 10)
    assert "k1 74.3, k2 2.35: 100.00 %; the recipe's own values 98.89 %" in text
    assert "is 2 images, which chance can make, the more so for the best of 2 trials" in text


def test_what_is_level_is_not_called_a_lead() -> None:
    text = verdict(outcome(100.0), 1)
    assert "after 1 epoch;" in text
    assert "the recipe's own values are right on as many images" in text
    assert "lead" not in text


def test_the_table_has_the_choice_first_and_failures_last() -> None:
    level = [Trial(values=Values(k1, 1), accuracy=99.0, knn=98.0) for k1 in (500.0, 20.0, 80.0)]
    trials = [Trial(values=Values(1, 1), error="no room"), *level]
    shown = rows(Outcome(trials, level[1], None, None))
    assert [(row[0], row[1]) for row in shown] == [("→", "20"), ("", "80"), ("", "500"), ("", "1")]


def test_a_clear_lead_is_not() -> None:
    assert "chance" not in verdict(outcome(80.0), 10)
    assert "chance" not in verdict(outcome(98.89, 10_000), 10)


def test_supcon_above_the_choice_or_level_with_it_is_said() -> None:
    assert "SupCon" not in verdict(outcome(80.0, 180, Trial(values=Values(0, 1), accuracy=99.0)), 10)
    level = Trial(values=Values(0, 1), accuracy=100.0, knn=99.5)
    assert "SupCon, k1 = 0, does as well: 100.00 % (kNN 99.50 %, of the choice 99.00 %); try" in verdict(
        outcome(80.0, 180, level), 10
    )
    low = Trial(values=Values(5, 1), accuracy=90.0, num_images=180)
    better = Outcome([low, Trial(values=Values(0, 1), accuracy=95.0)], low, None, None)
    assert "SupCon, k1 = 0, is above it: 95.00 %" in verdict(better, 10)


def test_the_command_replaces_k1_and_k2_and_quotes_the_rest() -> None:
    overrides = ["data.path=my photos", "method.k1=3", "optim.epochs=9"]
    command = train_command("images", overrides, CHOICE)
    assert command == "contune train images 'data.path=my photos' optim.epochs=9 method.k1=74.3 method.k2=2.35"
