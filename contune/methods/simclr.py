"""SimCLR (Chen et al. 2020)."""

from dataclasses import dataclass

from torch import Tensor

from contune.kernels import LossSettings
from contune.losses import ntxent_loss
from contune.methods.pairwise import PairwiseMethod
from contune.settings import ranged


class SimCLR(PairwiseMethod):
    """NT-Xent between the views of each image. The head has the sizes of the paper's comparison."""

    @dataclass(kw_only=True)
    class Settings(PairwiseMethod.Settings):
        temperature: float = ranged(0.2, above=0.0)
        """Similarities are divided by it. Lower values give hard pairs more weight."""
        projector_hidden: int | None = ranged(2048, low=1)
        projector_dim: int = ranged(256, low=1)

        @property
        def needs_labels(self) -> bool:
            return False

    settings: Settings

    @property
    def knobs(self) -> LossSettings:
        return LossSettings(self.settings.temperature, 0.0, 1.0)

    def pair_loss(self, z_ND: Tensor, groups_N: Tensor) -> Tensor:
        return ntxent_loss(z_ND, groups_N, temperature=self.settings.temperature, distributed=True)
