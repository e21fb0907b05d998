"""kNN and logistic regression against scikit-learn; features and the paper's probe leave the encoder unchanged."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors
from small_run import SPEC
from torch import Tensor, nn

from contune.data.augment import Augmenter, build_policy
from contune.data.images import ResidentLoader
from contune.eval import probes
from contune.eval.probes import extract_features, fit_logistic, knn_scores, train_linear


def gaussian(num: int, dim: int = 6, seed: int = 0) -> Tensor:
    return torch.randn(num, dim, generator=torch.Generator().manual_seed(seed))


def labels(num: int, num_classes: int = 4) -> Tensor:
    return torch.randint(0, num_classes, (num,), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("k", "temperature"), [(1, 0.1), (7, 0.1), (20, 0.5)])
def test_knn_votes_against_a_loop(k: int, temperature: float, monkeypatch: pytest.MonkeyPatch) -> None:
    train_ND, test_MD, labels_N = gaussian(50), gaussian(33, seed=2), labels(50)
    nearest = NearestNeighbors(n_neighbors=k, metric="cosine").fit(train_ND.numpy())
    distances, indices = nearest.kneighbors(test_MD.numpy())
    expected = np.zeros((33, 4))
    for row in range(33):
        for distance, index in zip(distances[row], indices[row], strict=True):
            expected[row, labels_N[index]] += np.exp((1 - distance) / temperature)
    expected /= np.exp((1 - distances[:, :1]) / temperature)
    monkeypatch.setattr(probes, "KNN_CHUNK", 4)
    votes_MK = knn_scores(train_ND, labels_N, test_MD, 4, k=k, temperature=temperature)
    np.testing.assert_allclose(votes_MK.numpy(), expected, rtol=1e-4)


def test_knn_at_its_edges() -> None:
    train_ND, test_MD, labels_N = gaussian(40), gaussian(9, seed=2), labels(40)
    five = knn_scores(train_ND, labels_N, test_MD, 4, k=5)
    assert torch.equal(
        knn_scores(train_ND, labels_N, test_MD, 4, k=500), knn_scores(train_ND, labels_N, test_MD, 4, k=40)
    )
    tiny = knn_scores(train_ND, labels_N, test_MD, 4, k=5, temperature=1e-4)
    assert tiny.isfinite().all()
    assert tiny.argmax(1).tolist() == knn_scores(train_ND, labels_N, test_MD, 4, k=1).argmax(1).tolist()
    longer = knn_scores(train_ND * 7, labels_N, test_MD * 0.1, 4, k=5)
    torch.testing.assert_close(longer, five, rtol=1e-4, atol=1e-5)
    assert torch.equal(knn_scores(train_ND, labels_N, train_ND, 4, k=1).argmax(1), labels_N)


def problem(num: int = 120, num_classes: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """Overlapping classes, features of different scales."""
    generator = torch.Generator().manual_seed(0)
    labels_N = torch.arange(num) % num_classes
    centres_KD = torch.randn(num_classes, 5, generator=generator)
    scale_D = torch.tensor([1.0, 10.0, 0.1, 3.0, 1.0])
    x_ND = (centres_KD[labels_N] + torch.randn(num, 5, generator=generator)) * scale_D + 4
    test_MD = (centres_KD[labels_N] + torch.randn(num, 5, generator=generator)) * scale_D + 4
    return x_ND, labels_N, test_MD


def scores(x_MD: Tensor, probe: tuple[Tensor, Tensor]) -> Tensor:
    return x_MD @ probe[0].T + probe[1]


def test_logistic_regression_is_scikit_learns_at_the_matching_c() -> None:
    x_ND, labels_N, test_MD = problem()
    mean_D, scale_D = x_ND.mean(0), x_ND.std(0)
    reference = LogisticRegression(C=1 / (1e-3 * len(x_ND)), tol=1e-8, max_iter=5000)
    reference.fit(((x_ND - mean_D) / scale_D).numpy(), labels_N.numpy())
    expected = reference.predict_proba(((test_MD - mean_D) / scale_D).numpy())
    logits_MK = scores(test_MD, fit_logistic(x_ND, labels_N, 3, weight_penalty=1e-3))
    np.testing.assert_allclose(logits_MK.softmax(1).numpy(), expected, atol=2e-3)


def test_logistic_regression_ignores_seed_scale_constant_features_and_absent_classes() -> None:
    x_ND, labels_N, test_MD = problem()
    logits_MK = scores(test_MD, fit_logistic(x_ND, labels_N, 3))
    torch.manual_seed(99)
    assert torch.equal(scores(test_MD, fit_logistic(x_ND, labels_N, 3)), logits_MK)
    stretched = scores(test_MD * 100, fit_logistic(x_ND * 100, labels_N, 3))
    torch.testing.assert_close(stretched.softmax(1), logits_MK.softmax(1), rtol=1e-3, atol=1e-3)
    with_constant, test_other = (
        torch.cat([x, torch.full((len(x), 1), value)], dim=1) for x, value in ((x_ND, 0.1), (test_MD, 0.15))
    )
    probe = fit_logistic(with_constant, labels_N, 4)
    assert probe[0][:, -1].abs().max() < 1e-3
    assert (scores(test_other, probe).argmax(1) != 3).all()


def encoder() -> nn.Module:
    torch.manual_seed(0)
    return SPEC.build()


def bright_or_dark(num: int = 60) -> tuple[Tensor, Tensor]:
    """Two classes that any encoder separates: dark images and bright ones."""
    noise_N1HW = torch.randint(0, 80, (num, 1, 8, 8), generator=torch.Generator().manual_seed(1))
    labels_N = torch.arange(num) % 2
    return (noise_N1HW + 170 * labels_N[:, None, None, None]).to(torch.uint8), labels_N


def train_probe(backbone: nn.Module, **options: Any) -> nn.Linear:
    augmenter = Augmenter([build_policy("crop-flip", image_size=8, channels=1)], SPEC.mean, SPEC.std)
    loader = ResidentLoader(*bright_or_dark())
    return train_linear(backbone, loader, augmenter, 256, 2, epochs=3, lr=0.05, batch=16, **options)


@pytest.mark.parametrize("tuned", [False, True])
def test_features_are_in_order_and_of_each_image_alone(tuned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    backbone, (images, labels_N) = encoder(), bright_or_dark()
    monkeypatch.setattr(probes, "EVAL_BATCH", 7)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", tuned)
    done: list[int] = []
    before = {name: tensor.clone() for name, tensor in backbone.state_dict().items()}
    loader = ResidentLoader(images, labels_N)
    found = extract_features(backbone.train(), loader, SPEC, advance=lambda count, text: done.append(count))
    assert all(torch.equal(tensor, before[name]) for name, tensor in backbone.state_dict().items())
    assert torch.backends.cudnn.benchmark == tuned
    assert (backbone.training, found.dtype, found.requires_grad) == (False, torch.float32, False)
    assert done == [*range(7, 60, 7), 60]
    with torch.no_grad():
        one_by_one = torch.cat([backbone((image[None].float() / 255 - 0.5) / 0.25) for image in images])
    torch.testing.assert_close(found, one_by_one, rtol=1e-4, atol=1e-5)


def test_the_authors_probe_changes_batch_norm_statistics_and_its_rate_falls_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rates: list[float] = []

    class Recorded(torch.optim.SGD):
        def step(self, *arguments: Any) -> None:  # type: ignore[override]
            rates.append(float(self.param_groups[0]["lr"]))
            super().step(*arguments)

    monkeypatch.setattr(torch.optim, "SGD", Recorded)
    backbone, num_images = encoder(), len(bright_or_dark()[0])
    before = {name: tensor.clone() for name, tensor in backbone.state_dict().items()}
    train_probe(backbone, authors=True)
    changed = {name for name, tensor in backbone.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {name for name in before if name.endswith(("running_mean", "running_var", "num_batches_tracked"))}
    half_way = (1 + np.cos(np.pi / 3)) / 2
    assert sorted(set(rates), reverse=True) == pytest.approx([0.05, 0.05 * (1e-3 + 0.999 * half_way)])
    assert rates.count(0.05) == 2 * (num_images // 16), "the first two epochs have the full rate"
    rates.clear()
    train_probe(backbone)
    assert len(set(rates)) == 3


def test_the_papers_probe_learns_and_the_encoder_stays() -> None:
    backbone, (images, labels_N) = encoder(), bright_or_dark()
    before = {name: tensor.clone() for name, tensor in backbone.train().state_dict().items()}
    classifier = train_probe(backbone)
    assert any("running_mean" in name for name in before)
    assert all(torch.equal(tensor, before[name]) for name, tensor in backbone.state_dict().items())
    assert all(parameter.grad is None for parameter in backbone.parameters())
    scores_NK = classifier(extract_features(backbone, ResidentLoader(images, labels_N), SPEC))
    assert torch.equal(scores_NK.argmax(1), labels_N)
    torch.manual_seed(12345)
    assert torch.equal(train_probe(backbone).weight, classifier.weight)
    assert not torch.equal(train_probe(backbone, seed=1).weight, classifier.weight)
