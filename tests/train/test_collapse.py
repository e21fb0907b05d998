"""The sentences for features that have collapsed and for predictions that are the same for every image."""

import math
from pathlib import Path

import pytest
from command_line import PLAIN, contune
from torch import nn

from contune.methods.base import Guess, Method
from contune.methods.dino import DINO
from contune.methods.swav import SwAV
from contune.methods.tcl import TCL
from contune.train import collapse
from contune.train.collapse import collapse_sentence, guessing_sentence

GUESS = Guess(math.log(3000), "a lower method.epsilon than 0.05")


def test_a_rank_of_one_is_a_collapse() -> None:
    assert collapse_sentence(1.6, 10) is None
    assert "by step 10 the features have collapsed" in str(collapse_sentence(1.2, 10))


@pytest.mark.parametrize(
    ("loss", "step", "epoch", "said"),
    [
        (7.95, 1000, 5.0, True),
        (7.95, 999, 5.0, False),
        (7.95, 1000, 4.9, False),
        (7.85, 1000, 5.0, False),
        (8.3, 20000, 100.0, True),
    ],
)
def test_a_loss_of_guessing_is_told_of_when_it_should_be_over(loss: float, step: int, epoch: float, said: bool) -> None:
    sentence = guessing_sentence(GUESS, loss, step, epoch)
    assert (sentence is not None) == said
    if said:
        assert f"at step {step} the loss is still {loss:.2f}" in str(sentence)
        assert "a lower method.epsilon than 0.05" in str(sentence)
    assert guessing_sentence(None, loss, step, epoch) is None


def test_methods_with_prototypes_know_what_guessing_costs() -> None:
    def build(kind: type[Method]) -> Method:
        return kind(nn.Linear(4, 4), 4, 2, kind.Settings(**({"num_prototypes": 50} if kind is not TCL else {})))

    for kind in (SwAV, DINO):
        guess = build(kind).guess
        assert guess is not None
        assert guess.loss == pytest.approx(math.log(50))
    assert build(TCL).guess is None


def test_a_run_says_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collapse, "GUESSING_EPOCHS", 0)
    monkeypatch.setattr(collapse, "GUESSING_STEPS", 0)
    monkeypatch.setattr(collapse, "GUESSING_SHARE", 0.0)
    settings = ("optim.epochs=1", "run.log_every=2", "data.val_fraction=0.6", "eval.linear=none", "method.queue_size=0")
    outcome = contune("train", "digits-swav", *settings, *PLAIN, "--out", tmp_path)
    assert outcome.code == 0
    assert (outcome.out + outcome.err).count("the same prediction for every image") == 1
