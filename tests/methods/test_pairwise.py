"""The methods with a pair loss, and cross-entropy: each is its loss on its own projector's embeddings."""

import math

import pytest
import torch
import torch.nn.functional as F
from test_every_method import BATCH, NUM_CLASSES, batch, build
from torch import Tensor, nn

from contune.errors import UserError
from contune.losses import npair_loss, ntxent_loss, supcon_loss, tcl_loss, triplet_loss
from contune.methods.base import Method, row_weights
from contune.methods.pairwise import PairwiseMethod


def embeddings(method: Method, views: list[Tensor]) -> Tensor:
    assert isinstance(method, PairwiseMethod)
    z_ND: Tensor = method.projector(method.encoder(torch.cat(views)))
    return z_ND


def test_each_pairwise_method_is_its_loss_on_projected_views() -> None:
    views, labels_B = batch(3)
    labels_N, ids_N = labels_B.repeat(3), torch.arange(BATCH).repeat(3)
    for name, knobs, groups_N, loss in (
        ("tcl", {"k1": 30.0, "k2": 1.5, "temperature": 0.3}, labels_N, tcl_loss),
        ("supcon", {"variant": "in", "temperature": 0.3}, labels_N, supcon_loss),
        ("simclr", {"temperature": 0.4}, ids_N, ntxent_loss),
        ("triplet", {"margin": 0.5}, labels_N, triplet_loss),
        ("npair", {"temperature": 0.3}, labels_N, npair_loss),
    ):
        method = build(name, **knobs)
        assert method(views, labels_B).loss == loss(embeddings(method, views), groups_N, **knobs), name
    method = build("tcl", supervised=False, k1=1.0, k2=1.5)
    expected = tcl_loss(embeddings(method, views), ids_N, k1=1.0, k2=1.5)
    assert method(views, None).loss == method(views, labels_B).loss == expected, "by image, without labels"


def test_a_linear_projector_and_an_added_classifier() -> None:
    views, labels_B = batch(2)
    method = build("tcl", projector_hidden=0, cross_entropy=0.5, k1=3.0, k2=1.0)
    assert isinstance(method, PairwiseMethod)
    assert len(method.projector) == 1
    assert isinstance(method.classifier, nn.Linear)
    labels_N, logits_NK = labels_B.repeat(2), method.classifier(method.encoder(torch.cat(views)))
    expected = tcl_loss(embeddings(method, views), labels_N, k1=3.0, k2=1.0) + 0.5 * F.cross_entropy(
        logits_NK, labels_N
    )
    output = method(views, labels_B)
    torch.testing.assert_close(output.loss, expected)
    assert 0 <= output.metrics["train_top1"] <= 1
    with pytest.raises(UserError, match="needs labels"):
        build("tcl", supervised=False, cross_entropy=0.5)


@pytest.mark.parametrize("name", ["tcl", "supcon", "sincere", "dcl", "triplet", "npair", "cross-entropy"])
def test_weights_give_the_weighted_mean(name: str) -> None:
    """Over the anchors with a positive: the class of a single image has none if there is a single view."""
    views, _ = batch(1)
    labels_B = torch.tensor([0] * 8 + [1] * 3 + [2])
    method = build(name)
    plain = method(views, labels_B).loss
    method.class_weights_K = torch.full((NUM_CLASSES,), 7.0)
    torch.testing.assert_close(method(views, labels_B).loss, plain)
    method.class_weights_K = torch.tensor([1 / 8, 1 / 3, 1.0])
    if isinstance(method, PairwiseMethod):
        each = method.pair_loss(embeddings(method, views), labels_B, "none").tolist()
        expected = (sum(each[:8]) / 8 + sum(each[8:11]) / 3) / (8 / 8 + 3 / 3)
    else:
        assert method.classifier is not None
        each = F.cross_entropy(method.classifier(method.encoder(views[0])), labels_B, reduction="none").tolist()
        expected = (sum(each[:8]) / 8 + sum(each[8:11]) / 3 + each[11]) / 3
    loss = method(views, labels_B).loss
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert abs(loss.item() - plain.item()) > 1e-4
    loss.backward()


@pytest.mark.parametrize("name", ["tcl", "cross-entropy"])
def test_weights_of_mixed_labels_are_their_mean(name: str) -> None:
    views, labels_B = batch(2)
    method = build(name)
    method.class_weights_K = torch.tensor([1.0, 2.0, 4.0])
    plain = method(views, labels_B).loss
    one_hot_BK = F.one_hot(labels_B, NUM_CLASSES).float()
    torch.testing.assert_close(method(views, one_hot_BK).loss, plain)
    weight_B, has_positive_B = row_weights(0.5 * one_hot_BK + 0.5 * one_hot_BK.roll(1, dims=1), method.class_weights_K)
    assert weight_B[:3].tolist() == [1.5, 3.0, 2.5]
    assert has_positive_B.all()


def test_cross_entropy_by_hand() -> None:
    method = build("cross-entropy")
    views, labels_B = batch(2)
    assert isinstance(method.classifier, nn.Linear)
    nn.init.zeros_(method.classifier.weight)
    nn.init.zeros_(method.classifier.bias)
    assert method(views, labels_B).loss.item() == pytest.approx(math.log(NUM_CLASSES))
    with torch.no_grad():
        method.classifier.bias[0] = 1.0
    output = method(views, labels_B)
    assert output.metrics["train_top1"].item() == pytest.approx(1 / NUM_CLASSES)
    assert output.loss.item() == pytest.approx(math.log(math.e + 2) - 1 / 3)
    smooth = build("cross-entropy", label_smoothing=0.2)
    assert smooth.classifier is not None
    logits_NK = smooth.classifier(smooth.encoder(views[0]))
    assert smooth(views[:1], labels_B).loss == F.cross_entropy(logits_NK, labels_B, label_smoothing=0.2)
