"""Retrieval measures by hand, against pytorch-metric-learning, with ties, in blocks, and for bad input."""

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from pytorch_metric_learning.utils.inference import CustomKNN
from sklearn.cluster import KMeans
from torch import Tensor

import contune
from contune.errors import UserError
from contune.eval import retrieval as module
from contune.eval.evaluate import retrieval_entry
from contune.eval.measures import RETRIEVAL
from contune.eval.retrieval import retrieval

THEIRS = {
    "precision_at_1": "recall@1",
    "mean_average_precision_at_r": "map@r",
    "r_precision": "r_precision",
    "NMI": "nmi",
}


def clustered(num: int, num_classes: int, seed: int) -> tuple[Tensor, Tensor]:
    """Overlapping classes of very different sizes."""
    generator = torch.Generator().manual_seed(seed)
    labels_N = (num_classes * torch.rand(num, generator=generator) ** 2).long()
    centers = torch.randn(num_classes, 16, generator=torch.Generator().manual_seed(0))
    return centers[labels_N] + 1.2 * torch.randn(num, 16, generator=generator), labels_N


def on_a_circle(*degrees: float) -> Tensor:
    angles = torch.tensor(degrees).deg2rad()
    return torch.stack([angles.cos(), angles.sin()], dim=1)


def test_by_hand() -> None:
    references, labels = on_a_circle(1, 2, 3, 4, 5, 6, 90), list("babaaab")
    found = retrieval(references, labels, on_a_circle(0.0), ["a"])
    # a has R = 4 images, at places 2, 4, 5 and 6: two are among the first four.
    assert found["recall@1"] == 0
    assert found["recall@5"] == found["recall@10"] == 100
    assert found["r_precision"] == pytest.approx(100 * 2 / 4)
    assert found["map@r"] == pytest.approx(100 * (1 / 2 + 2 / 4) / 4)
    assert retrieval(references, labels, on_a_circle(91, 0), ["b", "c"])["recall@1"] == 100, "c has no reference"
    assert list(found) == list(RETRIEVAL)


@pytest.mark.parametrize("num_queries", [None, 70])
def test_equal_to_pytorch_metric_learning(num_queries: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_PAIRS", 1000)  # several blocks, the last of another size
    x_ND, labels_N = clustered(300, 9, seed=1)
    labels_N[7] = 99  # alone in its class
    q_QD, labels_Q = (x_ND, labels_N) if num_queries is None else clustered(num_queries, 9, seed=2)
    calculator = AccuracyCalculator(
        include=tuple(THEIRS),
        k="max_bin_count",
        device=torch.device("cpu"),
        knn_func=CustomKNN(CosineSimilarity()),
        kmeans_func=lambda x, k: torch.from_numpy(
            KMeans(k, n_init=1, random_state=0).fit_predict(F.normalize(x).numpy())
        ),
    )
    same = num_queries is None
    theirs = calculator.get_accuracy(q_QD, labels_Q, x_ND, labels_N, ref_includes_query=same)
    ours = contune.retrieval(x_ND, labels_N) if same else contune.retrieval(x_ND, labels_N, q_QD, labels_Q)
    for key, name in THEIRS.items():
        assert ours[name] / 100 == pytest.approx(theirs[key], abs=1e-6), name
    assert 10 < ours["map@r"] < ours["r_precision"] < ours["recall@1"] < ours["recall@5"] <= ours["recall@10"]


def test_any_kind_of_input_gives_the_same() -> None:
    x_ND, labels_N = clustered(60, 4, seed=3)
    expected = retrieval(x_ND, labels_N)
    texts = [f"class {label}" for label in labels_N.tolist()]
    for embeddings, labels in ((x_ND.numpy(), texts), (x_ND.double() * 5, labels_N.numpy()), (x_ND.tolist(), texts)):
        assert retrieval(embeddings, labels) == pytest.approx(expected)
    assert retrieval(x_ND, labels_N, x_ND, labels_N) == expected, "the same object is the same set"
    with torch.autocast("cpu", torch.bfloat16):
        assert retrieval(x_ND, labels_N) == expected
    half = retrieval(x_ND, labels_N, every=2, nmi=False)
    by_query = [retrieval(x_ND.roll(-row, 0), labels_N.roll(-row), every=60, nmi=False) for row in range(0, 60, 2)]
    assert half == pytest.approx({key: np.mean([one[key] for one in by_query]) for key in half})


def test_of_equals_the_first_is_nearer() -> None:
    for labels, recall in (("baa", 0), ("abb", 100)):
        assert retrieval(torch.ones(3, 2), list(labels), torch.ones(1, 2), ["a"])["recall@1"] == recall


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((torch.ones(3), [0, 0, 1]), "embeddings"),
        ((torch.ones(3, 2), [0, 1]), "labels"),
        ((torch.ones(3, 2), torch.eye(3)), "one label"),
        ((torch.ones(3, 2), [0, 1, 2]), "two images of a class"),
        ((torch.full((3, 2), torch.inf), [0, 1, 1]), "finite"),
        ((torch.ones(3, 2), [0, 1, 1], torch.ones(2, 3), [0, 1]), "features"),
        ((torch.ones(3, 2), [0, 1, 1], torch.ones(2, 2)), "query_labels"),
    ],
)
def test_bad_input(arguments: tuple[Any, ...], word: str) -> None:
    with pytest.raises(UserError, match=word):
        retrieval(*arguments)


def test_entries_of_large_sets_say_what_was_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    x_ND, labels_N = clustered(100, 5, seed=4)
    (small,) = retrieval_entry("seen", x_ND, labels_N, "test")
    assert small["values"].keys() == RETRIEVAL.keys()
    assert (small["num_images"], small["num_classes"]) == (100, 5)
    monkeypatch.setattr("contune.eval.evaluate.MOST_PAIRS", 100**2 // 3)
    monkeypatch.setattr("contune.eval.evaluate.MOST_DISTANCES", 10)
    (large,) = retrieval_entry("seen", x_ND, labels_N, "test")
    assert large["values"] == retrieval(x_ND, labels_N, every=4, nmi=False)
    assert "one image in 4" in large["protocol"]
    assert "NMI" not in large["protocol"]
    assert retrieval_entry("seen", x_ND, torch.arange(100), "test") == []


@pytest.mark.gpu
def test_a_gpu_gives_the_same() -> None:
    x_ND, labels_N = clustered(3000, 20, seed=5)
    expected = retrieval(x_ND, labels_N, nmi=False)
    assert retrieval(x_ND.cuda(), labels_N.cuda(), nmi=False) == pytest.approx(expected, abs=0.05)
