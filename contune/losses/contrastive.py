"""The tuned contrastive loss and the two losses it contains: SupCon (k1 = 0, k2 = 1) and NT-Xent."""

from torch import Tensor

from contune.errors import unknown
from contune.kernels.problem import Knobs
from contune.losses.dispatch import pair_loss
from contune.losses.pairs import Batch

VARIANTS = ("out", "in")


def tcl_loss(
    z: Tensor,
    labels: Tensor | None = None,
    *,
    positives: Tensor | None = None,
    candidates: Tensor | None = None,
    candidate_labels: Tensor | None = None,
    temperature: float = 0.1,
    k1: float = 5000.0,
    k2: float = 1.0,
    normalize: bool = True,
    reduction: str = "mean",
    backend: str = "auto",
    precision: str = "fast",
    distributed: bool = False,
) -> Tensor:
    """The tuned contrastive loss, equations 7 to 9 of the paper, averaged over anchors.

        for each anchor i:
            D = Σ_p exp(s_ip / τ) + k1 Σ_p exp(-s_ip) + k2 Σ_n exp(s_in / τ)
            loss_i = - mean over positives p of log(exp(s_ip / τ) / D)

    Args:
        z: (N, d) embeddings, all views stacked.
        labels: (N,) integers; the same label makes two embeddings positives of each other.
        positives: instead of labels, an (N, N) bool mask, or weights: row i says who is positive for anchor i
            and how much each counts in the mean. It need not be symmetric, and its diagonal is ignored. Weights that
            ask for gradients get them, by `dense`, which `auto` then takes.
        candidates: (M, d) embeddings to compare the anchors with instead of each other (a queue, a momentum
            batch). They get gradients if they ask for them.
        candidate_labels: (M,) integers, theirs; or give (N, M) positives.
        temperature: τ.
        k1: above 0, pulls harder on positives.
        k2: above 1, pushes harder on negatives.
        normalize: scale embeddings to length 1 first.
        reduction: `mean` over anchors that have a positive, `sum`, or `none` for one value per anchor.
        backend: `dense` writes out the N×N matrix and can be differentiated twice; `chunked` and `fused` (CUDA)
            never hold it; `auto` takes the fastest that fits.
        precision: of `fused`: `fast` multiplies in the tensor cores' 11-bit mantissa, `high` to float32.
        distributed: z and labels are this process's part of a batch spread over all of them; the loss is that of
            the whole, and its gradient, averaged over processes, that of one process with all of it.

    An anchor without a positive contributes 0. The paper writes a sum over anchors where its authors' code
    and this function take the mean. float16 and bfloat16 are computed in float32, also under autocast. NaN in
    the embeddings comes out as NaN.
    """
    return pair_loss(
        Batch(z, labels, positives, candidates, candidate_labels),
        Knobs(temperature, k1, k2, "out", precision),
        normalize=normalize,
        reduction=reduction,
        backend=backend,
        distributed=distributed,
    )


def supcon_loss(
    z: Tensor,
    labels: Tensor | None = None,
    *,
    positives: Tensor | None = None,
    candidates: Tensor | None = None,
    candidate_labels: Tensor | None = None,
    temperature: float = 0.1,
    variant: str = "out",
    normalize: bool = True,
    reduction: str = "mean",
    backend: str = "auto",
    precision: str = "fast",
    distributed: bool = False,
) -> Tensor:
    """The supervised contrastive loss, equation 2 of the paper; arguments as in `tcl_loss`.

    Args:
        variant: `out` has the mean over positives outside the logarithm (L_out, the paper's and the better one);
            `in` has it inside, which some libraries call SupCon.
    """
    check_variant(variant)
    return pair_loss(
        Batch(z, labels, positives, candidates, candidate_labels),
        Knobs(temperature, 0.0, 1.0, variant, precision),
        normalize=normalize,
        reduction=reduction,
        backend=backend,
        distributed=distributed,
    )


def check_variant(variant: str) -> None:
    if variant not in VARIANTS:
        raise unknown("variant", variant, VARIANTS)


def ntxent_loss(
    z: Tensor,
    ids: Tensor,
    *,
    candidates: Tensor | None = None,
    candidate_ids: Tensor | None = None,
    temperature: float = 0.2,
    normalize: bool = True,
    reduction: str = "mean",
    backend: str = "auto",
    precision: str = "fast",
    distributed: bool = False,
) -> Tensor:
    """SimCLR's loss: SupCon where only the views of one sample, those with the same id, are positives.

    Args:
        ids: (N,) integers, one per sample, repeated for its views: `torch.arange(batch).repeat(num_views)`.
    """
    return supcon_loss(
        z,
        ids,
        candidates=candidates,
        candidate_labels=candidate_ids,
        temperature=temperature,
        normalize=normalize,
        reduction=reduction,
        backend=backend,
        precision=precision,
        distributed=distributed,
    )
