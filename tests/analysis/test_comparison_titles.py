"""What rows of a comparison are called."""

from time import perf_counter

import pytest
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


def test_rows_of_one_method_are_named_by_all_that_differs() -> None:
    assert of("method.k1=1 optim.lr=0.1 optim.epochs=5", "method.k1=2 optim.lr=0.2 optim.epochs=6") == [
        "tcl, k1 1, epochs 5, lr 0.1",
        "tcl, k1 2, epochs 6, lr 0.2",
    ]
    assert of("method.k1=1 optim.lr=0.1", "method.k1=2 optim.lr=0.1", "optim.lr=0.1 method.name=supcon") == [
        "tcl, k1 1",
        "tcl, k1 2",
        "supcon",
    ]


@pytest.mark.parametrize(
    ("one", "other", "titles"),
    [
        ("optim.epochs=1", "optim.epochs=6", ["tcl, epochs 1", "supcon, epochs 6"]),
        ("model.encoder=resnet18", "", ["tcl, encoder resnet18", "supcon, encoder resnet50"]),
        ("", "optim.batch_images=32", ["tcl, batch_images 128", "supcon, batch_images 32"]),
        ("data.val_fraction=0.8", "", ["tcl, val_fraction 0.8", "supcon, val_fraction 0"]),
        ("augment.views=3", "", ["tcl, views 3", "supcon, views 2"]),
        ("data.image_size=16", "", ["tcl, image_size 16", "supcon"]),
    ],
)
def test_rows_of_two_methods_are_named_by_what_should_have_been_equal(one: str, other: str, titles: list[str]) -> None:
    assert of(one, f"method.name=supcon {other}") == titles


def test_what_each_method_has_of_its_own_is_not_named() -> None:
    own = "method.temperature=0.5 optim.name=lars optim.lr=2 augment.policy=simaugment optim.warmup_epochs=3"
    assert of("", f"method.name=supcon {own}") == ["tcl", "supcon"]


def test_what_differs_between_data_that_are_not_compared_is_not_named() -> None:
    assert of("model.encoder=resnet18", "data.name=cifar10 method.name=supcon optim.epochs=7") == [
        "tcl on digits",
        "supcon on cifar10",
    ]


def test_however_much_should_have_been_equal_no_row_is_left_without_it() -> None:
    """More than are named in every title, in two rows, neither of which has what most have."""
    fair = "optim.epochs=6 optim.batch_images=32 model.encoder=resnet18 augment.views=3 data.val_fraction=0.5"
    tcl, supcon = of("method.k1=7", f"method.name=supcon {fair}")
    assert tcl == "tcl, encoder resnet50, epochs 100, batch_images 128, views 2, val_fraction 0"
    assert supcon == "supcon, encoder resnet18, epochs 6, batch_images 32, views 3, val_fraction 0.5"


def test_long_titles_end_in_how_many_more_there_are() -> None:
    changes = "method.k1=7 method.k2=2 optim.lr=0.3 optim.momentum=0.5 method.projector_dim=9 optim.epochs=3"
    long = of("", f"{changes} optim.batch_images=16")[1]
    assert long == "tcl, k1 7, k2 2, projector_dim 9, epochs 3, batch_images 16, 2 more settings"
    alike = of("", changes, changes.replace("projector_dim=9", "projector_dim=8"))
    assert "more" not in alike[1] + alike[2], "it takes all to tell these two apart"
    assert len(set(alike)) == 3


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
    changes = ("optim.momentum=0.5", "optim.lr=0.3", "optim.epochs=3", "augment.policy=none")
    assert of("", *changes, "method.name=supcon") == [
        "tcl", "tcl, momentum 0.5", "tcl, lr 0.3", "tcl, epochs 3", "tcl, policy none", "supcon",
    ]  # fmt: skip


def test_the_knobs_of_a_method_are_named_also_where_most_rows_have_the_same() -> None:
    small = "model.encoder=resnet-mini optim.epochs=40 data.image_size=16"
    large = "model.encoder=resnet18 optim.epochs=4 data.image_size=32"
    assert of(f"{small} method.k1=5000", f"{small} method.k1=500", f"{large} method.k1=500") == [
        "tcl, k1 5000",
        "tcl, k1 500",
        "tcl, k1 500, encoder resnet18, epochs 4, image_size 32",
    ]
    changes = ("method.k1=7", "method.k2=2", "method.temperature=1", "method.projector_dim=9")
    assert of("", *changes) == ["tcl", "tcl, k1 7", "tcl, k2 2", "tcl, temperature 1", "tcl, projector_dim 9"]


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
