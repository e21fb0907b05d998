"""Pair losses as pure functions, and thin Modules over three of them."""

from contune.losses.arb import arb_loss
from contune.losses.clusters import sinkhorn, sinkhorn_of_cosines, swapped_prediction_loss
from contune.losses.contrastive import ntxent_loss, supcon_loss, tcl_loss
from contune.losses.distillation import dino_loss
from contune.losses.infonce import infonce_loss
from contune.losses.metric import npair_loss, triplet_loss
from contune.losses.modules import NTXentLoss, SupConLoss, TCLLoss
from contune.losses.prediction import negative_cosine_loss, regression_loss
from contune.losses.redundancy import barlow_twins_loss, vicreg_loss
from contune.losses.relation import relation_loss
from contune.losses.whitening import wmse_loss

__all__ = [
    "NTXentLoss",
    "SupConLoss",
    "TCLLoss",
    "arb_loss",
    "barlow_twins_loss",
    "dino_loss",
    "infonce_loss",
    "negative_cosine_loss",
    "npair_loss",
    "ntxent_loss",
    "regression_loss",
    "relation_loss",
    "sinkhorn",
    "sinkhorn_of_cosines",
    "supcon_loss",
    "swapped_prediction_loss",
    "tcl_loss",
    "triplet_loss",
    "vicreg_loss",
    "wmse_loss",
]
