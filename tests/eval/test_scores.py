"""Accuracies by hand."""

import pytest
import torch

from contune.eval.scores import confusion, measure

SCORES = torch.tensor(
    [
        [9.0, 0, 0, 0, 0, 0, 0],
        [0, 9.0, 8, 7, 6, 5, 4],
        [9.0, 8, 7, 6, 5, 4, 3],
        [9.0, 8, 7, 6, 5, 4, 3],
    ]
)
LABELS = torch.tensor([0, 1, 4, 5])
NAMES = tuple("abcdefg")


def test_top1_top5_and_per_class_by_hand() -> None:
    found = measure("knn", SCORES, LABELS, NAMES, protocol="by hand", split="val")
    assert found.top1 == 50.0
    assert found.top5 == 75.0, "the fifth place still counts, the sixth does not"
    assert found.per_class == {"a": 100.0, "b": 100.0, "e": 0.0, "f": 0.0}
    assert (found.name, found.protocol, found.split, found.num_images) == ("knn", "by hand", "val", 4)


def test_per_class_is_a_mean_within_the_class() -> None:
    labels_N = torch.tensor([0, 0, 0, 2])
    found = measure("knn", SCORES, labels_N, NAMES, protocol="", split="test")
    assert found.per_class == pytest.approx({"a": 200 / 3, "c": 0.0})
    assert found.top1 == 50.0


def test_top5_of_five_classes_or_fewer_says_nothing() -> None:
    few = measure("knn", SCORES[:3, :5], LABELS[:3], NAMES[:5], protocol="", split="test")
    assert few.top5 is None
    assert few.to_dict()["top5"] is None


def test_confusion_rows_are_true_classes() -> None:
    labels_N = torch.tensor([0, 0, 1, 2, 2, 2])
    predicted_N = torch.tensor([0, 1, 1, 0, 2, 2])
    assert confusion(predicted_N, labels_N, 3).tolist() == [[1, 1, 0], [0, 1, 0], [1, 0, 2]]
