"""The stem, memory and time."""

import pytest
from examined import advice, findings

from contune.doctor import network
from contune.methods import Method
from contune.train.setup import Setup


def test_little_memory_and_long_runs_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "free_bytes", lambda device: 2**20)
    monkeypatch.setattr(network, "_seconds_per_view", lambda setup, method, num: 3600 / (128 * 14 * 20))
    found = [f"{finding.mark} {finding.text}" for finding in findings()]
    assert any(line.startswith("! memory: ") and line.endswith("lower optim.batch_images") for line in found)
    assert "✓ time: about 1.0 h for 280 steps, going by a trial of 128 images" in found


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("model.stem=imagenet",), "model.stem=imagenet shrinks 8-pixel images fourfold at once"),
        (("model.stem=cifar", "data.image_size=72"), "model.stem=cifar keeps 72-pixel maps at full size"),
    ],
)
def test_a_stem_for_images_of_another_size(overrides: tuple[str, ...], words: str) -> None:
    assert words in advice(*overrides)
    assert words not in advice()


def test_the_trial_is_a_batch_or_what_a_cpu_does_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def seconds(setup: Setup, method: Method, num: int) -> float:
        sizes.append(num)
        return 0.0

    monkeypatch.setattr(network, "_seconds_per_view", seconds)
    for overrides in (("optim.batch_images=8",), ("optim.batch_images=50",), ("data.image_size=32",)):
        findings(*overrides)
    assert sizes == [16, 100, 38]


def test_only_resnets_have_a_stem_to_choose() -> None:
    vit = ("model.encoder=vit_tiny_patch16_224", "data.image_size=32", "model.stem=imagenet")
    assert "model.stem" not in advice(*vit)
