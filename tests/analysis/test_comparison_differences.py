"""Which accuracies a comparison shows, and what it tests between which runs."""

from typing import Any

import pytest
from compared_runs import made_up, seeds, text_of

from contune.analysis.comparison.differences import p_value
from contune.analysis.comparison.runs import Run

TCL = seeds("tcl", "method.k1=4000", linear=(91.0, 92.0, 93.5))
SUPCON = seeds("supcon", "method.name=supcon", linear=(90.0, 91.2, 92.1))


def cross_entropy(*overrides: str, seed: int = 0, top1: float = 88.0) -> Run:
    classifier: dict[str, Any] = {"classifier_top1": top1, "classifier_protocol": "the classifier trained with it"}
    return made_up(f"ce/seed{seed}", "method.name=cross-entropy", *overrides, seed=seed, linear=95.0, **classifier)


CROSS_ENTROPY = [cross_entropy(seed=seed, top1=top1) for seed, top1 in enumerate((88.0, 89.2, 90.1))]


def test_means_intervals_and_paired_tests() -> None:
    text = text_of([*TCL, *SUPCON])
    assert "92.17 ± 3.13" in text
    # scipy's ttest_rel: p = 0.02627, from 0.308 to 1.826
    assert "tcl minus supcon Linear probe +1.07 ± 0.76 0.026 3" in text


def test_only_seeds_that_both_have_are_compared() -> None:
    text = text_of([*TCL, made_up("late", "method.name=supcon", seed=2, linear=93.0)])
    assert "tcl minus supcon Linear probe +0.50 – 1" in text
    alone = text_of([*TCL, made_up("other", "method.name=supcon", seed=9)])
    assert "No two rows have a finished seed in common" in alone


def test_what_was_measured_otherwise_is_not_tested_and_the_page_says_so() -> None:
    other = made_up("other", "method.name=supcon", linear_protocol="another probe", knn_protocol="another kNN")
    text = text_of([*TCL, other])
    assert "Not all rows were measured alike" in text
    assert "Linear probe: another probe · the fast probe" in text
    assert "Data:" not in text
    assert "minus" not in text


def test_a_method_that_trains_a_classifier_is_judged_by_it() -> None:
    text = text_of([*CROSS_ENTROPY, *SUPCON])
    assert "Classifier or probe Linear probe Nearest neighbours Seeds" in text
    assert "cross-entropy ce/seed0 ce/seed1 ce/seed2 89.10 ± 2.62 95.00 ± 0.00" in text
    assert "supcon/seed2 91.10 ± 2.62 91.10 ± 2.62" in text
    assert "of a method that trains a classifier together with the encoder" in text
    # the probe is compared with the probe, and what each is judged by with what the other is judged by
    assert "cross-entropy minus supcon Classifier or probe −2.00 ± 0.00 < 0.001 3 Linear probe +3.90 ± 2.62" in text
    assert "measured alike" not in text


def test_without_a_classifier_there_is_nothing_else_to_judge_by() -> None:
    assert "Classifier or probe" not in text_of([*TCL, *SUPCON])


def test_what_methods_are_judged_by_needs_the_same_data_and_probe() -> None:
    text = text_of([cross_entropy("data.name=cifar10"), *SUPCON])
    assert "Data: cifar10 · digits" in text
    assert "minus" not in text
    another_probe = made_up("y", "method.k1=7", linear_protocol="another probe")
    text = text_of([CROSS_ENTROPY[0], SUPCON[0], another_probe])
    assert "cross-entropy minus tcl Classifier or probe" in text
    assert "supcon minus tcl Nearest neighbours" in text


def test_seeds_are_compared_while_the_first_one_is_not_finished() -> None:
    unfinished = made_up("tcl/seed0", "method.k1=4000", seed=0, linear=None)
    assert "tcl minus supcon Linear probe +1.10 ± 3.81 0.170 2" in text_of([unfinished, *TCL[1:], *SUPCON])


def test_own_images_of_two_folders_are_not_the_same_data() -> None:
    flowers, birds = ("data.name=images", "data.path=/a/flowers"), ("data.name=images", "data.path=/a/birds")
    text = text_of([made_up("x", *flowers), made_up("y", *birds)])
    assert "Data: /a/birds · /a/flowers" in text
    assert "minus" not in text
    assert "tcl on flowers x" in text


def test_pairs_that_cannot_be_compared_do_not_take_the_place_of_those_that_can() -> None:
    alone = [made_up(f"alone{seed}", f"method.k1={seed}", seed=seed) for seed in range(1, 9)]
    pair = [made_up("x", "method.k1=100"), made_up("y", "method.k1=200")]
    text = text_of([*alone, *pair])
    assert "tcl, k1 100 minus tcl, k1 200" in text
    assert "pairs are shown" not in text


SAME_START = "Runs of the same seed start from the same encoder weights and see the same batches"


def test_what_pairs_share_is_said_where_it_is_so() -> None:
    text = text_of([*TCL, *SUPCON])
    assert SAME_START in text
    assert "only the seed" not in text
    longer = text_of([*TCL, *seeds("x", "method.name=supcon", "optim.epochs=7", linear=(90.0, 91.2))])
    assert SAME_START in longer, "more epochs begin with the same batches"


@pytest.mark.parametrize(
    ("changes", "differing"),
    [
        (("data.val_fraction=0.8",), "val_fraction differs"),
        (("model.encoder=resnet18", "optim.batch_images=32"), "encoder and batch_images differ"),
        (("augment.views=3",), "views differs"),
        (("augment.policy=none",), "policy differs"),
    ],
)
def test_pairs_that_share_only_the_seed(changes: tuple[str, ...], differing: str) -> None:
    other = seeds("x", "method.name=supcon", *changes, linear=(90.0, 91.2))
    alone = text_of([*TCL, *other])
    assert SAME_START not in alone
    assert "the same seed, which is all that they share" in alone
    assert f"only the seed is shared: {differing}" in alone
    mixed = text_of([*TCL, *SUPCON, *other])
    assert SAME_START not in mixed
    assert "but for the pairs of which it says that only the seed is shared" in mixed
    assert mixed.count("only the seed is shared: ") == 2, "of three pairs"


def test_where_the_same_data_lie_is_no_difference() -> None:
    there = seeds("x", "method.name=supcon", "data.path=/elsewhere", "run.device=cuda", linear=(90.0, 91.2))
    assert SAME_START in text_of([*TCL, *there])


def test_what_each_method_has_of_its_own_is_said_of_the_pair() -> None:
    own = ("method.temperature=0.5", "optim.lr=2", "optim.epochs=7")
    text = text_of([*TCL, *seeds("x", "method.name=supcon", *own, linear=(90.0, 91.2))])
    assert "tcl, epochs 100 minus supcon, epochs 7 each has its own temperature and lr" in text
    many = (*own, "optim.momentum=0", "optim.weight_decay=0", "optim.final_lr=1", "optim.schedule=constant")
    text = text_of([*TCL, *seeds("x", "method.name=supcon", *many, "optim.warmup_epochs=1", linear=(90.0, 91.2))])
    assert "each has its own temperature, lr, momentum, weight_decay, schedule and 2 more settings" in text


def test_a_trial_that_was_given_up_says_so() -> None:
    run = made_up("trial", "method.k1=9")
    assert run.result is not None
    run.result.update(stopped_at=3)
    assert "trial, given up by contune tune after 3 of 100 epochs" in text_of([*TCL, run])


@pytest.mark.parametrize(("p", "text"), [(None, "–"), (0.0, "&lt; 0.001"), (0.0304, "0.030")])
def test_p_as_a_person_reads_it(p: float | None, text: str) -> None:
    assert p_value(p) == text
