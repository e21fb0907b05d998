"""Accuracies by hand, and which measures an evaluation consists of."""

import pytest
import torch
from small_run import SPEC
from torch import Tensor, nn

from contune.config import EvalConfig
from contune.data.augment import Augmenter, build_policy
from contune.data.images import ResidentLoader
from contune.eval import evaluate as module
from contune.eval.evaluate import Evaluation, evaluate, score
from contune.eval.measures import columns_of_imbalance

SCORES = torch.tensor(
    [
        [9.0, 0, 0, 0, 0, 0, 0],
        [0, 9.0, 8, 7, 6, 5, 4],
        [9.0, 8, 7, 6, 5, 4, 3],
        [9.0, 8, 7, 6, 5, 4, 3],
    ]
)
NAMES = tuple("abcdefg")


def test_top1_top5_and_per_class_by_hand() -> None:
    found = score("knn", SCORES, torch.tensor([0, 1, 4, 5]), NAMES, protocol="by hand", split="val")
    assert found == {
        "name": "knn",
        "top1": 50.0,
        "top5": 75.0,  # the fifth place still counts, the sixth does not
        "balanced": 50.0,
        "per_class": {"a": 100.0, "b": 100.0, "e": 0.0, "f": 0.0},
        "protocol": "by hand",
        "split": "val",
        "num_images": 4,
    }
    other = score("knn", SCORES, torch.tensor([0, 0, 0, 2]), NAMES, protocol="", split="test")
    assert other["per_class"] == pytest.approx({"a": 200 / 3, "c": 0.0})
    few = score("knn", SCORES[:3, :5], torch.tensor([0, 1, 4]), NAMES[:5], protocol="", split="test")
    assert few["top5"] is None


def test_balanced_and_few_shot_accuracy_by_hand() -> None:
    """Three images of class a, two right; one of c, wrong; one of e, right."""
    scores_NK = SCORES[[0, 0, 1, 0, 1]][:, [0, 1, 4, 2, 1]]
    labels_N = torch.tensor([0, 0, 0, 2, 1])
    found = score("knn", scores_NK, labels_N, NAMES[:5], protocol="", split="test", train_counts=[101, 100, 19, 20, 3])
    assert found["top1"] == pytest.approx(60.0)
    assert found["balanced"] == pytest.approx((200 / 3 + 0 + 100) / 3)
    assert (found["many"], found["medium"], found["few"]) == pytest.approx((200 / 3, 100.0, 0.0))
    assert found["imbalance"] == round(101 / 3, 2)
    assert columns_of_imbalance([found]) == ["balanced", "many", "medium", "few"]
    equal = score("knn", scores_NK, labels_N, NAMES[:5], protocol="", split="test", train_counts=[5] * 5)
    assert {"few", "imbalance"} & equal.keys() == set()
    assert columns_of_imbalance([equal, found | {"imbalance": 1.5}]) == []


def test_mean_average_precision_by_hand() -> None:
    scores_NK = torch.tensor([[4.0, 1, 0], [3, 2, 0], [2, 3, 0], [1, 4, 0]])
    labels_NK = torch.tensor([[1.0, 1, 0], [0, 1, 0], [1, 0, 0], [0, 1, 0]])
    found = score("knn", scores_NK, labels_NK, NAMES[:3], protocol="", split="test")
    by_class = {"a": 100 * (1 + 2 / 3) / 2, "b": 100 * (1 + 2 / 3 + 3 / 4) / 3}  # no image has the class c
    assert found["per_class"] == pytest.approx(by_class)
    assert found["map"] == pytest.approx(sum(by_class.values()) / 2)
    assert found["top1"] == 50.0, "the first and the last image"


def run(
    *, labelled: bool = True, several: bool = False, classifier: nn.Linear | None = None, **settings: object
) -> Evaluation:
    """Of an untrained encoder on images of two brightnesses; several: some images have both labels."""
    torch.manual_seed(0)
    labels_N = torch.arange(60) % 2
    images = (torch.randint(0, 80, (60, 1, 8, 8)) + 170 * labels_N[:, None, None, None]).to(torch.uint8)
    if several:
        labels_N = torch.nn.functional.one_hot(labels_N).float().index_fill(0, torch.arange(0, 60, 7), 1.0)
    loaders = [
        ResidentLoader(images[part], labels_N[part] if labelled else None) for part in (slice(40), slice(40, 60))
    ]
    return evaluate(
        SPEC.build(),
        *loaders,
        spec=SPEC,
        class_names=("dark", "bright"),
        settings=EvalConfig(knn_k=5, linear_epochs=1, linear_batch=16, **settings),  # type: ignore[arg-type]
        augmenter=Augmenter([build_policy("crop-flip", image_size=8, channels=1)], SPEC.mean, SPEC.std),
        policy="crop-flip",
        classifier=classifier,
    )


def names(found: Evaluation) -> list[str]:
    return [score["name"] for score in found.scores]


@pytest.fixture(scope="module")
def evaluations() -> dict[str, Evaluation]:
    """By their protocol."""
    return {linear: run(linear=linear) for linear in ("fast", "paper", "authors", "none")}


def test_the_measures_of_each_protocol(evaluations: dict[str, Evaluation], monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = ["pixels-linear-fast", "pixels-knn"]
    fast, paper, authors, none = evaluations.values()
    assert names(fast) == ["linear-fast", "knn", *pixels]
    assert names(paper) == ["linear-fast", "knn", "linear", *pixels]
    assert names(authors) == ["linear-fast", "knn", "linear-authors", *pixels]
    assert names(none) == ["knn", "pixels-knn"]
    assert "batch 8" in authors.scores[2]["protocol"], "half of 16"
    assert torch.equal(authors.features_MD, fast.features_MD)
    assert [one["top1"] for one in fast.scores if "linear" in one["name"]] == [100, 100]
    assert paper.scores[2]["protocol"].startswith("linear layer, 1 epochs of SGD (lr 0.5")
    assert "k=5, T=0.1" in fast.scores[1]["protocol"]
    assert fast.features_MD.shape == (20, 256)
    assert [(one["name"], one["values"]["recall@1"]) for one in fast.retrieval] == [("seen", 100)]
    monkeypatch.setattr(module, "RAW_PIXEL_LIMIT", 100)
    assert names(run()) == ["linear-fast", "knn"]


def test_without_labels_there_are_only_features() -> None:
    found = run(labelled=False)
    assert (found.scores, found.retrieval, found.classifier, len(found.features_MD)) == ([], [], None, 20)


def test_several_labels_per_image() -> None:
    found = run(several=True, linear="paper")
    assert names(found) == ["linear-fast", "knn", "linear", "pixels-linear-fast", "pixels-knn"]
    assert all(one["map"] > 60 and "mean average precision" in one["protocol"] for one in found.scores)
    assert found.retrieval == []
    assert found.classifier is not None
    p_MK = found.classifier.probabilities(found.features_MD)
    assert ((p_MK > 0.5).sum(dim=1) == 2).any(), "images that have both labels"


def test_the_classifier_that_is_kept(evaluations: dict[str, Evaluation]) -> None:
    kept = {linear: found.classifier for linear, found in evaluations.items()}
    assert {linear: one and one.measure for linear, one in kept.items()} == {
        "fast": "linear-fast",
        "paper": "linear",
        "authors": "linear-fast",
        "none": None,
    }
    trained = nn.Linear(256, 2)
    found = run(linear="fast", classifier=trained)
    assert names(found)[:3] == ["linear-fast", "knn", "classifier"]
    assert found.classifier is not None
    assert found.classifier.measure == "classifier"
    predicted_M: Tensor = found.classifier.predict(found.features_MD)
    assert torch.equal(predicted_M, trained(found.features_MD).argmax(1))
