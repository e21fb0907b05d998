"""What holds for all of METHODS."""

from dataclasses import fields

import pytest
import torch
from torch import Tensor

from contune.errors import UserError
from contune.methods import METHODS, Method, Output, find_method
from contune.models import build_encoder

NUM_CLASSES, BATCH, SIZE = 3, 12, 8
WITHOUT_LABELS = {"simclr", "byol", "simsiam", "moco-v2", "ressl", "dino", "swav"}
WITHOUT_LABELS |= {"vicreg", "barlow-twins", "w-mse", "arb"}
SMALL = {name: {"projector_hidden": 64, "projector_dim": 4} for name in ("barlow-twins", "w-mse", "arb")}
"""Heads for a batch of 12, where the loss is of its covariance."""
SMALL["swav"] = {"queue_size": 48, "num_prototypes": 300}  # a CPU takes a second a step for the whole of it
FIXED_TARGETS: dict[str, dict[str, float]] = {"dino": {"centre_momentum": 1.0}}
"""Knobs with which the loss of a few steps on one batch has to fall: a centre that moves changes what is predicted."""


def build(name: str, **knobs: object) -> Method:
    torch.manual_seed(0)
    encoder = build_encoder("resnet-mini", channels=1, image_size=SIZE, norm="group")
    method_class = find_method(name)
    return method_class(encoder, 256, NUM_CLASSES, method_class.Settings(**(SMALL.get(name, {}) | knobs)))


def batch(num_views: int = 2) -> tuple[list[Tensor], Tensor]:
    """Views that show their class: noise around one pattern a class."""
    generator = torch.Generator().manual_seed(1)
    labels_B = torch.arange(BATCH) % NUM_CLASSES
    patterns_K1HW = torch.randn(NUM_CLASSES, 1, SIZE, SIZE, generator=generator)
    views = [patterns_K1HW[labels_B] + torch.randn(BATCH, 1, SIZE, SIZE, generator=generator) for _ in range(num_views)]
    return views, labels_B


@pytest.fixture(params=METHODS)
def name(request: pytest.FixtureRequest) -> str:
    text: str = request.param
    return text


def test_a_few_steps_lower_the_loss(name: str) -> None:
    method = build(name, **FIXED_TARGETS.get(name, {}))
    optimizer = torch.optim.SGD(method.parameters(), lr=0.02)
    views, labels_B = batch()
    losses = []
    for _ in range(6):
        output: Output = method(views, labels_B)
        losses.append(output.loss.item())
        optimizer.zero_grad()
        output.loss.backward()
        optimizer.step()
        method.after_step(output)
    assert losses[-1] < losses[0]


def test_the_gradient_reaches_every_parameter(name: str) -> None:
    method = build(name)
    method(*batch()).loss.backward()
    reached = {path for path, p in method.named_parameters() if p.grad is not None and p.grad.any()}
    assert reached == {path for path, p in method.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("num_views", [1, 2, 3])
def test_output_of_any_number_of_views(name: str, num_views: int) -> None:
    if name in WITHOUT_LABELS and num_views == 1:
        pytest.skip("one view alone has no positive")
    method = build(name).eval()
    views, labels_B = batch(num_views)
    output = method(views, labels_B)
    assert output.loss.shape == ()
    assert output.loss.isfinite()
    assert output.loss.requires_grad
    assert output.features_ND.shape == (num_views * BATCH, 256)
    assert not output.features_ND.requires_grad
    assert all(value.shape == () and not value.requires_grad for value in output.metrics.values())
    torch.testing.assert_close(output.features_ND[:BATCH], method.encoder(views[0]), rtol=1e-4, atol=1e-5)


def test_the_order_of_the_batch_does_not_matter(name: str) -> None:
    method = build(name)
    views, labels_B = batch()
    order_B = torch.randperm(BATCH, generator=torch.Generator().manual_seed(2))
    shuffled = method([view[order_B] for view in views], labels_B[order_B]).loss
    torch.testing.assert_close(shuffled, method(views, labels_B).loss, rtol=1e-5, atol=1e-6)


def test_labels_matter_where_they_are_needed_and_only_there(name: str) -> None:
    method = build(name)
    views, labels_B = batch()
    assert method.settings.needs_labels == (name not in WITHOUT_LABELS)
    if name in WITHOUT_LABELS:
        assert method(views, None).loss == method(views, labels_B).loss
    else:
        assert method(views, labels_B.sort().values).loss != method(views, labels_B).loss
        with pytest.raises(UserError, match="this method learns from labels and the batch has none"):
            method(views, None)


def test_only_cross_entropy_trains_a_classifier(name: str) -> None:
    classifier = build(name).classifier
    assert (classifier is not None) == (name == "cross-entropy")
    if classifier is not None:
        assert classifier(torch.zeros(2, 256)).shape == (2, NUM_CLASSES)


def test_settings_are_the_methods_own_and_have_defaults(name: str) -> None:
    settings = find_method(name).Settings()
    pairwise = {"projector_hidden", "projector_dim"}
    follower = {"momentum", "last_momentum"}
    knobs = {
        "tcl": {"temperature", "k1", "k2", "supervised"} | pairwise,
        "supcon": {"temperature", "variant"} | pairwise,
        "simclr": {"temperature"} | pairwise,
        "cross-entropy": {"label_smoothing"},
        "triplet": {"margin"} | pairwise,
        "npair": {"temperature"} | pairwise,
        "byol": {"predictor_hidden"} | pairwise | follower,
        "simsiam": {"predictor_hidden"} | pairwise,
        "moco-v2": {"temperature", "queue_size"} | pairwise | follower,
        "ressl": {"temperature", "teacher_temperature", "queue_size"} | pairwise | follower,
        "dino": {"temperature", "centre_momentum", "frozen_epochs", "num_prototypes", "global_views"}
        | {"teacher_temperature", "first_teacher_temperature", "teacher_warmup_epochs"}
        | pairwise
        | follower,
        "swav": {"temperature", "epsilon", "sinkhorn_iterations", "queue_size", "queue_epoch", "frozen_epochs"}
        | {"num_prototypes", "global_views"}
        | pairwise,
        "vicreg": {"invariance", "variance", "covariance"} | pairwise,
        "barlow-twins": {"redundancy", "loss_scale"} | pairwise,
        "w-mse": {"whitening_size"} | pairwise,
        "arb": {"ridge", "loss_scale"} | pairwise,
    }
    assert {field.name for field in fields(settings)} == knobs[name]


def test_an_unknown_method_names_the_nearest() -> None:
    with pytest.raises(UserError, match="unknown method 'simcrl'; did you mean simclr"):
        find_method("simcrl")
