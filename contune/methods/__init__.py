"""The methods, one file each. METHODS is the registry of their names."""

from contune.errors import unknown
from contune.methods.arb import ARB
from contune.methods.barlow_twins import BarlowTwins
from contune.methods.base import Method, Output
from contune.methods.byol import BYOL
from contune.methods.cross_entropy import CrossEntropy
from contune.methods.dino import DINO
from contune.methods.moco_v2 import MoCoV2
from contune.methods.npair import NPair
from contune.methods.ressl import ReSSL
from contune.methods.simclr import SimCLR
from contune.methods.simsiam import SimSiam
from contune.methods.supcon import SupCon
from contune.methods.swav import SwAV
from contune.methods.tcl import TCL
from contune.methods.triplet import Triplet
from contune.methods.vicreg import VICReg
from contune.methods.wmse import WMSE

METHODS: dict[str, type[Method]] = {
    "tcl": TCL,
    "supcon": SupCon,
    "simclr": SimCLR,
    "cross-entropy": CrossEntropy,
    "triplet": Triplet,
    "npair": NPair,
    "dino": DINO,
    "swav": SwAV,
    "byol": BYOL,
    "simsiam": SimSiam,
    "moco-v2": MoCoV2,
    "ressl": ReSSL,
    "vicreg": VICReg,
    "barlow-twins": BarlowTwins,
    "w-mse": WMSE,
    "arb": ARB,
}


def find_method(name: str) -> type[Method]:
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]


__all__ = ["METHODS", "Method", "Output", "find_method"]
