"""What rows of a comparison are called."""

from itertools import product
from time import perf_counter

from compared_runs import made_up, seeds

from contune.analysis.comparison.runs import Run, grouped

TCL = seeds("tcl", "method.k1=4000", linear=(91.0, 92.0, 93.5))
SUPCON = seeds("supcon", "method.name=supcon", linear=(90.0, 91.2, 92.1))


def titles(runs: list[Run]) -> list[str]:
    return [group.title for group in grouped(runs)]


def of(*rows: str) -> list[str]:
    """The titles of a run for each row of settings."""
    return titles([made_up(f"run{number}", *row.split()) for number, row in enumerate(rows)])


def test_they_say_what_tells_groups_apart() -> None:
    assert titles([*TCL, made_up("a", "method.k1=50"), *SUPCON]) == ["tcl, k1 4000", "tcl, k1 50", "supcon"]
    assert of("optim.epochs=5", "optim.epochs=7") == ["tcl, epochs 5", "tcl, epochs 7"]
    assert of("data.path=x", "data.path=y") == ["tcl (run0)", "tcl (run1)"]


def test_the_setting_in_which_two_differ_is_named_however_many_others_differ_elsewhere() -> None:
    elsewhere = "data.name=cifar10 data.image_size=32 augment.policy=autoaugment method.k1=5000 model.encoder=resnet18"
    assert of("optim.epochs=20", "optim.epochs=0", f"optim.epochs=20 {elsewhere}") == [
        "tcl on digits, epochs 20",
        "tcl on digits, epochs 0",
        "tcl on cifar10, epochs 20",
    ]


def test_no_more_settings_than_are_needed() -> None:
    assert of("method.k1=1 optim.lr=0.1 optim.epochs=5", "method.k1=2 optim.lr=0.2 optim.epochs=6") == [
        "tcl, k1 1",
        "tcl, k1 2",
    ]
    both = of(*(f"optim.lr={lr} method.k1={k1} optim.epochs={k1}" for lr, k1 in product((0.1, 0.2), (1, 2))))
    assert both == ["tcl, k1 1, lr 0.1", "tcl, k1 2, lr 0.1", "tcl, k1 1, lr 0.2", "tcl, k1 2, lr 0.2"]
    one_for_two = of(
        "method.k1=1 method.k2=1 optim.epochs=1",
        "method.k1=2 method.k2=1 optim.epochs=2",
        "method.k1=1 method.k2=2 optim.epochs=3",
    )
    assert one_for_two == ["tcl, epochs 1", "tcl, epochs 2", "tcl, epochs 3"]


def test_values_read_as_they_are_written_and_what_is_not_set_is_left_out() -> None:
    assert of("data.image_size=none", "data.image_size=32") == ["tcl", "tcl, image_size 32"]
    assert of("method.supervised=true", "method.supervised=false") == ["tcl, supervised true", "tcl, supervised false"]
    assert of("", "augment.per_view=digits,none") == ["tcl", "tcl, per_view digits + none"]
    assert of("optim.name=sgd", "optim.name=lars") == ["tcl, optim sgd", "tcl, optim lars"]


def test_words_that_two_settings_share_have_their_section() -> None:
    moco = "method.name=moco-v2"
    rows = [f"{moco} method.momentum={ours} optim.momentum={theirs}" for ours in (0.9, 0.99) for theirs in (0.8, 0.9)]
    assert of(*rows)[1] == "moco-v2, method.momentum 0.9, optim.momentum 0.9"


def test_where_one_thing_was_changed_at_a_time_only_that_is_named() -> None:
    changes = ("method.k1=50", "method.k2=2", "optim.lr=0.3", "optim.epochs=3", "augment.policy=none")
    assert of("", *changes, "method.name=supcon") == [
        "tcl", "tcl, k1 50", "tcl, k2 2", "tcl, lr 0.3", "tcl, epochs 3", "tcl, policy none", "supcon",
    ]  # fmt: skip


def test_many_changes_are_told_at_once() -> None:
    keys = [key for key, value in made_up("a").settings.items() if type(value) in (int, float) and key != "run.seed"]
    runs = [made_up("base")]
    for number, key in enumerate(keys):
        run = made_up(f"run{number}")
        section, _, name = key.partition(".")
        run.config[section][name] += 1
        runs.append(run)
    assert len(runs) > 20
    begun = perf_counter()
    found = titles(runs)
    assert perf_counter() - begun < 5
    assert len(set(found)) == len(runs)
    assert not any("(" in title for title in found)
