"""ARB: Align Representations with Base (Zhang et al. 2022).

Shapes: B images, row by row the same in both views; V views; D embedding size; L the larger of B and D, S the smaller;
2 where both views form one tensor.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from contune.methods.view_pairs import ViewPairMethod, standardized_views
from contune.settings import ranged


class ARB(ViewPairMethod):
    """Aligns each dimension of one view with the orthonormal base nearest to the other view."""

    @dataclass(kw_only=True)
    class Settings(ViewPairMethod.Settings):
        ridge: float = ranged(1e-5, above=0.0)
        """Added to the diagonal of the covariance before it is inverted."""
        loss_scale: float = ranged(0.1, above=0.0)
        """Factor on the loss, as in Barlow Twins."""

    settings: Settings

    def view_loss(self, z1_BD: Tensor, z2_BD: Tensor) -> Tensor:
        return self.settings.loss_scale * arb_loss(z1_BD, z2_BD, ridge=self.settings.ridge)


def arb_loss(z1_BD: Tensor, z2_BD: Tensor, *, ridge: float = 1e-5) -> Tensor:
    """The distance of each view's dimensions from the base nearest to the other view.

        z1, z2 standardized; base1, base2 their nearest bases, without gradient
        for each dimension d:
            loss_d = (⟨z1_d, base2_d⟩ / B - 1)² + (⟨z2_d, base1_d⟩ / B - 1)²
        loss = Σ_d loss_d

    Views that have collapsed to a point give 2D.
    """
    z_2BD = standardized_views(z1_BD, z2_BD)
    other_base_2BD = nearest_base(z_2BD, ridge).flip(0)
    return ((z_2BD * other_base_2BD).mean(dim=1) - 1).square().sum()


@torch.no_grad()
def nearest_base(z_VBD: Tensor, ridge: float = 1e-5) -> Tensor:
    """Z (ZᵀZ/B + ridge · I)^(-1/2) of standardized embeddings Z: orthogonal dimensions of length √B.

    z_VBD holds one Z per view. For D > B we use Zᵀ: since Z f(ZᵀZ) = f(ZZᵀ) Z, the matrix in brackets is (S, S).

    Newton-Schulz iterations compute the root with matrix products alone. An eigendecomposition would make the GPU wait
    for the host, which a CUDA graph cannot capture. The condition number can reach D / ridge, so we use float64.
    """
    num_views, num, dim = z_VBD.shape
    tall_VLS = (z_VBD if num >= dim else z_VBD.mT).double()
    small = tall_VLS.shape[2]
    eye_VSS = torch.eye(small, dtype=torch.float64, device=tall_VLS.device).expand(num_views, -1, -1)
    # No eigenvalue is above the trace, which is D for standardized Z, nor below the ridge.
    largest = dim + ridge * small
    gram_VSS = torch.baddbmm(ridge / largest * eye_VSS, tall_VLS.mT, tall_VLS, alpha=1 / (num * largest))
    scales = newton_schulz_scales(math.sqrt(ridge / largest), torch.finfo(z_VBD.dtype).eps)
    base_VLS = (tall_VLS @ _inverse_root(gram_VSS, eye_VSS, scales) / math.sqrt(largest)).to(z_VBD)
    return base_VLS if num >= dim else base_VLS.mT


def _inverse_root(gram_VSS: Tensor, eye_VSS: Tensor, scales: list[float]) -> Tensor:
    """G^(-1/2) for eigenvalues in (0, 1]: the product of the steps that orthogonalize any X with XᵀX = G.

    A step multiplies X by 1.5 · scale · (I - scale²/3 · XᵀX). The scalar factors are applied at the end.
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
    """One factor per step, so that singular values in [smallest, 1] reach 1 in the fewest steps.

    A step maps σ to f(σ) = ασ (3 - (ασ)²) / 2. With α = 1 small values grow only by 1.5 per step. The best α makes both
    ends of the interval meet: f(smallest) = f(1) (Chen and Chow 2014). In float32 with 2,048 dimensions and a ridge of
    10⁻⁵ that takes 14 steps instead of 28.
    """
    scales = []
    while 1 - smallest > 8 * precision:
        # Below √3, where a step would map the largest singular value to 0.
        scale = min(math.sqrt(3 / (1 + smallest + smallest**2)), 1.6)
        smallest = min(scale * s * (3 - (scale * s) ** 2) / 2 for s in (smallest, 1.0))
        scales.append(scale)
    return scales
