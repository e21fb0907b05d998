"""How many positives an anchor has."""

import math

import pytest
import torch
from examined import advice, texts

from contune.config import Config
from contune.doctor.positives import expected_positives


def test_cross_entropy_has_no_positives_to_count() -> None:
    assert not any("positives" in text for text in texts("method.name=cross-entropy"))


def test_expected_positives_by_hand() -> None:
    labels_N = torch.tensor([0, 0, 1, 1])
    config = Config().override(["optim.batch_images=3", "augment.views=3"])

    def balanced(batch: int) -> Config:
        own = ["augment.views=3", f"optim.batch_images={batch}", "data.sampler=balanced", "data.images_per_class=2"]
        return Config().override(own)

    assert expected_positives(config, labels_N) == pytest.approx(2 + 3 * 2 * 1 / 3)
    assert expected_positives(config, torch.arange(9)) == 2
    assert expected_positives(config, None) == 2
    assert expected_positives(balanced(8), labels_N) == 3 * 4 - 1
    assert expected_positives(balanced(9), labels_N) == pytest.approx(3 * (4 * 4 + 5 * 5) / 9 - 1)
    assert expected_positives(config.override(["method.name=simclr"]), labels_N) == 2


def test_few_other_images_of_a_class() -> None:
    words = "few anchors meet another image of their class"
    for views in (1, 2, 3):
        assert words in advice("optim.batch_images=4", f"augment.views={views}")
        assert words not in advice("optim.batch_images=8", f"augment.views={views}")


def test_the_untrained_loss_counts_negatives_k2_times() -> None:
    def said(*overrides: str) -> str:
        (text,) = (text for text in texts(*overrides) if text.startswith("an untrained loss"))
        return text

    positives = expected_positives(Config().override(["optim.batch_images=64"]), torch.arange(900) % 10)
    terms = positives + 3 * (127 - positives)
    assert f"about ln 127 = {math.log(127):.2f};" in said("method.k2=1")
    assert f"about ln {terms:.0f} = {math.log(terms):.2f};" in said("method.k2=3")
    assert f"about ln 127 = {math.log(127):.2f};" in said("method.name=simclr")


def test_two_views_of_one_image_have_no_loss_to_leave() -> None:
    alone = texts("optim.batch_images=1", "method.name=simclr")
    assert "positives: 1.0 for each anchor on average" in alone
    assert not any(text.startswith("an untrained loss") for text in alone)
