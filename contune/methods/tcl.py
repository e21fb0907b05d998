"""Tuned Contrastive Learning, section 3.2 of the paper."""

from dataclasses import dataclass

from torch import Tensor

from contune.kernels import LossSettings
from contune.losses import tcl_loss
from contune.methods.pairwise import PairwiseMethod
from contune.settings import ranged


class TCL(PairwiseMethod):
    """The tuned contrastive loss on labels or, with `supervised=false`, on the views of each image.

    Without labels the paper uses positive triplets: three views of each image (augment.views=3).
    """

    @dataclass(kw_only=True)
    class Settings(PairwiseMethod.Settings):
        temperature: float = ranged(0.1, above=0.0)
        k1: float = ranged(5000.0, low=0.0)
        """Values above 0 raise the gradient from hard positives. 4000 and 5000 almost always work."""
        k2: float = ranged(1.0, low=0.0)
        """Values above 1 raise the gradient from hard negatives, which k1 lowers."""
        supervised: bool = True
        """Positives share a label. false: positives are views of one image."""

        @property
        def needs_labels(self) -> bool:
            return self.supervised

    settings: Settings

    @property
    def knobs(self) -> LossSettings:
        return LossSettings(self.settings.temperature, self.settings.k1, self.settings.k2)

    def pair_loss(self, z_ND: Tensor, groups_N: Tensor) -> Tensor:
        knobs = self.settings
        return tcl_loss(z_ND, groups_N, temperature=knobs.temperature, k1=knobs.k1, k2=knobs.k2, distributed=True)
