"""SwAV's two halves (Caron et al. 2020): assignments to prototypes that use all of them alike, and their prediction.

Shapes: N rows, of which R are wanted, D embedding size, K prototypes; B images, V views of each, of which the first T
have assignments.
"""

import torch
from torch import Tensor

from contune.errors import UserError
from contune.kernels.wide import wide_product
from contune.losses.checks import check_embeddings, check_positive, check_tensors, compute_dtype
from contune.losses.distillation import check_views, other_views_loss

LARGEST_EXPONENT, LARGEST_OF_FEW, FEW = 50.0, 70.0, 5
"""Of the ratio of two entries exp(score / ε) that are held as they are, and the same for few iterations. Sums over rows
and columns can reach that ratio, with many iterations the power 3/2 of it; float32 goes from e⁻⁸⁷ to e⁸⁸."""


@torch.no_grad()
def sinkhorn(
    scores_NK: Tensor, *, epsilon: float = 0.05, num_iterations: int = 3, weights_N: Tensor | None = None
) -> Tensor:
    """Soft assignments of rows to prototypes, equations 3 to 5: each row's sum to 1, each prototype gets as much.

        Q = exp(scores / ε)
        as often as num_iterations says:
            each column of Q is divided by its sum
            each row of Q is divided by its sum

    The last division is by rows, so their sums are exact and those of columns come closer with each iteration.
    Q is kept as a logarithm less one number a row and one a column, so that no exp(score / ε) overflows.

    weights_N: how much a row counts in the sums of columns. With 0 it is assigned like any other and the others are
    assigned as if it were not there.
    """
    check_embeddings("scores", scores_NK)
    _check_knobs(epsilon, num_iterations)
    with torch.autocast(scores_NK.device.type, enabled=False):
        logits_NK = scores_NK.to(compute_dtype(scores_NK)) / epsilon
        log_weights_N1 = 0.0 if weights_N is None else weights_N.to(logits_NK.dtype).log().unsqueeze(1)
        row_N1, column_1K = torch.zeros_like(logits_NK[:, :1]), torch.zeros_like(logits_NK[:1])
        for _ in range(num_iterations):
            column_1K = (logits_NK - row_N1 + log_weights_N1).logsumexp(dim=0, keepdim=True)
            row_N1 = (logits_NK - column_1K).logsumexp(dim=1, keepdim=True)
        return (logits_NK - column_1K - row_N1).exp()


@torch.no_grad()
def sinkhorn_of_cosines(
    z_TND: Tensor,
    prototypes_KD: Tensor,
    weights_TN: Tensor,
    *,
    wanted: slice,
    epsilon: float = 0.05,
    num_iterations: int = 3,
) -> Tensor:
    """`sinkhorn` of the products of unit vectors, T times N of them, with prototypes; the `wanted` rows, (T, R, K).

    With q = exp(product / ε) all along Q_nk = q_nk / (row_n · column_k), so that Q is never written: its sums are
    products of q with a vector. Where ε is so small that a number could leave float32 the logarithms do it.
    """
    check_tensors(z_TND=z_TND, prototypes_KD=prototypes_KD, weights_TN=weights_TN)
    _check_knobs(epsilon, num_iterations)
    with torch.autocast(z_TND.device.type, enabled=False):
        dtype = compute_dtype(z_TND)
        z_TND, prototypes_KD = z_TND.to(dtype) / epsilon, prototypes_KD.to(dtype)
        if 2 / epsilon > (LARGEST_OF_FEW if num_iterations <= FEW else LARGEST_EXPONENT):
            pairs = zip(z_TND @ prototypes_KD.T, weights_TN, strict=True)
            alone = [
                sinkhorn(one_NK, epsilon=1.0, num_iterations=num_iterations, weights_N=of_N) for one_NK, of_N in pairs
            ]
            return torch.stack(alone)[:, wanted]
        q_TNK = _products(z_TND, prototypes_KD).exp_()
        weights_TN1 = weights_TN.to(dtype).unsqueeze(2)
        # In all as much as there are columns, so that neither rows nor columns grow with the iterations.
        share_TN1 = weights_TN1 * (q_TNK.shape[2] / weights_TN1.sum(dim=1, keepdim=True))
        column_TK1 = q_TNK.mT @ share_TN1
        for _ in range(num_iterations - 1):
            row_TN1 = q_TNK @ column_TK1.reciprocal()
            column_TK1 = q_TNK.mT @ (share_TN1 / row_TN1)
        assigned_TRK = q_TNK[:, wanted] / column_TK1.mT
        return assigned_TRK / assigned_TRK.sum(dim=2, keepdim=True)


def _products(z_TND: Tensor, prototypes_KD: Tensor) -> Tensor:
    """On a GPU of halves: in float32 they would take as long as everything else here together."""
    if not z_TND.is_cuda or z_TND.dtype == torch.float64:
        return z_TND @ prototypes_KD.T
    products: Tensor = wide_product(z_TND.half().flatten(0, 1), prototypes_KD.half().T)
    return products.view(*z_TND.shape[:2], -1)


def _check_knobs(epsilon: float, num_iterations: int) -> None:
    check_positive("epsilon", epsilon)
    if num_iterations < 1:
        raise UserError(f"num_iterations must be 1 or more, got {num_iterations}")


def swapped_prediction_loss(scores_VBK: Tensor, assignments_TBK: Tensor, *, temperature: float = 0.1) -> Tensor:
    """Equation 2 with any number of views, as a mean over pairs of views and images.

    for each view t with assignments, each other view v ≠ t, each image b:
        loss_tvb = - Σ_k assignments_tbk · log softmax(scores_vb / τ)_k
    """
    check_views(scores_VBK=scores_VBK, assignments_TBK=assignments_TBK)
    check_positive("temperature", temperature)
    return other_views_loss(assignments_TBK, scores_VBK.to(compute_dtype(scores_VBK)) / temperature)
