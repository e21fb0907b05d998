"""Weighted nearest neighbours against a loop over scikit-learn's neighbours."""

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from torch import Tensor

from contune.eval import knn
from contune.eval.knn import knn_protocol, knn_scores


def features(num: int, dim: int = 6, seed: int = 0) -> Tensor:
    return torch.randn(num, dim, generator=torch.Generator().manual_seed(seed))


def labels(num: int, num_classes: int = 4, seed: int = 1) -> Tensor:
    return torch.randint(0, num_classes, (num,), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("k", "temperature"), [(1, 0.1), (7, 0.1), (20, 0.5)])
def test_votes_against_a_loop(k: int, temperature: float) -> None:
    train_ND, test_MD, labels_N = features(50), features(33, seed=2), labels(50)
    nearest = NearestNeighbors(n_neighbors=k, metric="cosine").fit(train_ND.numpy())
    distances, indices = nearest.kneighbors(test_MD.numpy())
    expected = np.zeros((33, 4))
    for row in range(33):
        for distance, index in zip(distances[row], indices[row], strict=True):
            expected[row, labels_N[index]] += np.exp((1 - distance) / temperature)
    votes_MK = knn_scores(train_ND, labels_N, test_MD, 4, k=k, temperature=temperature)
    scale = np.exp((1 - distances[:, :1]) / temperature)
    np.testing.assert_allclose(votes_MK.numpy(), expected / scale, rtol=1e-4)


def test_predictions_are_scikit_learns() -> None:
    train_ND, test_MD, labels_N = features(200), features(100, seed=2), labels(200)
    weighted = KNeighborsClassifier(9, metric="cosine", weights=lambda distance: np.exp((1 - distance) / 0.2))
    expected = weighted.fit(train_ND.numpy(), labels_N.numpy()).predict(test_MD.numpy())
    votes_MK = knn_scores(train_ND, labels_N, test_MD, 4, k=9, temperature=0.2)
    assert votes_MK.argmax(1).tolist() == expected.tolist()


def test_chunks_are_invisible(monkeypatch: pytest.MonkeyPatch) -> None:
    train_ND, test_MD, labels_N = features(50), features(23, seed=2), labels(50)
    whole = knn_scores(train_ND, labels_N, test_MD, 4, k=5)
    monkeypatch.setattr(knn, "CHUNK", 4)
    torch.testing.assert_close(knn_scores(train_ND, labels_N, test_MD, 4, k=5), whole)


def test_k_beyond_the_training_set_lets_all_vote() -> None:
    train_ND, test_MD, labels_N = features(5), features(3, seed=2), labels(5)
    assert torch.equal(
        knn_scores(train_ND, labels_N, test_MD, 4, k=500), knn_scores(train_ND, labels_N, test_MD, 4, k=5)
    )


def test_lengths_do_not_matter_and_a_tiny_temperature_does_not_overflow() -> None:
    train_ND, test_MD, labels_N = features(40), features(9, seed=2), labels(40)
    votes_MK = knn_scores(train_ND, labels_N, test_MD, 4, k=5, temperature=1e-4)
    assert votes_MK.isfinite().all()
    assert votes_MK.argmax(1).tolist() == knn_scores(train_ND, labels_N, test_MD, 4, k=1).argmax(1).tolist()
    longer = knn_scores(train_ND * 7, labels_N, test_MD * 0.1, 4, k=5)
    torch.testing.assert_close(longer, knn_scores(train_ND, labels_N, test_MD, 4, k=5), rtol=1e-4, atol=1e-5)


def test_a_training_image_is_its_own_nearest() -> None:
    train_ND, labels_N = features(30), labels(30)
    assert torch.equal(knn_scores(train_ND, labels_N, train_ND, 4, k=1).argmax(1), labels_N)


def test_the_protocol_has_its_values() -> None:
    assert "k=7, T=0.25" in knn_protocol(7, 0.25)
