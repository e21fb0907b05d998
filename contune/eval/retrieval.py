"""How well embeddings find images of the same class: Recall@K, MAP@R, R-precision and NMI, exact.

Shapes: N references, Q queries, B queries of a block, D features, k nearest references.
"""

import warnings
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from contune.errors import UserError
from contune.eval.measures import RECALLS, RETRIEVAL

BLOCK_PAIRS, GPU_PAIRS = 2**24, 2**28
"""Similarities in memory at a time: 64 MiB, and 1 GiB on a GPU."""


@torch.no_grad()
def retrieval(
    embeddings: Any, labels: Any, queries: Any = None, query_labels: Any = None, *, every: int = 1, nmi: bool = True
) -> dict[str, float]:
    """Measure retrieval by cosine similarity, in per cent: recall@1, recall@5, recall@10, map@r, r_precision, nmi.

        contune.retrieval(embeddings, labels)
        contune.retrieval(gallery, gallery_labels, queries, query_labels)

    Embeddings are (N, D) tensors on any device, or arrays; labels are integers or texts. Without `queries` each
    embedding is a query, and the others are its references. R is the number of references of the query's class, so
    each query has its own. With h(i) = 1 if the i-th nearest reference has the query's class, else 0:

        recall@K     = 1 if h(i) = 1 for any i ≤ K, else 0
        r_precision  = Σ_{i ≤ R} h(i) / R
        map@r        = Σ_{i ≤ R} h(i) · (Σ_{j ≤ i} h(j) / i) / R        (Musgrave et al. 2020)

    The result is the mean over queries. Queries without a reference of their class do not count. Equally similar
    references count in their order, but if only some of them are among the R or 10 nearest, any of them may be.
    `nmi` compares the classes of the queries with as many clusters, by k-means of scikit-learn on L2-normalized
    embeddings with a fixed seed. It takes longest; `nmi=False` leaves it out.
    every: without `queries`, only every n-th embedding is a query; all others are still references.

    Nothing is approximate, TF32 is off, and the N×Q matrix never exists. In memory are an L2-normalized copy of the
    embeddings and a block of similarities: 64 MiB, and 1 GiB on a GPU.
    """
    device = embeddings.device if isinstance(embeddings, Tensor) and embeddings.is_cuda else torch.device("cpu")
    same = queries is None or queries is embeddings
    x_ND = _unit_rows(embeddings, device, "embeddings")
    q_QD = x_ND[::every] if same else _unit_rows(queries, device, "queries")
    own_labels = _labels(labels, len(x_ND), "labels")
    asked_labels = own_labels[::every] if same else _labels(query_labels, len(q_QD), "query_labels")
    if q_QD.shape[1] != x_ND.shape[1]:
        raise UserError(f"queries have {q_QD.shape[1]} features and embeddings {x_ND.shape[1]}; use one encoder")
    inverse = np.unique(np.concatenate([own_labels, asked_labels]), return_inverse=True)[1]
    classes_N, classes_Q = torch.from_numpy(inverse).to(device).split([len(x_ND), len(q_QD)])
    own_Q = torch.arange(0, len(x_ND), every, device=device)  # of each query, among the references
    num_relevant_Q = classes_N.bincount(minlength=int(inverse.max()) + 1)[classes_Q] - int(same)
    kept = (num_relevant_Q > 0).nonzero()[:, 0]
    if not len(kept):
        raise UserError("no query has a reference of its class; retrieval needs two images of a class")

    most = max(int(num_relevant_Q.max()), max(RECALLS))
    k = min(most, len(x_ND) - int(same))
    rank_k = torch.arange(1, k + 1, device=device)
    sums = torch.zeros(len(RECALLS) + 2, dtype=torch.float64, device=device)
    precision, block = torch.get_float32_matmul_precision(), GPU_PAIRS if device.type == "cuda" else BLOCK_PAIRS
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast(device.type, enabled=False):
            for rows_B in kept.split(max(1, block // len(x_ND))):
                sim_BN = q_QD[rows_B] @ x_ND.T
                if same:
                    sim_BN.scatter_(1, own_Q[rows_B, None], -torch.inf)
                top = sim_BN.topk(k, dim=1)
                nearest_Bk, order_Bk = top.indices.sort(dim=1)  # of equals, the first is nearer
                order_Bk = top.values.gather(1, order_Bk).sort(dim=1, descending=True, stable=True).indices
                hits_Bk = classes_N[nearest_Bk.gather(1, order_Bk)] == classes_Q[rows_B, None]
                recalls = [hits_Bk[:, :K].any(dim=1).sum() for K in RECALLS]
                num_relevant_B1 = num_relevant_Q[rows_B, None]
                hits_Bk = (hits_Bk & (rank_k <= num_relevant_B1)).double()
                precision_Bk = hits_Bk.cumsum(dim=1).div_(rank_k)
                average_precision = (precision_Bk.mul_(hits_Bk) / num_relevant_B1).sum()
                r_precision = (hits_Bk / num_relevant_B1).sum()
                sums += torch.stack([*recalls, average_precision, r_precision])
    finally:
        torch.set_float32_matmul_precision(precision)
    shares = (100 * sums / len(kept)).tolist()
    found: dict[str, float] = dict(zip(RETRIEVAL, shares, strict=False))  # all but nmi
    if nmi:
        from sklearn.cluster import KMeans  # slow to import
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.metrics import normalized_mutual_info_score

        truth = classes_Q.cpu().numpy()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # embeddings that collapsed have fewer clusters
            clusters = KMeans(len(np.unique(truth)), n_init=1, random_state=0).fit_predict(q_QD.cpu().numpy())
        found["nmi"] = 100 * float(normalized_mutual_info_score(truth, clusters))
    return found


def _unit_rows(values: Any, device: torch.device, name: str) -> Tensor:
    x_ND = values if isinstance(values, Tensor) else torch.as_tensor(np.asarray(values))
    if x_ND.dim() != 2 or x_ND.is_complex() or 0 in x_ND.shape:
        raise UserError(f"{name} must be (N, D) numbers, got {x_ND.dtype} of shape {tuple(x_ND.shape)}")
    x_ND = F.normalize(x_ND.detach().to(device, torch.float32), dim=1)
    if not bool(x_ND.isfinite().all()):
        raise UserError(f"{name} are not finite; the encoder diverged")
    return x_ND


def _labels(values: Any, num: int, name: str) -> np.ndarray:
    array = np.asarray(values.cpu() if isinstance(values, Tensor) else values)
    if array.shape != (num,):
        raise UserError(f"{name} must be one label for each of {num} embeddings, got shape {array.shape}")
    return array
