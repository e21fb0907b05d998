"""What the methods that predict one view of an image from another have in common."""

import pytest
import torch
from small_heads import small_heads
from test_every_method import BATCH, batch, build
from torch.nn.functional import interpolate

from contune.errors import UserError
from contune.methods import Method
from contune.train.collapse import COLLAPSED_RANK, spread
from contune.train.optim import build_optimizer


@pytest.fixture(params=["byol", "simsiam", "moco-v2", "ressl"])
def method(request: pytest.FixtureRequest) -> Method:
    return build(request.param, **small_heads(request.param))


def test_a_single_view_is_refused(method: Method) -> None:
    views, _ = batch(1)
    with pytest.raises(UserError, match=r"compares views of an image .* got 1; set augment\.views=2 or more"):
        method(views, None)


def test_views_may_have_different_sizes(method: Method) -> None:
    views, _ = batch(3)
    views[1] = interpolate(views[1], 6)
    output = method(views, None)
    output.loss.backward()
    assert output.loss.isfinite()
    assert output.features_ND.shape == (3 * BATCH, 256)


def test_the_first_steps_keep_features_apart(method: Method) -> None:
    """With new noise at every step, as augmentation gives it."""
    optimizer = build_optimizer(method, "sgd", lr=0.05, momentum=0.9, weight_decay=1e-4)
    images, _ = batch(1)
    generator = torch.Generator().manual_seed(5)
    for step in range(15):
        method.set_time(step / 4, 10)
        views = [images[0] + 0.3 * torch.randn(images[0].shape, generator=generator) for _ in range(2)]
        output = method(views, None)
        optimizer.zero_grad()
        output.loss.backward()
        optimizer.step()
        method.after_step(output)
    assert spread(output.features_ND, 2)["effective_rank"] > COLLAPSED_RANK


def test_the_loss_is_float32_under_autocast(method: Method) -> None:
    views, _ = batch()
    with torch.autocast("cpu", torch.bfloat16):
        output = method(views, None)
    assert output.loss.dtype == torch.float32
    torch.testing.assert_close(output.loss, method(views, None).loss, rtol=0.05, atol=0.02)
