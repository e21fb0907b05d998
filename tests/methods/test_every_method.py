"""The contract that every method in METHODS keeps."""

import pytest
import torch
from small_heads import small_heads
from torch import Tensor, nn
from torch.nn.functional import interpolate

from contune.errors import UserError
from contune.methods import METHODS, find_method
from contune.methods.base import Method
from contune.training.monitors import COLLAPSED_RANK, spread

NUM_CLASSES, BATCH, SIZE = 3, 12, 8
LEARNS_FROM_LABELS = [name for name in METHODS if find_method(name).Settings().needs_labels]
SMALL: dict[str, dict[str, object]] = {name: {"projector_dim": 4} for name in ("barlow-twins", "w-mse", "arb")}
"""For a loss on the covariance of a batch of 12."""
COPIES = {"byol": "target", "moco-v2": "key_networks", "ressl": "teacher", "dino": "teacher"}
"""The momentum copy of each method that has one."""


def build(name: str, **knobs: object) -> Method:
    """With a small encoder without batch-norm; training runs have real ones."""
    torch.manual_seed(0)
    encoder = nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1),
        nn.GroupNorm(4, 16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 256),
        nn.ReLU(),
    )
    method_class = find_method(name)
    settings = small_heads(name) | SMALL.get(name, {}) | knobs
    return method_class(encoder, 256, NUM_CLASSES, method_class.Settings(**settings))


def batch(num_views: int = 2) -> tuple[list[Tensor], Tensor]:
    """Views that show their class: noise around one pattern per class."""
    generator = torch.Generator().manual_seed(1)
    labels_B = torch.arange(BATCH) % NUM_CLASSES
    patterns_K1HW = torch.randn(NUM_CLASSES, 1, SIZE, SIZE, generator=generator)
    views = [patterns_K1HW[labels_B] + torch.randn(BATCH, 1, SIZE, SIZE, generator=generator) for _ in range(num_views)]
    return views, labels_B


def step(method: Method, optimizer: torch.optim.Optimizer, views: list[Tensor], *, moves_on: bool = True) -> float:
    output = method(views, batch()[1])
    optimizer.zero_grad()
    output.loss.backward()
    optimizer.step()
    if moves_on:
        method.after_step(output)
    loss: float = output.loss.item()
    return loss


def trained(method: Method) -> list[nn.Parameter]:
    return [parameter for parameter in method.parameters() if parameter.requires_grad]


@pytest.fixture(params=METHODS)
def name(request: pytest.FixtureRequest) -> str:
    text: str = request.param
    return text


def test_a_few_steps_lower_the_loss_and_keep_features_apart(name: str) -> None:
    # DINO's center and a queue change what is predicted unless they stand still.
    method = build(name, **({"centre_momentum": 1.0} if name == "dino" else {}))
    moves_on = name not in ("moco-v2", "ressl")
    optimizer = torch.optim.SGD(trained(method), lr=0.01)
    losses = [step(method, optimizer, batch()[0], moves_on=moves_on) for _ in range(12)]
    assert losses[-1] < losses[0]
    assert spread(method(*batch()).features_ND, 2)["effective_rank"] > COLLAPSED_RANK


def test_the_gradient_reaches_all_trained_parameters_and_no_other(name: str) -> None:
    method = build(name)
    method(*batch()).loss.backward()
    reached = {path for path, p in method.named_parameters() if p.grad is not None and p.grad.any()}
    assert reached == {path for path, p in method.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("num_views", [1, 2, 3])
def test_output_of_any_number_of_views(name: str, num_views: int) -> None:
    method = build(name).eval()
    views, labels_B = batch(num_views)
    if (name, num_views) == ("simclr", 1):
        pytest.skip("warns that there are no positives")
    if num_views == 1 and name not in LEARNS_FROM_LABELS:
        with pytest.raises(UserError, match="views"):
            method(views, labels_B)
        return
    output = method(views, labels_B)
    assert (output.loss.shape, output.loss.requires_grad) == ((), True)
    assert output.features_ND.shape == (num_views * BATCH, 256)
    assert not output.features_ND.requires_grad
    assert all(value.shape == () and not value.requires_grad for value in output.metrics.values())
    assert all(not value.requires_grad for value in output.state.values())
    torch.testing.assert_close(output.features_ND[:BATCH], method.encoder(views[0]), rtol=1e-4, atol=1e-5)


def test_views_may_have_different_sizes(name: str) -> None:
    views, labels_B = batch(3)
    output = build(name)([*views[:2], interpolate(views[2], 6)], labels_B)
    output.loss.backward()
    assert output.loss.isfinite()
    assert output.features_ND.shape == (3 * BATCH, 256)


def test_the_order_of_the_batch_does_not_matter(name: str) -> None:
    method = build(name)
    views, labels_B = batch()
    order_B = torch.randperm(BATCH, generator=torch.Generator().manual_seed(2))
    shuffled = method([view[order_B] for view in views], labels_B[order_B]).loss
    torch.testing.assert_close(shuffled, method(views, labels_B).loss, rtol=1e-5, atol=1e-6)


def test_labels_matter_only_if_the_method_needs_them(name: str) -> None:
    method = build(name)
    views, labels_B = batch()
    assert method.settings.needs_labels == (name in LEARNS_FROM_LABELS)
    if name in LEARNS_FROM_LABELS:
        assert method(views, labels_B.sort().values).loss != method(views, labels_B).loss
        with pytest.raises(UserError, match="labels"):
            method(views, None)
    else:
        assert method(views, None).loss == method(views, labels_B).loss


def test_the_loss_is_float32_under_autocast(name: str) -> None:
    method = build(name)
    views, labels_B = batch()
    with torch.autocast("cpu", torch.bfloat16):
        output = method(views, labels_B)
    assert output.loss.dtype == torch.float32
    torch.testing.assert_close(output.loss, method(views, labels_B).loss, rtol=0.05, atol=0.05)


def test_a_saved_method_resumes_exactly(name: str) -> None:
    """While queues fill and prototypes are frozen, and after."""
    losses = []
    for interrupted in (False, True):
        method = build(name)
        for number in range(4):
            if interrupted and number == 2:
                state = method.state_dict()
                method = build(name)
                with torch.no_grad():
                    for parameter in method.parameters():
                        parameter.zero_()
                method.load_state_dict(state)
            method.set_time(number / 2, 2)
            losses.append(step(method, torch.optim.SGD(trained(method), lr=0.01), batch()[0]))
    assert losses[:4] == losses[4:]


@pytest.mark.parametrize(("share", "momentum"), [(0.0, 0.9), (0.5, 0.95), (1.0, 1.0)])
@pytest.mark.parametrize("method_name", COPIES)
def test_momentum_copies_follow_on_a_cosine(method_name: str, share: float, momentum: float) -> None:
    method = build(method_name, momentum=0.9, last_momentum=1.0)
    method.set_time(10 * share, 10)
    output = method(*batch())
    copy = getattr(method, COPIES[method_name])
    parts = [method.encoder, method.projector, *([method.prototypes] if method_name == "dino" else [])]
    leaders = [parameter for part in parts for parameter in part.parameters()]  # type: ignore[union-attr]
    with torch.no_grad():
        for parameter in leaders[:-1]:  # DINO's prototypes, the last, are frozen in the first epoch
            parameter.add_(torch.randn_like(parameter))
    before = [parameter.clone() for parameter in copy.parameters()]
    method.after_step(output)
    for old, leader, new in zip(before, leaders, copy.parameters(), strict=True):
        torch.testing.assert_close(new, momentum * old + (1 - momentum) * leader.detach(), rtol=1e-5, atol=1e-6)
