"""SimCLR (Chen et al. 2020)."""

from dataclasses import dataclass

from torch import Tensor

from contune.losses import ntxent_loss
from contune.methods.pairwise import PairwiseMethod


class SimCLR(PairwiseMethod):
    """NT-Xent between the views of each sample; the head has the sizes of the paper's comparison."""

    @dataclass(kw_only=True)
    class Settings(PairwiseMethod.Settings):
        temperature: float = 0.2
        projector_hidden: int | None = 2048
        projector_dim: int = 256

        @property
        def needs_labels(self) -> bool:
            return False

    settings: Settings

    def pair_loss(self, z_ND: Tensor, groups_N: Tensor) -> Tensor:
        return ntxent_loss(z_ND, groups_N, temperature=self.settings.temperature)
