"""Sentences for names that nobody knows."""

from contune.errors import MOST_NAMES, unknown


def test_the_nearest_names_or_all_of_them() -> None:
    assert str(unknown("fruit", "aple", ["kiwi", "apple"])) == "unknown fruit 'aple'; did you mean apple?"
    assert str(unknown("fruit", "xyz", ["kiwi", "apple"])) == "unknown fruit 'xyz'; choose from apple, kiwi"


def test_what_is_no_name_at_all() -> None:
    assert str(unknown("fruit", None, ["kiwi", "apple"])) == "unknown fruit None; choose from apple, kiwi"


def test_of_very_many_the_first() -> None:
    names = [f"model{number:04}" for number in range(1300)]
    sentence = str(unknown("encoder", "xyz", names))
    assert sentence.endswith(f"{names[MOST_NAMES - 1]} and 1,276 more")
    assert len(sentence) < 400
