"""Resizing for an ONNX graph against PyTorch's own, level by level."""

import pytest
import torch
from encoders import real_images

from contune.data.augment import resize
from contune.export.resize_graph import axis_weights, squash


@pytest.mark.parametrize("side", [8, 24, 36, 71, 72, 73, 100, 144, 213, 288, 500])
def test_every_level_is_the_one_that_the_encoder_sees(side: int) -> None:
    images_NCHW = real_images(side, 3)[..., : side // 2 + 3]
    found_NCHW, expected_NCHW = squash(images_NCHW.float(), 72), resize(images_NCHW, 72).float()
    assert (found_NCHW - expected_NCHW).abs().max() <= 1
    assert (found_NCHW != expected_NCHW).float().mean() < 1e-4


def test_the_weights_of_a_size_that_stays_are_the_identity() -> None:
    assert torch.equal(axis_weights(33, 33), torch.eye(33))
    torch.testing.assert_close(axis_weights(50, 7).sum(dim=1), torch.ones(7))
