"""Features → a map in two dimensions.

Shapes: N points, D features.
"""

import numpy as np
import torch.nn.functional as F
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits
from torch import Tensor

MIN_POINTS = 5
NUM_COMPONENTS = 50
PERPLEXITY = 30.0
NUM_ITERATIONS = 500
"""Half of scikit-learn's: from a PCA start the map hardly changes in the second half, which takes as long."""
SAME = 1e-6
"""Unit vectors that differ by less in every coordinate are one point."""


def unmappable(features_ND: Tensor) -> str | None:
    """Why there can be no map of these, as a sentence; None where there can."""
    if len(features_ND) < MIN_POINTS:
        return f"A map takes at least {MIN_POINTS} images; there are {len(features_ND)}."
    if not features_ND.isfinite().all():
        return "The encoder’s features are not finite: training has diverged. Try a lower <code>optim.lr</code>."
    if F.normalize(features_ND, dim=1).std(dim=0).max() < SAME:
        return "All embeddings point the same way: the encoder has collapsed, and there is nothing to map."
    return None


def project(features_ND: Tensor) -> np.ndarray:
    """t-SNE of the directions of the features, (N, 2); the same numbers on every call."""
    z_ND: np.ndarray = F.normalize(features_ND.float(), dim=1).numpy()
    num, width = z_ND.shape
    if width > NUM_COMPONENTS:
        z_ND = PCA(n_components=min(NUM_COMPONENTS, num), random_state=0).fit_transform(z_ND)
    tsne = TSNE(
        perplexity=min(PERPLEXITY, (num - 1) / 3),
        init="pca" if width > 1 else "random",
        max_iter=NUM_ITERATIONS,
        random_state=0,
    )
    # One thread adds up in one order, so the bytes are reproducible; and where other processes hold the cores,
    # threads that wait for each other at every one of a thousand steps are many times slower.
    with threadpool_limits(1):
        xy_N2: np.ndarray = tsne.fit_transform(z_ND)
    return xy_N2
