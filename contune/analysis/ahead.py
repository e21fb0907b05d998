"""The map's projection, made by one CPU core while the GPU is still measuring: it takes as long as half a probe."""

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from torch import Tensor

from contune.analysis.embedding_map import MAX_POINTS
from contune.analysis.measured import evenly_spaced
from contune.analysis.projection import project, unmappable


class MapAhead:
    """Where the images of the map lie, asked for before it is drawn."""

    def __init__(self, features_MD: Tensor) -> None:
        features_ND = features_MD.cpu()[evenly_spaced(len(features_MD), MAX_POINTS)]
        self._made: Future[np.ndarray] | None = None
        if unmappable(features_ND) is None:
            pool = ThreadPoolExecutor(1)
            self._made = pool.submit(project, features_ND)
            pool.shutdown(wait=False)

    def points(self) -> np.ndarray | None:
        """(N, 2), waited for; None where there can be no map."""
        return None if self._made is None else self._made.result()
