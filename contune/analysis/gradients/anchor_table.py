"""The anchors of several batches as a table, a row each, and how their numbers are spread.

Shapes: R anchors, C columns, N embeddings, B images of which they are views.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from contune.analysis.gradients.anchors import BLOCK_PAIRS, anchors_of
from contune.analysis.gradients.by_anchor import by_anchor
from contune.analysis.gradients.quantities import SUPCON, split_of
from contune.analysis.gradients.responses import HARD_SHARE
from contune.kernels import LossSettings

NUM_QUANTILES = 101
"""From the lowest anchor to the highest, a hundredth of them between two."""
SPREAD = (
    "positive_gradient", f"{SUPCON}positive_gradient", "negative_gradient", f"{SUPCON}negative_gradient",
    "X_ip", "P_ip", f"{SUPCON}P_ip", "Y_ip", "P_in", f"{SUPCON}P_in",
)  # fmt: skip


class AnchorTable:
    """Grows batch by batch. Of a batch of more than 2,048 embeddings it has evenly spaced anchors, as `sweep`."""

    def __init__(self, knobs: LossSettings) -> None:
        self.knobs = knobs
        self.parts: list[pa.Table] = []

    @torch.no_grad()
    def add(self, z_ND: Tensor, groups_N: Tensor, names: Sequence[str], labels: Sequence[str | None]) -> None:
        """A batch whose embeddings are all first views of B images, then all second ones, and so on."""
        anchors = anchors_of(z_ND, groups_N, None, normalize=True).thinned(BLOCK_PAIRS)
        found = by_anchor(anchors, self.knobs, split_of(anchors.compared(self.knobs.temperature), HARD_SHARE))
        view_R, image_R = divmod(anchors.own_R.cpu().numpy(), len(names))
        about = {
            "batch": pa.array(np.full(len(view_R), len(self.parts), dtype=np.int32)),
            "image": pa.array([names[image] for image in image_R], type=pa.string()),
            "view": pa.array(view_R.astype(np.int32)),
            "label": pa.array([labels[image] for image in image_R], type=pa.string()),
        }
        self.parts.append(pa.table(about | {name: _column(values_R) for name, values_R in found.items()}))

    def table(self) -> pa.Table:
        return pa.concat_tables(self.parts)

    def spread(self) -> dict[str, Any]:
        """Plain numbers: quantiles over all anchors that have a positive, and at how many TCL is above SupCon."""
        table = self.table()
        columns = {name: table[name].to_numpy() for name in SPREAD}
        shares_Q = np.linspace(0, 1, NUM_QUANTILES)
        usable_R = table["num_positives"].to_numpy() > 0
        return {
            "num_anchors": int(usable_R.sum()),
            "num_without_positive": int((~usable_R).sum()),
            "share": [round(float(share), 4) for share in shares_Q],
            "stronger_positive_share": _above(columns["positive_gradient"], columns[f"{SUPCON}positive_gradient"]),
            "stronger_negative_share": _above(columns["negative_gradient"], columns[f"{SUPCON}negative_gradient"]),
            "quantiles": {name: _quantiles(values_R, shares_Q) for name, values_R in columns.items()},
        }


def _column(values_R: Tensor) -> pa.Array:
    """NaN, a mean over no pairs, is a missing value in a table."""
    values = values_R.cpu().numpy()
    return pa.array(values.astype(np.int32)) if not values_R.is_floating_point() else pa.array(values, from_pandas=True)


def _quantiles(values_R: np.ndarray, shares_Q: np.ndarray) -> list[float]:
    """Empty where no anchor has such pairs."""
    known_R = values_R[~np.isnan(values_R)].astype(np.float64)
    return [float(value) for value in np.quantile(known_R, shares_Q)] if len(known_R) else []


def _above(mine_R: np.ndarray, theirs_R: np.ndarray) -> float:
    """Of the anchors that have both, the share at which the first is larger."""
    known_R = ~np.isnan(mine_R)
    return float((mine_R > theirs_R)[known_R].mean()) if known_R.any() else 0.0
