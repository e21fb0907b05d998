"""Pair losses as pure functions, and thin Modules over three of them."""

from contune.losses.contrastive import NTXentLoss, SupConLoss, TCLLoss, ntxent_loss, supcon_loss, tcl_loss
from contune.losses.metric import npair_loss, triplet_loss

__all__ = [
    "NTXentLoss",
    "SupConLoss",
    "TCLLoss",
    "npair_loss",
    "ntxent_loss",
    "supcon_loss",
    "tcl_loss",
    "triplet_loss",
]
