"""Each dimension of a view aligned with an orthonormal base near the other view: ARB.

Shapes: B samples, row by row the same in both views; D embedding size; L the larger of the two and S the smaller;
2 where both views are one tensor.
"""

import math

import torch
from torch import Tensor

from contune.losses.checks import check_positive, check_tensors
from contune.losses.redundancy import standardized_views

LARGEST_SCALE = 1.6
"""Below √3, at which a step would send the largest singular value to 0 and its digits with it."""


def arb_loss(z1: Tensor, z2: Tensor, *, ridge: float = 1e-5) -> Tensor:
    """Align Representations with Base (Zhang et al. 2022).

        z1, z2 standardised; base1, base2 their nearest bases, without gradient
        for each dimension d:
            loss_d = (⟨z1_d, base2_d⟩ / B - 1)² + (⟨z2_d, base1_d⟩ / B - 1)²
        loss = Σ_d loss_d

    z1, z2: (B, d). Views that have collapsed to a point give 2d.
    """
    check_tensors(z1=z1, z2=z2)
    check_positive("ridge", ridge)
    with torch.autocast(z1.device.type, enabled=False):
        z_2BD = standardized_views(z1, z2)
        of_the_other_2BD = nearest_base(z_2BD, ridge).flip(0)
        return ((z_2BD * of_the_other_2BD).mean(dim=1) - 1).square().sum()


@torch.no_grad()
def nearest_base(z_VBD: Tensor, ridge: float = 1e-5) -> Tensor:
    """Z (ZᵀZ/B + ridge · I)^(-1/2) of standardised embeddings Z: their dimensions made orthogonal, of length √B.

    z_VBD: one Z for each of V views, (V, B, D). Where D > B the same holds of Zᵀ, since Z f(ZᵀZ) = f(ZZᵀ) Z: the matrix
    in brackets is (S, S).

    Not by eigenvalues, for which a GPU waits for the host, so that the step could not be recorded: Newton-Schulz
    iterations give the root with matrix products alone. In float64, for the matrix is nearly singular: its condition
    number may reach D / ridge. Apple's GPUs have no float64; there the host does it.
    """
    num_views, num, dim = z_VBD.shape
    tall_VLS = (z_VBD.cpu() if z_VBD.device.type == "mps" else z_VBD).double()
    tall_VLS = tall_VLS if num >= dim else tall_VLS.mT
    small = tall_VLS.shape[2]
    eye_VSS = torch.eye(small, dtype=torch.float64, device=tall_VLS.device).expand(num_views, -1, -1)
    # No eigenvalue is above the trace, which is D for standardised Z, nor below the ridge.
    largest = dim + ridge * small
    gram_VSS = torch.baddbmm(ridge / largest * eye_VSS, tall_VLS.mT, tall_VLS, alpha=1 / (num * largest))
    scales = newton_schulz_scales(math.sqrt(ridge / largest), torch.finfo(z_VBD.dtype).eps)
    base_VLS = (tall_VLS @ _inverse_root(gram_VSS, eye_VSS, scales) / math.sqrt(largest)).to(z_VBD)
    return base_VLS if num >= dim else base_VLS.mT


def _inverse_root(gram_VSS: Tensor, eye_VSS: Tensor, scales: list[float]) -> Tensor:
    """G^(-1/2) of eigenvalues in (0, 1]: what the steps multiply any X with XᵀX = G by, from G alone.

    A step multiplies X by 1.5 · scale · (I - scale²/3 · XᵀX); the numbers before the brackets are left to the end.
    """
    growth = 1.0
    product_VSS = eye_VSS
    for number, scale in enumerate(scales):
        step_VSS = torch.add(eye_VSS, gram_VSS, alpha=-((scale * growth) ** 2) / 3)
        product_VSS = product_VSS @ step_VSS if number else step_VSS
        if number + 1 < len(scales):
            gram_VSS = step_VSS @ gram_VSS @ step_VSS
        growth *= 1.5 * scale
    return growth * product_VSS


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
