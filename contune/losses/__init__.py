"""Pair losses as pure functions, and thin Modules over most of them."""

from contune.losses.contrastive import DCLLoss as DCLLoss
from contune.losses.contrastive import EpsSupInfoNCELoss as EpsSupInfoNCELoss
from contune.losses.contrastive import NTXentLoss as NTXentLoss
from contune.losses.contrastive import SINCERELoss as SINCERELoss
from contune.losses.contrastive import SupConLoss as SupConLoss
from contune.losses.contrastive import TCLLoss as TCLLoss
from contune.losses.contrastive import dcl_loss as dcl_loss
from contune.losses.contrastive import eps_supinfonce_loss as eps_supinfonce_loss
from contune.losses.contrastive import npair_loss as npair_loss
from contune.losses.contrastive import ntxent_loss as ntxent_loss
from contune.losses.contrastive import sincere_loss as sincere_loss
from contune.losses.contrastive import supcon_loss as supcon_loss
from contune.losses.contrastive import tcl_loss as tcl_loss
from contune.losses.contrastive import triplet_loss as triplet_loss
