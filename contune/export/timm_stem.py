"""The small-image stem of a ResNet in the parts that timm has by argument.

Our stem is a 3×3 convolution of stride 1 without pooling. timm's ResNet can have no such thing, but with
`replace_stem_pool` it has

    7×7 convolution, stride 2 → batch-norm → ReLU → 3×3 convolution, stride 2 → batch-norm → ReLU

which is the same function of an image that was enlarged four times, every pixel a block of 4×4. In one dimension,
with q = 2o and q = 2o + 1 the positions after the first convolution and o those after the second:

    the first one copies pixels: `here` reads at 2q, which is pixel o for both q; `next` at 2q + 2, which for
    q = 2o + 1 is pixel o + 1; each twice, as x and as -x, of which the ReLU leaves the positive parts, x = x⁺ - x⁻
    the second one at o sees q = 2o - 1, 2o, 2o + 1 and takes from them `here`, `here`, `next`: pixels o - 1, o, o + 1

so it can be our convolution, followed by our batch-norm. Beyond the border both read zeros, as ours does.
Shapes: C channels of the image, K = 64 of the stem.
"""

import torch
from torch import Tensor

ENLARGED = 4
READS = (0, 2)
"""Where `here` and `next` read, from the middle of the 7×7 kernel."""
TAKES = (0, 0, 1)
"""Which of the two each tap of the 3×3 kernel takes."""
EPS = 1e-5
"""Of timm's batch-norm."""


def stem_in_timms_parts(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a ResNet whose stem is ours, as those of one whose stem is timm's with `replace_stem_pool`."""
    ours_KC33 = weights["conv1.weight"]
    result = dict(weights)
    result["conv1.weight"], result["maxpool.0.weight"] = _copy_then_convolve(ours_KC33)
    for name in [name for name in weights if name.startswith("bn1.")]:
        result[name.replace("bn1.", "maxpool.1.")] = weights[name]
        result[name] = weights[name].clone()
    result |= _no_norm(ours_KC33.shape[0])
    return result


def _copy_then_convolve(ours_KC33: Tensor) -> tuple[Tensor, Tensor]:
    K, C = ours_KC33.shape[:2]
    copy_KC77, convolve_KK33 = torch.zeros(K, C, 7, 7), torch.zeros(K, K, 3, 3)
    copies = [(down, right, sign, c) for down in (0, 1) for right in (0, 1) for sign in (1, -1) for c in range(C)]
    assert len(copies) <= K, (len(copies), K)
    for k, (down, right, sign, c) in enumerate(copies):
        copy_KC77[k, c, 3 + READS[down], 3 + READS[right]] = sign
        for y in range(3):
            for x in range(3):
                if (TAKES[y], TAKES[x]) == (down, right):
                    convolve_KK33[:, k, y, x] = sign * ours_KC33[:, c, y, x]
    return copy_KC77, convolve_KK33


def _no_norm(num: int) -> dict[str, Tensor]:
    """A batch-norm that leaves things as they are: its variance and epsilon make 1."""
    return {
        "bn1.weight": torch.ones(num),
        "bn1.bias": torch.zeros(num),
        "bn1.running_mean": torch.zeros(num),
        "bn1.running_var": torch.full((num,), 1 - EPS),
    }
