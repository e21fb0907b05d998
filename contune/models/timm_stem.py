"""Our ResNets' stem for small images, a 3×3 convolution of stride 1, as a stem that timm can build.

timm's ResNet has none for small images. With `replace_stem_pool` it has

    7×7 convolution, stride 2 → batch-norm → ReLU → 3×3 convolution, stride 2 → batch-norm → ReLU

which can express the same function of an image enlarged four times, every pixel a block of 4×4. In one dimension, with
q = 2o and q = 2o + 1 the positions after the first convolution and o those after the second:

    the first one copies pixels: `here` reads at 2q, which is pixel o for both q; `next` reads at 2q + 2, which for
    q = 2o + 1 is pixel o + 1; each twice, as x and as -x, of which the ReLU keeps the positive parts, x = x⁺ - x⁻
    the second one at o sees q = 2o - 1, 2o, 2o + 1 and takes from them `here`, `here`, `next`: pixels o - 1, o, o + 1

So the second convolution can be our stem, followed by our batch-norm. Beyond the border both read zeros, as ours does.
Shapes: C channels of the image, K = 64 of the stem.
"""

from itertools import product

import torch
from torch import Tensor

ENLARGED = 4
READS, TAKES = (0, 2), (0, 0, 1)
"""Where `here` and `next` read, relative to the middle of the 7×7 kernel; which one each tap of the 3×3 takes."""


def stem_for_timm(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a ResNet with our small stem, for timm's with `replace_stem_pool`. K holds 8 copies of C ≤ 8."""
    ours_KC33 = weights["conv1.weight"]
    K, C = ours_KC33.shape[:2]
    copy_KC77, convolve_KK33 = torch.zeros(K, C, 7, 7), torch.zeros(K, K, 3, 3)
    for k, (down, right, sign, c) in enumerate(product((0, 1), (0, 1), (1, -1), range(C))):
        copy_KC77[k, c, 3 + READS[down], 3 + READS[right]] = sign
        for y, x in product(range(3), range(3)):
            if (TAKES[y], TAKES[x]) == (down, right):
                convolve_KK33[:, k, y, x] = sign * ours_KC33[:, c, y, x]
    our_norm = {name.replace("bn1.", "maxpool.1."): weights[name] for name in weights if name.startswith("bn1.")}
    # A batch-norm that changes nothing: its variance and timm's epsilon add up to 1.
    one_K, zero_K = torch.ones(K), torch.zeros(K)
    identity = {"bn1.weight": one_K, "bn1.bias": zero_K, "bn1.running_mean": zero_K, "bn1.running_var": one_K - 1e-5}
    return {**weights, "conv1.weight": copy_KC77, "maxpool.0.weight": convolve_KK33, **our_norm, **identity}


def stem_from_timm(weights: dict[str, Tensor], channels: int) -> dict[str, Tensor]:
    """The inverse of `stem_for_timm`."""
    theirs_KK33 = weights["maxpool.0.weight"]
    ours_KC33 = torch.empty(len(theirs_KK33), channels, 3, 3)
    for y, x in product(range(3), range(3)):
        first = (2 * TAKES[y] + TAKES[x]) * 2 * channels  # the copy with a positive sign
        ours_KC33[:, :, y, x] = theirs_KK33[:, first : first + channels, y, x]
    kept = {name: x for name, x in weights.items() if not name.startswith(("bn1.", "maxpool.0."))}
    return {**{name.replace("maxpool.1.", "bn1."): x for name, x in kept.items()}, "conv1.weight": ours_KC33}
