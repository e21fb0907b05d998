"""The paper's gradient responses while a method trains: measured at log points, outside the step."""

from torch import Tensor

from contune.kernels.problem import Knobs
from contune.losses.responses import logged_responses
from contune.methods import Method, Output
from contune.methods.pairwise import PairwiseMethod
from contune.methods.tcl import TCL

LOGGED = (
    "positive_gradient", "negative_gradient", "supcon_positive_gradient", "supcon_negative_gradient", "theorem1_share",
)  # fmt: skip


class GradientRecorder:
    """Keeps what the last step compared, and on demand takes its mean responses; `losses.responses` says which."""

    def __init__(self, knobs: Knobs, *, beside_supcon: bool) -> None:
        self.knobs, self.beside_supcon = knobs, beside_supcon
        self.compared: dict[str, Tensor] = {}

    def keep(self, output: Output) -> None:
        self.compared = output.state

    def read(self) -> dict[str, Tensor]:
        """Responses of the last step; the host does not wait for the device."""
        return logged_responses(
            self.compared["z_ND"],
            self.compared["groups_N"],
            temperature=self.knobs.temperature,
            k1=self.knobs.k1,
            k2=self.knobs.k2,
            variant=self.knobs.variant,
            supcon=self.beside_supcon,
        )


def recorder_for(method: Method) -> GradientRecorder | None:
    """For TCL with SupCon's responses on the same embeddings beside its own; None for a loss that has none."""
    knobs = method.knobs if isinstance(method, PairwiseMethod) else None
    return None if knobs is None else GradientRecorder(knobs, beside_supcon=isinstance(method, TCL))
