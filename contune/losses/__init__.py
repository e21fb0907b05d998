"""Pair losses as pure functions, and thin Modules over most of them."""

from contune.losses.contrastive import (
    DCLLoss,
    EpsSupInfoNCELoss,
    NTXentLoss,
    SINCERELoss,
    SupConLoss,
    TCLLoss,
    dcl_loss,
    eps_supinfonce_loss,
    ntxent_loss,
    sincere_loss,
    supcon_loss,
    tcl_loss,
)
from contune.losses.metric import npair_loss, triplet_loss

__all__ = [
    "DCLLoss",
    "EpsSupInfoNCELoss",
    "NTXentLoss",
    "SINCERELoss",
    "SupConLoss",
    "TCLLoss",
    "dcl_loss",
    "eps_supinfonce_loss",
    "npair_loss",
    "ntxent_loss",
    "sincere_loss",
    "supcon_loss",
    "tcl_loss",
    "triplet_loss",
]
