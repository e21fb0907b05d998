"""W-MSE: whitening for self-supervised representation learning (Ermolov et al. 2021)."""

from dataclasses import dataclass

from torch import Tensor

from contune.losses import wmse_loss
from contune.methods.view_pairs import ViewPairMethod
from contune.settings import ranged


class WMSE(ViewPairMethod):
    """Views that agree after the batch has been whitened, which keeps it from collapsing.

    The paper can whiten several random splits of a batch and take the mean; its runs on CIFAR use one, as here.
    """

    @dataclass(kw_only=True)
    class Settings(ViewPairMethod.Settings):
        projector_hidden: int = ranged(1024, low=1)
        projector_dim: int = ranged(64, low=1)
        whitening_size: int = ranged(128, low=2)
        """How many samples are whitened together, more than projector_dim; twice as many work well."""

    settings: Settings
    num_hidden = 1

    def view_loss(self, z1_BD: Tensor, z2_BD: Tensor) -> Tensor:
        return wmse_loss(z1_BD, z2_BD, size=self.settings.whitening_size)
