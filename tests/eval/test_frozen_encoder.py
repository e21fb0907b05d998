"""Features and the paper's linear probe: an encoder that is measured does not change."""

from collections.abc import Sequence
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn

from contune.data import ImageSet, TensorImages
from contune.data.augment import Augmenter, build_policy
from contune.data.loader import ResidentLoader, StreamLoader
from contune.eval import features
from contune.eval.features import extract_features
from contune.eval.frozen import cast_once, untuned_convolutions
from contune.eval.linear import linear_protocol, train_linear
from contune.models import EncoderSpec

SPEC = EncoderSpec(
    encoder="resnet-mini", stem="auto", norm="batch", image_size=8, channels=1, mean=(0.5,), std=(0.25,)
)  # fmt: skip


def encoder() -> nn.Module:
    torch.manual_seed(0)
    return SPEC.build()


def bright_or_dark(num: int = 60) -> tuple[Tensor, Tensor]:
    """Two classes that any encoder separates: dark images and bright ones."""
    noise_N1HW = torch.randint(0, 80, (num, 1, 8, 8), generator=torch.Generator().manual_seed(1))
    labels_N = torch.arange(num) % 2
    return (noise_N1HW + 170 * labels_N[:, None, None, None]).to(torch.uint8), labels_N


def state(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def assert_unchanged(module: nn.Module, before: dict[str, Tensor]) -> None:
    """Parameters and batch-norm buffers, num_batches_tracked among them."""
    assert any("running_mean" in name for name in before)
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())


def probe(backbone: nn.Module, seed: int = 0, policies: Sequence[str] = ("crop-flip",)) -> nn.Linear:
    augmenter = Augmenter([build_policy(name, image_size=8, channels=1) for name in policies], SPEC.mean, SPEC.std)
    return train_linear(
        backbone, ResidentLoader(*bright_or_dark()), augmenter, 256, 2, epochs=3, lr=0.05, batch=16, seed=seed
    )


def test_features_are_in_order_and_of_each_image_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    backbone, (images, labels_N) = encoder(), bright_or_dark()
    loader = ResidentLoader(images, labels_N)
    monkeypatch.setattr(features, "EVAL_BATCH", 7)
    done: list[int] = []
    before = state(backbone)
    found = extract_features(backbone.train(), loader, SPEC, advance=lambda count, text: done.append(count))
    assert_unchanged(backbone, before)
    assert not backbone.training
    assert found.dtype == torch.float32
    assert not found.requires_grad
    assert done == [*range(7, 60, 7), 60]
    with torch.no_grad():
        one_by_one = torch.cat([backbone((image[None].float() / 255 - 0.5) / 0.25) for image in images])
    torch.testing.assert_close(found, one_by_one, rtol=1e-4, atol=1e-5)


def test_features_of_streamed_images_are_the_same() -> None:
    images, labels_N = bright_or_dark()
    image_set = ImageSet(images=TensorImages(images), labels=labels_N, names=[str(n) for n in range(len(images))])
    streamed = StreamLoader(image_set, size=8, channels=1, device=torch.device("cpu"), workers=0)
    backbone = encoder()
    assert torch.equal(
        extract_features(backbone, streamed, SPEC), extract_features(backbone, ResidentLoader(images, labels_N), SPEC)
    )


def test_the_probe_learns_and_the_encoder_stays_as_it_was() -> None:
    backbone, (images, labels_N) = encoder(), bright_or_dark()
    before = state(backbone.train())
    classifier = probe(backbone)
    assert_unchanged(backbone, before)
    assert all(parameter.grad is None for parameter in backbone.parameters())
    scores_NK = classifier(extract_features(backbone, ResidentLoader(images, labels_N), SPEC))
    assert torch.equal(scores_NK.argmax(1), labels_N)


def test_an_encoder_cast_once_has_the_features_of_one_cast_for_every_batch() -> None:
    backbone = EncoderSpec(
        encoder="resnet18", stem="auto", norm="batch", image_size=32, channels=3, mean=(0.5,) * 3, std=(0.25,) * 3
    ).build().eval()  # fmt: skip
    x_BCHW = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))

    def autocast() -> torch.autocast:
        return torch.autocast("cpu", dtype=torch.bfloat16)

    copy = cast_once(backbone, autocast)
    assert {p.dtype for p in copy.parameters()} == {torch.bfloat16, torch.float32}, "batch-norm stays as it was"
    with torch.no_grad(), autocast():
        assert torch.equal(copy(x_BCHW), backbone(x_BCHW))
    assert {p.dtype for p in backbone.parameters()} == {torch.float32}


def test_without_autocast_there_is_nothing_to_cast() -> None:
    backbone = encoder()
    assert cast_once(backbone, nullcontext) is backbone


@pytest.mark.parametrize("tuned", [False, True])
def test_convolutions_are_tuned_as_before_after_a_pass_without(tuned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", tuned)
    with untuned_convolutions():
        assert not torch.backends.cudnn.benchmark
    assert torch.backends.cudnn.benchmark == tuned


def test_the_probe_depends_on_its_seed_alone() -> None:
    backbone = encoder()
    first = probe(backbone)
    torch.manual_seed(12345)
    again, other = probe(backbone), probe(backbone, seed=1)
    assert torch.equal(first.weight, again.weight)
    assert not torch.equal(first.weight, other.weight)


def test_the_probes_protocol_has_its_values() -> None:
    text = linear_protocol(epochs=50, lr=0.5, batch=256, policy="autoaugment")
    for part in ("50 epochs", "lr 0.5", "batch 256", "augmented by autoaugment", "frozen"):
        assert part in text
