"""The methods that compare whole views: VICReg, Barlow Twins, W-MSE and ARB."""

from collections.abc import Callable
from itertools import combinations

import pytest
import torch
from test_every_method import BATCH, batch, build
from torch import Tensor, nn
from torch.nn.functional import interpolate

from contune.errors import UserError
from contune.losses import arb_loss, barlow_twins_loss, vicreg_loss, wmse_loss
from contune.methods import find_method
from contune.methods.view_pairs import ViewPairMethod
from contune.train.collapse import COLLAPSED_RANK, spread

NAMES = ("vicreg", "barlow-twins", "w-mse", "arb")


def embeddings(method: ViewPairMethod, views: list[Tensor]) -> list[Tensor]:
    z_ND: Tensor = method.projector(method.encoder(torch.cat(views)))
    return list(z_ND.chunk(len(views)))


@pytest.mark.parametrize("num_views", [2, 3, 4])
def test_each_is_the_mean_of_its_loss_over_pairs_of_projected_views(num_views: int) -> None:
    views, _ = batch(num_views)
    cases: list[tuple[str, dict[str, float], Callable[[Tensor, Tensor], Tensor]]] = [
        (
            "vicreg",
            {"invariance": 3.0, "variance": 4.0, "covariance": 0.5, "projector_dim": 16},
            lambda a, b: vicreg_loss(a, b, invariance=3.0, variance=4.0, covariance=0.5),
        ),
        (
            "barlow-twins",
            {"redundancy": 0.03, "loss_scale": 0.5},
            lambda a, b: 0.5 * barlow_twins_loss(a, b, redundancy=0.03),
        ),
        ("w-mse", {"whitening_size": 6}, lambda a, b: wmse_loss(a, b, size=6)),
        ("arb", {"ridge": 0.01, "loss_scale": 0.3}, lambda a, b: 0.3 * arb_loss(a, b, ridge=0.01)),
    ]
    for name, knobs, loss in cases:
        method = build(name, projector_hidden=64, **knobs)
        assert isinstance(method, ViewPairMethod)
        expected = torch.stack([loss(a, b) for a, b in combinations(embeddings(method, views), 2)]).mean()
        torch.testing.assert_close(method(views, None).loss, expected, rtol=1e-6, atol=0.0)


def test_defaults_are_the_reference_recipes() -> None:
    sizes = {}
    for name in NAMES:
        method_class = find_method(name)
        method = method_class(nn.Identity(), 16, 3, method_class.Settings())
        assert isinstance(method, ViewPairMethod)
        linear = [layer for layer in method.projector if isinstance(layer, nn.Linear)]
        sizes[name] = [layer.out_features for layer in linear]
        assert sum(isinstance(layer, nn.BatchNorm1d) for layer in method.projector) == len(linear) - 1
        assert all(layer.bias is None for layer in linear)
    wide = [2048, 2048, 2048]
    assert sizes == {"vicreg": wide, "barlow-twins": wide, "w-mse": [1024, 64], "arb": wide}


@pytest.mark.parametrize("name", NAMES)
def test_a_single_view_is_refused(name: str) -> None:
    views, labels_B = batch(1)
    with pytest.raises(UserError, match=r"compares views of an image with each other and got 1; set augment\.views=2"):
        build(name)(views, labels_B)


@pytest.mark.parametrize("name", NAMES)
def test_views_may_have_different_sizes(name: str) -> None:
    views, _ = batch(3)
    views[1] = interpolate(views[1], 6)
    output = build(name, projector_hidden=64)(views, None)
    assert output.loss.isfinite()
    assert output.features_ND.shape == (3 * BATCH, 256)


@pytest.mark.parametrize("name", NAMES)
def test_features_stay_spread_over_a_few_steps(name: str) -> None:
    method = build(name, projector_hidden=64, projector_dim=8)
    optimizer = torch.optim.SGD(method.parameters(), lr=0.005)
    views, _ = batch()
    for _ in range(20):
        output = method(views, None)
        optimizer.zero_grad()
        output.loss.backward()
        optimizer.step()
    assert output.loss.isfinite()
    assert spread(output.features_ND, 2)["effective_rank"] > COLLAPSED_RANK


@pytest.mark.parametrize("name", NAMES)
def test_autocast_leaves_the_loss_in_float32(name: str) -> None:
    views, _ = batch()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = build(name)(views, None).loss
    assert loss.dtype == torch.float32
    assert loss.isfinite()


def test_too_small_a_batch_for_w_mse_is_a_sentence_with_the_settings() -> None:
    views, _ = batch()
    with pytest.raises(UserError, match=rf"{BATCH} embeddings of size 12 cannot be whitened.*optim\.batch_images"):
        build("w-mse", projector_dim=12)(views, None)


def test_the_base_leaves_view_loss_to_its_methods() -> None:
    settings = ViewPairMethod.Settings(projector_hidden=3, projector_dim=2)
    with pytest.raises(AssertionError, match="ViewPairMethod must define view_loss"):
        ViewPairMethod(nn.Identity(), 4, 2, settings)([torch.zeros(2, 4)] * 2, None)
