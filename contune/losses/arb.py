"""Each dimension of a view aligned with an orthonormal base near the other view: ARB.

Shapes: B samples, row by row the same in both views; D embedding size; L the larger of the two and S the smaller;
2 where both views are one tensor.
"""

import math
from functools import reduce

import torch
from torch import Tensor

from contune.losses.checks import check_positive
from contune.losses.redundancy import standardized_views

LARGEST_SCALE = 1.6
"""Below √3, at which a step would send the largest singular value to 0 and its digits with it."""
TOGETHER = 7
"""The last steps, taken on (S, S) matrices: by then no singular value is below 0.03, so that squares will do."""


def arb_loss(z1: Tensor, z2: Tensor, *, ridge: float = 1e-5) -> Tensor:
    """Align Representations with Base (Zhang et al. 2022).

        z1, z2 standardised; base1, base2 their nearest bases, without gradient
        for each dimension d:
            loss_d = (⟨z1_d, base2_d⟩ / B - 1)² + (⟨z2_d, base1_d⟩ / B - 1)²
        loss = Σ_d loss_d

    z1, z2: (B, d). Views that have collapsed to a point give 2d.
    """
    check_positive("ridge", ridge)
    with torch.autocast(z1.device.type, enabled=False):
        z_2BD = standardized_views(z1, z2)
        of_the_other_2BD = nearest_base(z_2BD, ridge).flip(0)
        return ((z_2BD * of_the_other_2BD).mean(dim=1) - 1).square().sum()


@torch.no_grad()
def nearest_base(z_VBD: Tensor, ridge: float = 1e-5) -> Tensor:
    """Z (ZᵀZ/B + ridge · I)^(-1/2) of standardised embeddings Z: their dimensions made orthogonal, of length √B.

    z_VBD: one Z for each of V views, (V, B, D).

    Not by eigenvalues, for which a GPU waits for the host, so that the step could not be recorded. With
    A = [Z/√B; √ridge · I], AᵀA is the matrix in brackets, so A (AᵀA)^(-1/2), the orthogonal factor of A's polar
    decomposition, has the base as its upper rows, but for √B. Newton-Schulz iterations give it with matrix products
    alone. Where D > B the same holds of Zᵀ, since Z f(ZᵀZ) = f(ZZᵀ) Z: no matrix has more than B columns then.

    A's condition number is the square root of that of the covariance. That is why float32 is enough where
    the covariance is singular: entries, which are about 1, are off by less than 0.001, and by 0.00003 on average;
    through the eigenvalues of the covariance in float32 it can be 0.1 (`tests/losses/test_arb.py`).
    """
    num_views, num, dim = z_VBD.shape
    tall_VLS = z_VBD if num >= dim else z_VBD.mT
    large, small = tall_VLS.shape[1:]
    eye_VSS = torch.eye(small, dtype=z_VBD.dtype, device=z_VBD.device).expand(num_views, -1, -1)
    # No singular value of A is above its Frobenius norm, whose square is D for standardised Z, nor below √ridge.
    largest = math.sqrt(dim + ridge * small)
    x = torch.cat([tall_VLS / (math.sqrt(num) * largest), math.sqrt(ridge) / largest * eye_VSS], dim=1)
    scales = newton_schulz_scales(math.sqrt(ridge) / largest, torch.finfo(z_VBD.dtype).eps)
    for scale in scales[:-TOGETHER]:
        # Not x times a sum: rounded beside the large singular values of that, the small ones would lose digits.
        x = torch.baddbmm(x, x, x.mT @ x, beta=1.5 * scale, alpha=-0.5 * scale**3)
    x = x @ _last_steps(x.mT @ x, eye_VSS, scales[-TOGETHER:])
    base_VLS = math.sqrt(num) * x[:, :large]
    return base_VLS if num >= dim else base_VLS.mT


def _last_steps(gram_VSS: Tensor, eye_VSS: Tensor, scales: list[float]) -> Tensor:
    """What these steps together multiply x by, from xᵀx alone, since each multiplies x by a polynomial of it.

    That is 1.5 · scale · (I - scale²/3 · xᵀx); the numbers before the brackets are left to the end.
    """
    growth = 1.0
    steps: list[Tensor] = []
    for scale in scales:
        if steps:
            gram_VSS = steps[-1] @ gram_VSS @ steps[-1]
        steps.append(torch.add(eye_VSS, gram_VSS, alpha=-((scale * growth) ** 2) / 3))
        growth *= 1.5 * scale
    return growth * reduce(torch.matmul, steps)


def newton_schulz_scales(smallest: float, precision: float) -> list[float]:
    """Factors that bring singular values from [smallest, 1] to 1 soonest, one for each step.

    A step takes σ to f(σ) = ασ (3 - (ασ)²) / 2. Without a factor, α = 1, small ones grow by 1.5 a step only; the best
    one makes both ends of the interval meet, f(smallest) = f(1) (Chen and Chow 2014). In float32, with 2,048 dimensions
    and a ridge of 10⁻⁵, that makes 14 steps instead of 28.
    """
    scales = []
    while 1 - smallest > 8 * precision:
        scale = min(math.sqrt(3 / (1 + smallest + smallest**2)), LARGEST_SCALE)
        smallest = min(scale * s * (3 - (scale * s) ** 2) / 2 for s in (smallest, 1.0))
        scales.append(scale)
    return scales
