"""The paper's gradient responses while a method trains: measured at log points, outside the step."""

import torch
from torch import Tensor

from contune import distributed
from contune.analysis.gradients.anchors import BLOCK_PAIRS, Anchors
from contune.analysis.gradients.responses import ratios, sums_and_counts
from contune.kernels.problem import Knobs
from contune.losses.checks import embeddings
from contune.methods import Method, Output
from contune.methods.pairwise import PairwiseMethod
from contune.methods.tcl import TCL

LOGGED = (
    "positive_gradient", "negative_gradient", "supcon_positive_gradient", "supcon_negative_gradient", "theorem1_share",
)  # fmt: skip


class GradientRecorder:
    """Keeps what the last step compared, and on demand takes its mean responses; `analysis.gradients` says which."""

    def __init__(self, knobs: Knobs, *, beside_supcon: bool) -> None:
        self.knobs, self.beside_supcon = knobs, beside_supcon
        self.compared: dict[str, Tensor] = {}

    def keep(self, output: Output) -> None:
        self.compared = output.state

    @torch.no_grad()
    def read(self) -> dict[str, Tensor]:
        """Of the whole batch, this process's rows as anchors; the host does not wait for them.

        Where that is more than 4 million pairs (2,048 embeddings) it is evenly spaced anchors against all candidates.
        """
        z_ND, groups_N = embeddings(self.compared["z_ND"], normalize=True), self.compared["groups_N"]
        anchors = Anchors(
            x_RD=z_ND,
            y_CD=distributed.gather(z_ND),
            labels_R=groups_N,
            labels_C=distributed.gather(groups_N),
            own_R=torch.arange(len(z_ND), device=z_ND.device) + distributed.rank() * len(z_ND),
        )
        anchors = anchors.thinned(BLOCK_PAIRS)
        totals = sums_and_counts(anchors, self.knobs, split=None, beside_supcon=self.beside_supcon)
        names = [name for name in LOGGED if name in totals]
        over_ranks_K2 = distributed.total(torch.stack([totals[name] for name in names]))
        return ratios(dict(zip(names, over_ranks_K2, strict=True)))


def recorder_for(method: Method) -> GradientRecorder | None:
    """For TCL with SupCon's responses on the same embeddings beside its own; None for a loss that has none."""
    knobs = method.knobs if isinstance(method, PairwiseMethod) else None
    return None if knobs is None else GradientRecorder(knobs, beside_supcon=isinstance(method, TCL))
