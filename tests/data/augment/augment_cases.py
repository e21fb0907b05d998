"""Images and magnitudes that the tests of augmentation share."""

import torch
from torch import Tensor

from contune.data.augment.autoaugment import Op

MEAN, STD = (0.49, 0.48, 0.44), (0.2, 0.19, 0.21)
MAGNITUDES = {key: [-0.9, -0.35, 0.2, 0.9] for key in Op}
MAGNITUDES |= {key: [-0.3, -0.11, 0.07, 0.29] for key in (Op.SHEAR_X, Op.SHEAR_Y)}
MAGNITUDES |= {key: [-9.0, -1.0, 2.0, 5.0] for key in (Op.TRANSLATE_X, Op.TRANSLATE_Y)}
# Not 30 degrees, where the sine is a half and so many coordinates of images with an odd side are ties.
MAGNITUDES |= {Op.ROTATE: [-27.0, -6.7, 3.3, 29.0], Op.POSTERIZE: [4.0, 5.0, 7.0, 8.0]}
MAGNITUDES[Op.SOLARIZE] = [0.0, 28.3, 128.0, 255.0]


def random_images(num: int, channels: int, height: int, width: int) -> Tensor:
    generator = torch.Generator().manual_seed(height * width + channels)
    return torch.randint(0, 256, (num, channels, height, width), generator=generator, dtype=torch.uint8)


def smooth_images(num: int, channels: int, height: int, width: int, seed: int = 7) -> Tensor:
    """Smooth color blobs with a little noise, every fourth image with few levels."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(num, channels, 4, 4, generator=generator) * 300 - 20
    smooth = torch.nn.functional.interpolate(coarse, size=(height, width), mode="bicubic")
    images = (smooth + 6 * torch.randn(smooth.shape, generator=generator)).clamp(0, 255)
    images[3::4] = images[3::4].div(90).floor().mul(50)
    return images.to(torch.uint8)
