"""The supervised contrastive loss (Khosla et al. 2020) and its relatives: methods that differ only in the loss."""

from dataclasses import dataclass

from contune import losses
from contune.kernels import LossSettings
from contune.losses.contrastive import VARIANTS
from contune.methods.pairwise import PairwiseMethod, SoftmaxMethod
from contune.settings import one_of, ranged


class SINCERE(SoftmaxMethod):
    """Each positive against the negatives alone (Feeney and Hughes 2023): the N-pair loss (Sohn 2016)."""

    function = staticmethod(losses.sincere_loss)


class EpsSupInfoNCE(SINCERE):
    """SINCERE with a margin (Barbano et al. 2023)."""

    @dataclass(kw_only=True)
    class Settings(SINCERE.Settings):
        epsilon: float = ranged(0.25, low=0.0)
        """The margin, in units of similarity over temperature. 0 is SINCERE."""

    settings: Settings
    function, parameters_of_loss = staticmethod(losses.eps_supinfonce_loss), ("temperature", "epsilon")


class DCL(SoftmaxMethod):
    """Decoupled contrastive learning (Yeh et al. 2022) with labels: positives are not in the denominator."""

    function = staticmethod(losses.dcl_loss)


class SupCon(SoftmaxMethod):
    """The supervised contrastive loss on labels."""

    @dataclass(kw_only=True)
    class Settings(SoftmaxMethod.Settings):
        variant: str = one_of("out", VARIANTS)
        """Position of the mean over positives: `out`side the logarithm (the paper's choice) or `in`side."""

        @property
        def knobs(self) -> LossSettings:
            return LossSettings(self.temperature, 0.0, 1.0, self.variant)

    settings: Settings
    function, parameters_of_loss = staticmethod(losses.supcon_loss), ("temperature", "variant")


class SimCLR(SoftmaxMethod):
    """NT-Xent between the views of each image (Chen et al. 2020), with the head of the paper's comparison."""

    @dataclass(kw_only=True)
    class Settings(SoftmaxMethod.Settings):
        needs_labels = False
        temperature: float = ranged(0.2, above=0.0)
        projector_hidden: int | None = ranged(2048, low=1)
        projector_dim: int = ranged(256, low=1)

        @property
        def knobs(self) -> LossSettings:
            return LossSettings(self.temperature, 0.0, 1.0)

    settings: Settings
    function = staticmethod(losses.ntxent_loss)


class Triplet(PairwiseMethod):
    """Compares each anchor with its farthest positive and its nearest negative (Hermans et al. 2017)."""

    @dataclass(kw_only=True)
    class Settings(PairwiseMethod.Settings):
        margin: float = ranged(0.3, low=0.0)
        """How much farther away a negative has to be than a positive."""

    settings: Settings
    function, parameters_of_loss, gathers = staticmethod(losses.triplet_loss), ("margin",), True
