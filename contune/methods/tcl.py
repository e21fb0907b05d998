"""Tuned Contrastive Learning, section 3.2 of the paper."""

from dataclasses import dataclass
from typing import Literal

from contune.kernels import LossSettings
from contune.losses import tcl_loss
from contune.losses.contrastive import tcl_settings
from contune.methods.pairwise import SoftmaxMethod
from contune.settings import ranged


class TCL(SoftmaxMethod):
    """The tuned contrastive loss on labels or, with `supervised=false`, on the views of each image.

    Without labels the paper uses positive triplets: three views of each image (augment.views=3).
    """

    @dataclass(kw_only=True)
    class Settings(SoftmaxMethod.Settings):
        k1: float | Literal["auto"] = ranged("auto", low=0.0)
        """Values above 0 raise the gradient from hard positives. `auto` chooses one for each anchor in each step."""
        k2: float | Literal["auto"] = ranged("auto", low=0.0)
        """Values above 1 raise the gradient from hard negatives, which k1 lowers. `auto` is 1 + r."""
        r: float = ranged(0.3, low=0.0)
        """For `auto`: the size of k1's term relative to the positives' in the loss's denominator. 0 is SupCon."""
        supervised: bool = True
        """Positives share a label. false: positives are views of one image."""

        @property
        def needs_labels(self) -> bool:  # type: ignore[override]  # follows another setting
            return self.supervised

        @property
        def knobs(self) -> LossSettings:
            return tcl_settings(self.temperature, self.k1, self.k2, self.r)

    settings: Settings
    function, parameters_of_loss = staticmethod(tcl_loss), ("temperature", "k1", "k2", "r")
