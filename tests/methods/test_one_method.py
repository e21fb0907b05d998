"""What is particular to each method: its loss on the embeddings of its own projector, its knobs, its limits."""

import math

import pytest
import torch
import torch.nn.functional as F
from test_every_method import BATCH, NUM_CLASSES, batch, build
from torch import Tensor, nn

from contune.losses import npair_loss, ntxent_loss, supcon_loss, tcl_loss, triplet_loss
from contune.methods import Method
from contune.methods.base import ids_of_views, labels_of_views
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


def test_tcl_without_labels_groups_the_views_of_a_sample() -> None:
    views, labels_B = batch(3)
    method = build("tcl", supervised=False, k1=1.0, k2=1.5)
    assert not method.settings.needs_labels
    expected = tcl_loss(embeddings(method, views), torch.arange(BATCH).repeat(3), k1=1.0, k2=1.5)
    assert method(views, None).loss == method(views, labels_B).loss == expected


def test_tcl_without_labels_is_simclr_at_k1_0_and_k2_1() -> None:
    views, _ = batch(2)
    tcl = build("tcl", supervised=False, k1=0.0, k2=1.0, temperature=0.2, projector_hidden=2048, projector_dim=256)
    simclr = build("simclr")
    simclr.load_state_dict(tcl.state_dict())
    torch.testing.assert_close(tcl(views, None).loss, simclr(views, None).loss, rtol=1e-6, atol=1e-6)


def test_defaults_are_the_papers() -> None:
    heads = {name: build(name).projector for name in ("tcl", "supcon", "simclr")}
    sizes = {
        name: [layer.out_features for layer in head if isinstance(layer, nn.Linear)]
        for name, head in heads.items()
        if isinstance(head, nn.Sequential)
    }
    assert sizes == {"tcl": [256, 128], "supcon": [256, 128], "simclr": [2048, 256]}
    assert {name: build(name).settings.temperature for name in heads} == {"tcl": 0.1, "supcon": 0.1, "simclr": 0.2}  # type: ignore[attr-defined]  # each of the three has one


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


def test_label_smoothing_is_cross_entropys_knob() -> None:
    views, labels_B = batch(1)
    smooth = build("cross-entropy", label_smoothing=0.2)
    assert smooth.classifier is not None
    logits_NK = smooth.classifier(smooth.encoder(views[0]))
    assert smooth(views, labels_B).loss == F.cross_entropy(logits_NK, labels_B, label_smoothing=0.2)


def test_labels_and_ids_of_stacked_views() -> None:
    views = [torch.zeros(3, 1, 2, 2)] * 2
    assert labels_of_views(torch.tensor([5, 6, 5]), views).tolist() == [5, 6, 5, 5, 6, 5]
    assert ids_of_views(views).tolist() == [0, 1, 2, 0, 1, 2]


def test_the_base_leaves_forward_and_pair_loss_to_its_methods() -> None:
    settings = PairwiseMethod.Settings()
    with pytest.raises(AssertionError, match="Method must define forward"):
        Method(nn.Identity(), 4, 2, settings)([torch.zeros(1, 4)], None)
    with pytest.raises(AssertionError, match="PairwiseMethod must define pair_loss"):
        PairwiseMethod(nn.Identity(), 4, 2, settings)([torch.zeros(2, 4)], torch.zeros(2))
