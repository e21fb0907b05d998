"""Three losses in which no positive pushes another one away: SINCERE, ε-SupInfoNCE and supervised DCL."""

from dataclasses import dataclass

from torch import Tensor

from contune.losses import dcl_loss, eps_supinfonce_loss, sincere_loss
from contune.methods.pairwise import PairwiseMethod
from contune.settings import ranged


class SINCERE(PairwiseMethod):
    """Each positive against the negatives alone (Feeney and Hughes 2023). It has no parameter but the temperature."""

    @dataclass(kw_only=True)
    class Settings(PairwiseMethod.Settings):
        temperature: float = ranged(0.1, above=0.0)
        """Similarities are divided by it. Lower values give hard pairs more weight."""

    settings: Settings

    def pair_loss(self, z_ND: Tensor, groups_N: Tensor) -> Tensor:
        return sincere_loss(z_ND, groups_N, temperature=self.settings.temperature, distributed=True)


class EpsSupInfoNCE(SINCERE):
    """SINCERE with a margin (Barbano et al. 2023)."""

    @dataclass(kw_only=True)
    class Settings(SINCERE.Settings):
        epsilon: float = ranged(0.25, low=0.0)
        """The margin, in units of similarity over temperature. 0 is SINCERE."""

    settings: Settings

    def pair_loss(self, z_ND: Tensor, groups_N: Tensor) -> Tensor:
        knobs = self.settings
        return eps_supinfonce_loss(
            z_ND, groups_N, temperature=knobs.temperature, epsilon=knobs.epsilon, distributed=True
        )


class DCL(SINCERE):
    """Decoupled contrastive learning (Yeh et al. 2022) with labels: positives are not in the denominator."""

    def pair_loss(self, z_ND: Tensor, groups_N: Tensor) -> Tensor:
        return dcl_loss(z_ND, groups_N, temperature=self.settings.temperature, distributed=True)
