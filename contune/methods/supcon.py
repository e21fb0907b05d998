"""The supervised contrastive loss (Khosla et al. 2020) and its relatives: methods that differ only in the loss."""

from dataclasses import dataclass

from torch import Tensor

from contune import distributed, losses
from contune.kernels import LossSettings
from contune.losses.dispatch import VARIANTS
from contune.methods.pairwise import PairwiseMethod
from contune.settings import one_of, ranged


class SoftmaxMethod(PairwiseMethod):
    """A loss over the exponentials of similarities divided by a temperature."""

    @dataclass(kw_only=True)
    class Settings(PairwiseMethod.Settings):
        temperature: float = ranged(0.1, above=0.0)
        """Similarities are divided by it. Lower values give hard pairs more weight."""

    settings: Settings


class SINCERE(SoftmaxMethod):
    """Each positive against the negatives alone (Feeney and Hughes 2023). It has no parameter but the temperature."""

    def pair_loss(self, z_ND: Tensor, groups_N: Tensor, reduction: str = "mean") -> Tensor:
        temperature = self.settings.temperature
        return losses.sincere_loss(z_ND, groups_N, temperature=temperature, reduction=reduction, distributed=True)


class EpsSupInfoNCE(SINCERE):
    """SINCERE with a margin (Barbano et al. 2023)."""

    @dataclass(kw_only=True)
    class Settings(SINCERE.Settings):
        epsilon: float = ranged(0.25, low=0.0)
        """The margin, in units of similarity over temperature. 0 is SINCERE."""

    settings: Settings

    def pair_loss(self, z_ND: Tensor, groups_N: Tensor, reduction: str = "mean") -> Tensor:
        temperature, epsilon = self.settings.temperature, self.settings.epsilon
        return losses.eps_supinfonce_loss(
            z_ND, groups_N, temperature=temperature, epsilon=epsilon, reduction=reduction, distributed=True
        )


class DCL(SoftmaxMethod):
    """Decoupled contrastive learning (Yeh et al. 2022) with labels: positives are not in the denominator."""

    def pair_loss(self, z_ND: Tensor, groups_N: Tensor, reduction: str = "mean") -> Tensor:
        temperature = self.settings.temperature
        return losses.dcl_loss(z_ND, groups_N, temperature=temperature, reduction=reduction, distributed=True)


class NPair(SoftmaxMethod):
    """Compares each positive pair with all negatives of its anchor (Sohn 2016)."""

    gathers = True

    def pair_loss(self, z_ND: Tensor, groups_N: Tensor, reduction: str = "mean") -> Tensor:
        z_ND, groups_N = distributed.gather(z_ND), distributed.gather(groups_N)
        return losses.npair_loss(z_ND, groups_N, temperature=self.settings.temperature, reduction=reduction)


class SupCon(SoftmaxMethod):
    """The supervised contrastive loss on labels."""

    @dataclass(kw_only=True)
    class Settings(SoftmaxMethod.Settings):
        variant: str = one_of("out", VARIANTS)
        """Position of the mean over positives: `out`side the logarithm (the paper's choice) or `in`side."""

    settings: Settings

    @property
    def knobs(self) -> LossSettings:
        return LossSettings(self.settings.temperature, 0.0, 1.0, self.settings.variant)

    def pair_loss(self, z_ND: Tensor, groups_N: Tensor, reduction: str = "mean") -> Tensor:
        temperature, variant = self.settings.temperature, self.settings.variant
        return losses.supcon_loss(
            z_ND, groups_N, temperature=temperature, variant=variant, reduction=reduction, distributed=True
        )


class SimCLR(SoftmaxMethod):
    """NT-Xent between the views of each image (Chen et al. 2020), with the head of the paper's comparison."""

    @dataclass(kw_only=True)
    class Settings(SoftmaxMethod.Settings):
        temperature: float = ranged(0.2, above=0.0)
        projector_hidden: int | None = ranged(2048, low=1)
        projector_dim: int = ranged(256, low=1)

        @property
        def needs_labels(self) -> bool:
            return False

    settings: Settings

    @property
    def knobs(self) -> LossSettings:
        return LossSettings(self.settings.temperature, 0.0, 1.0)

    def pair_loss(self, z_ND: Tensor, groups_N: Tensor, reduction: str = "mean") -> Tensor:
        temperature = self.settings.temperature
        return losses.ntxent_loss(z_ND, groups_N, temperature=temperature, reduction=reduction, distributed=True)


class Triplet(PairwiseMethod):
    """Compares each anchor with its farthest positive and its nearest negative (Hermans et al. 2017)."""

    @dataclass(kw_only=True)
    class Settings(PairwiseMethod.Settings):
        margin: float = ranged(0.3, low=0.0)
        """How much farther away a negative has to be than a positive."""

    settings: Settings
    gathers = True

    def pair_loss(self, z_ND: Tensor, groups_N: Tensor, reduction: str = "mean") -> Tensor:
        z_ND, groups_N = distributed.gather(z_ND), distributed.gather(groups_N)
        return losses.triplet_loss(z_ND, groups_N, margin=self.settings.margin, reduction=reduction)
