"""The methods, one file each or one for a family. METHODS is their registry. Importing this file imports no torch."""

from pkgutil import resolve_name
from typing import TYPE_CHECKING

from contune.errors import check_known

if TYPE_CHECKING:
    from contune.methods.base import Method

METHODS = {
    "tcl": "tcl:TCL",
    "supcon": "supcon:SupCon",
    "sincere": "supcon:SINCERE",
    "eps-supinfonce": "supcon:EpsSupInfoNCE",
    "dcl": "supcon:DCL",
    "simclr": "supcon:SimCLR",
    "cross-entropy": "cross_entropy:CrossEntropy",
    "triplet": "supcon:Triplet",
    "npair": "supcon:SINCERE",
    "dino": "dino:DINO",
    "swav": "swav:SwAV",
    "byol": "byol:BYOL",
    "simsiam": "simsiam:SimSiam",
    "moco-v2": "moco_v2:MoCoV2",
    "ressl": "ressl:ReSSL",
    "vicreg": "vicreg:VICReg",
    "barlow-twins": "barlow_twins:BarlowTwins",
    "w-mse": "wmse:WMSE",
    "arb": "arb:ARB",
}
"""Name to the module in this folder and the class in it. `find_method` imports it."""


def find_method(name: str) -> "type[Method]":
    check_known("method", name, METHODS)
    method: type[Method] = resolve_name(f"contune.methods.{METHODS[name]}")
    return method
