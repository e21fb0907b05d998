"""The map's projection, made by one CPU core while the GPU is still measuring: it takes as long as half a probe."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from torch import Tensor


class MapAhead:
    """Where the images of the map lie, asked for before it is drawn."""

    def __init__(self, features_MD: Tensor) -> None:
        pool = ThreadPoolExecutor(1)
        self._made = pool.submit(_points, features_MD.cpu())
        pool.shutdown(wait=False)

    def points(self) -> np.ndarray | None:
        """(N, 2), waited for; None where there can be no map."""
        return self._made.result()


def _points(features_MD: Tensor) -> np.ndarray | None:
    """All that the report imports is imported here, in the thread: scikit-learn and matplotlib take seconds."""
    from contune.analysis import report  # noqa: F401  # imported now, used later
    from contune.analysis.embedding_map import MAX_POINTS
    from contune.analysis.measured import evenly_spaced
    from contune.analysis.projection import project, unmappable

    features_ND = features_MD[evenly_spaced(len(features_MD), MAX_POINTS)]
    return project(features_ND) if unmappable(features_ND) is None else None
