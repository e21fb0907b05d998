"""The fast linear probe against scikit-learn's solver of the same problem."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from contune.eval.logistic import fit_logistic, logistic_protocol, logistic_scores


def problem(num: int = 120, num_classes: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """Overlapping classes, features of different scales."""
    generator = torch.Generator().manual_seed(0)
    labels_N = torch.arange(num) % num_classes
    centres_KD = torch.randn(num_classes, 5, generator=generator)
    scale_D = torch.tensor([1.0, 10.0, 0.1, 3.0, 1.0])
    x_ND = (centres_KD[labels_N] + torch.randn(num, 5, generator=generator)) * scale_D + 4
    test_MD = (centres_KD[labels_N] + torch.randn(num, 5, generator=generator)) * scale_D + 4
    return x_ND, labels_N, test_MD


@pytest.mark.parametrize("weight_penalty", [1e-2, 1e-3])
def test_probabilities_are_scikit_learns_at_the_matching_c(weight_penalty: float) -> None:
    x_ND, labels_N, test_MD = problem()
    mean_D, scale_D = x_ND.mean(0), x_ND.std(0)
    reference = LogisticRegression(C=1 / (weight_penalty * len(x_ND)), tol=1e-8, max_iter=5000)
    reference.fit(((x_ND - mean_D) / scale_D).numpy(), labels_N.numpy())
    expected = reference.predict_proba(((test_MD - mean_D) / scale_D).numpy())
    logits_MK = logistic_scores(x_ND, labels_N, test_MD, 3, weight_penalty=weight_penalty)
    np.testing.assert_allclose(logits_MK.softmax(1).numpy(), expected, atol=2e-3)


def test_no_seed_and_no_scale_change_it() -> None:
    x_ND, labels_N, test_MD = problem()
    logits_MK = logistic_scores(x_ND, labels_N, test_MD, 3)
    torch.manual_seed(99)
    assert torch.equal(logistic_scores(x_ND, labels_N, test_MD, 3), logits_MK)
    stretched = logistic_scores(x_ND * 100, labels_N, test_MD * 100, 3)
    torch.testing.assert_close(stretched.softmax(1), logits_MK.softmax(1), rtol=1e-3, atol=1e-3)


def test_a_constant_feature_and_an_absent_class_do_no_harm() -> None:
    x_ND, labels_N, test_MD = problem()
    with_constant, test_constant = (torch.cat([x, torch.full((len(x), 1), 7.0)], dim=1) for x in (x_ND, test_MD))
    logits_MK = logistic_scores(with_constant, labels_N, test_constant, 4)
    assert logits_MK.isfinite().all()
    assert (logits_MK.argmax(1) != 3).all()


def test_a_feature_that_was_constant_in_training_is_not_listened_to() -> None:
    x_ND, labels_N, test_MD = problem()
    x_ND, test_MD = (
        torch.cat([x, torch.full((len(x), 1), value)], dim=1) for x, value in ((x_ND, 0.1), (test_MD, 0.15))
    )
    weight_KD, _ = fit_logistic(x_ND, labels_N, 3).as_linear()
    assert weight_KD[:, -1].abs().max() < 1e-3
    without = logistic_scores(x_ND[:, :-1], labels_N, test_MD[:, :-1], 3)
    torch.testing.assert_close(logistic_scores(x_ND, labels_N, test_MD, 3), without, rtol=1e-3, atol=1e-2)


def test_as_a_linear_layer_it_takes_features_as_they_are() -> None:
    x_ND, labels_N, test_MD = problem()
    probe = fit_logistic(x_ND, labels_N, 3)
    weight_KD, bias_K = probe.as_linear()
    torch.testing.assert_close(test_MD @ weight_KD.T + bias_K, probe.scores(test_MD), rtol=1e-4, atol=1e-3)


def test_the_protocol_has_its_penalty() -> None:
    assert "weight penalty 0.0001" in logistic_protocol()
