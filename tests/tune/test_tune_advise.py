"""The advice on embeddings whose responses are known."""

import pytest
import torch
import torch.nn.functional as F

from contune.losses.responses import responses
from contune.tune.advise import HIGHEST_K1, PUSH_LEFT, Moment, advise


def moment(step: int, *, similarity: float, apart: float, classes: int = 10, num: int = 120) -> Moment:
    """Unit vectors with about this similarity to those of their class, and so much less to others."""
    generator = torch.Generator().manual_seed(step)
    labels_N = torch.arange(num) % classes
    common, own = (similarity - apart) ** 0.5, apart**0.5
    centres_KD = F.normalize(torch.randn(classes, 256, generator=generator), dim=1)
    noise_ND = F.normalize(torch.randn(num, 256, generator=generator), dim=1)
    axis_D = F.normalize(torch.randn(256, generator=generator), dim=0)
    z_ND = common * axis_D + own * centres_KD[labels_N] + (1 - similarity) ** 0.5 * noise_ND
    return Moment(step, F.normalize(z_ND, dim=1), labels_N)


UNTRAINED = moment(1, similarity=0.55, apart=0.02)
TRAINED = [moment(step, similarity=0.92, apart=0.7) for step in (50, 100)]


def push(moment: Moment, k1: float, k2: float = 1.0, temperature: float = 0.1) -> float:
    found = responses(moment.z_ND, moment.groups_N, temperature=temperature, k1=k1, k2=k2, hard=None)
    return float(found["negative_gradient"] / found["supcon_negative_gradient"])


def test_k1_leaves_the_negatives_their_push_and_no_larger_one_does() -> None:
    advice = advise([UNTRAINED, *TRAINED], 0.1)
    k1 = advice.values.k1
    assert min(push(each, k1) for each in (UNTRAINED, *TRAINED)) == pytest.approx(PUSH_LEFT, abs=0.003)
    assert min(push(each, 2 * k1) for each in (UNTRAINED, *TRAINED)) < 0.85


def test_an_untrained_network_of_low_similarity_decides() -> None:
    advice = advise([UNTRAINED, *TRAINED], 0.1)
    assert advice.decisive_step == 1
    assert "the untrained network allows no larger k1" in str(advice)


def test_where_it_is_high_the_trained_one_does() -> None:
    """As with a ResNet on CIFAR, where the paper's thousands are harmless."""
    close = advise([moment(1, similarity=0.97, apart=0.01), *TRAINED], 0.1)
    assert close.decisive_step > 1
    assert close.values.k1 > 3 * advise([UNTRAINED, *TRAINED], 0.1).values.k1


def test_k2_gives_the_push_back_once_the_run_has_learnt() -> None:
    advice = advise([moment(1, similarity=0.97, apart=0.01), *TRAINED], 0.1)
    assert advice.values.k2 > 1
    assert push(TRAINED[-1], *advice.values) == pytest.approx(1, abs=0.02)
    assert advice.push == pytest.approx(1, abs=0.02)
    assert advice.pull > 1


def test_a_higher_temperature_allows_less() -> None:
    assert advise([UNTRAINED, *TRAINED], 0.2).values.k1 < advise([UNTRAINED, *TRAINED], 0.1).values.k1 / 3


def test_an_end_of_the_range_is_the_most_it_says() -> None:
    assert advise([moment(1, similarity=0.999, apart=0.0005)] * 3, 0.02).values.k1 == HIGHEST_K1
