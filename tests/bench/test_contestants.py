"""Everyone in the benchmark computes the same loss, and whoever does not is caught."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from contune.bench import dense_forms
from contune.bench.agreement import check
from contune.bench.batch import LOSSES, make_batch
from contune.bench.contestants import (
    BASELINE,
    K1,
    K2,
    TEMPERATURE,
    Contestant,
    matrices,
    own_contestants,
    reference_loss,
    transcribed_contestants,
)
from contune.bench.field import everyone

CPU = torch.device("cpu")


def names(contestants: list[Contestant]) -> list[tuple[str, str]]:
    return [(c.loss, c.name) for c in contestants]


@pytest.mark.parametrize("contestant", transcribed_contestants(CPU), ids=lambda c: f"{c.loss}-{c.name}")
def test_a_transcription_is_the_dense_form(contestant: Contestant) -> None:
    batch = make_batch(contestant.loss, 24, 8, num_classes=5, device=CPU, dtype="float64")
    value = contestant.function(batch.z_ND, batch.labels_N)
    expected = reference_loss(contestant.loss, batch.z_ND, batch.labels_N)
    torch.testing.assert_close(value, expected, rtol=1e-10, atol=1e-10)
    (grad,), (expected_grad,) = (torch.autograd.grad(loss, batch.z_ND) for loss in (value, expected))
    torch.testing.assert_close(grad, expected_grad, rtol=1e-10, atol=1e-10)


def test_where_the_mask_is_built_changes_nothing() -> None:
    batch = make_batch("tcl", 12, 4, num_classes=3, device=CPU, dtype="float64")
    values = [
        dense_forms.authors_tcl(batch.z_ND, batch.labels_N, temperature=TEMPERATURE, k1=K1, k2=K2, host_mask=host)
        for host in (True, False)
    ]
    assert values[0] == values[1]


def test_on_the_cpu_everyone_agrees() -> None:
    contestants, _ = everyone(CPU, compiled=False)
    checks = [check(c, 16, num_classes=10, device=CPU, dtype="float32") for c in contestants]
    assert not {item.name: item.reason for item in checks if not item.passed}
    assert {item.loss for item in checks} == set(LOSSES)


def test_a_wrong_contestant_is_caught() -> None:
    (right,) = (c for c in own_contestants(CPU, compiled=False) if (c.loss, c.name) == ("tcl", BASELINE))

    def slightly_off(z: Tensor, labels: Tensor) -> Tensor:
        return 1.002 * right.function(z, labels)

    def right_value_only(z: Tensor, labels: Tensor) -> Tensor:
        return right.function(z, labels) + (z - z.detach()).sum()

    def never_a_number(z: Tensor, labels: Tensor) -> Tensor:
        return right.function(z, labels) * float("nan")

    for function in (slightly_off, right_value_only, never_a_number):
        found = check(replace(right, function=function), 8, num_classes=10, device=CPU, dtype="float32")
        assert found.verdict == "disagrees"
        assert "in gradient" in found.reason
        assert not found.passed


def test_what_computes_another_formula_is_let_through_with_its_note() -> None:
    other = Contestant(
        name="other",
        loss="ntxent",
        function=lambda z, labels: z.square().sum(),
        source="",
        footprint=matrices(0),
        note="another formula",
        timing_only=True,
    )
    found = check(other, 8, num_classes=10, device=CPU, dtype="float32")
    assert (found.verdict, found.reason, found.passed) == ("not asked", "another formula", True)


def test_the_kernels_for_gpus_take_part_on_gpus() -> None:
    on_gpu = set(names(own_contestants(torch.device("cuda"), compiled=False)))
    assert on_gpu - set(names(own_contestants(CPU, compiled=False))) == {
        (loss, name) for loss in LOSSES for name in ("contune fused", "contune fused, high")
    }


def test_contune_comes_first_and_on_a_gpu_the_paper_comes_twice() -> None:
    assert names(own_contestants(CPU, compiled=False))[0] == ("tcl", BASELINE)
    on_gpu = names(transcribed_contestants(torch.device("cuda")))
    assert ("tcl", "TCL paper's form, mask on device") in on_gpu
    assert len(on_gpu) == len(set(on_gpu)) == len(transcribed_contestants(CPU)) + 2


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("num", [4, 30, 256])
def test_every_anchor_of_a_batch_has_a_positive_and_a_negative(loss: str, num: int) -> None:
    batch = make_batch(loss, num, 3, num_classes=100, device=CPU, dtype="float32")
    counts = batch.labels_N.bincount()
    assert batch.z_ND.is_leaf
    assert batch.z_ND.requires_grad
    assert counts.min() >= 2
    assert len(counts) >= 2
    assert len(batch.labels_N) == num
