"""Tuned contrastive learning: train, evaluate and export an image encoder.

run = contune.train("photos/", epochs=50)       # or arrays, a torch Dataset, a Hugging Face dataset
loss = contune.tcl_loss(z, labels)              # in your own training loop
encoder = contune.load_encoder("runs/digits")   # the result of `contune train`
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contune.api import train as train
    from contune.embedding import embed as embed
    from contune.embedding import predict as predict
    from contune.embedding import search as search
    from contune.errors import UserError as UserError
    from contune.estimator import ContrastiveEncoder as ContrastiveEncoder
    from contune.eval.retrieval import retrieval as retrieval
    from contune.losses import *  # noqa: F403  # all of its names
    from contune.methods.base import encode_in_chunks as encode_in_chunks
    from contune.models import load_encoder as load_encoder

__version__ = "0.1.0"

_NAMES = {
    "contune.api": ("train",),
    "contune.embedding": ("embed", "predict", "search"),
    "contune.errors": ("UserError",),
    "contune.estimator": ("ContrastiveEncoder",),
    "contune.eval.retrieval": ("retrieval",),
    "contune.losses": (
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
    ),
    "contune.methods.base": ("encode_in_chunks",),
    "contune.models": ("load_encoder",),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}
__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    """Import public names on first use, so that `import contune` is fast."""
    if name not in _HOME:
        raise AttributeError(f"module 'contune' has no attribute {name!r}")
    return globals().setdefault(name, getattr(import_module(_HOME[name]), name))


def __dir__() -> list[str]:
    return sorted(__all__)
