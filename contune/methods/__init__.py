"""The methods, each in a file of its own."""

from contune.errors import unknown
from contune.methods.base import Method, Output
from contune.methods.cross_entropy import CrossEntropy
from contune.methods.npair import NPair
from contune.methods.simclr import SimCLR
from contune.methods.supcon import SupCon
from contune.methods.tcl import TCL
from contune.methods.triplet import Triplet

METHODS: dict[str, type[Method]] = {
    "tcl": TCL,
    "supcon": SupCon,
    "simclr": SimCLR,
    "cross-entropy": CrossEntropy,
    "triplet": Triplet,
    "npair": NPair,
}


def find_method(name: str) -> type[Method]:
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]


__all__ = ["METHODS", "Method", "Output", "find_method"]
