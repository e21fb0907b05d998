"""Who takes part: contune in each of its forms, what public code does, and the libraries that are installed."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from contune import __version__
from contune.bench import dense_forms
from contune.kernels import dense
from contune.kernels.problem import Knobs
from contune.losses import contrastive
from contune.losses.dispatch import BACKENDS, PRECISIONS
from contune.losses.pairs import Batch

LossFunction = Callable[[Tensor, Tensor], Tensor]
"""From a leaf of embeddings that are not of length 1, and labels, to a scalar."""

Footprint = Callable[[int], float]

TEMPERATURE, K1, K2 = 0.1, 5000.0, 1.0
BASELINE = "contune"
_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "tcl": partial(contrastive.tcl_loss, temperature=TEMPERATURE, k1=K1, k2=K2),
    "supcon": partial(contrastive.supcon_loss, temperature=TEMPERATURE),
    "ntxent": partial(contrastive.ntxent_loss, temperature=TEMPERATURE),
}


@dataclass(frozen=True, kw_only=True)
class Contestant:
    name: str
    loss: str
    """What it computes: `tcl`, `supcon` or `ntxent`."""
    function: LossFunction
    source: str
    """Where the code is from, with its version."""
    footprint: Footprint
    """Bytes it holds at its peak, roughly, for a batch of N: to know beforehand what cannot fit."""
    note: str = ""
    timing_only: bool = False
    """It computes something else, so equality is not asked of it; the note says what."""


def matrices(count: float) -> Footprint:
    """So many float32 matrices of N×N at the same time."""
    return lambda num: count * 4 * num**2


def reference_loss(loss: str, z: Tensor, labels: Tensor) -> Tensor:
    """What everyone is held to: the dense form in float64."""
    return _FUNCTIONS[loss](z.double(), labels, backend="dense")


def own_contestants(device: torch.device, *, compiled: bool) -> list[Contestant]:
    """contune with everything on `auto` first; it is what the others are compared with."""
    return [contestant for loss in _FUNCTIONS for contestant in _own(loss, device)] + (_compiled() if compiled else [])


def _own(loss: str, device: torch.device) -> list[Contestant]:
    function = _FUNCTIONS[loss]
    precisions = [name for name in PRECISIONS if name != inspect.signature(function).parameters["precision"].default]
    forms: list[tuple[str, dict[str, str]]] = [(BASELINE, {})]
    for backend in BACKENDS:
        if backend == "auto" or (backend == "fused" and device.type != "cuda"):
            continue
        forms.append((f"contune {backend}", {"backend": backend}))
        if backend == "fused":  # the only one that knows more than one precision
            forms += [(f"contune fused, {name}", {"backend": backend, "precision": name}) for name in precisions]
    return [
        Contestant(
            name=name,
            loss=loss,
            function=partial(function, **arguments),
            source=f"contune {__version__}",
            footprint=matrices(10.5 if arguments.get("backend") == "dense" else 0),
        )
        for name, arguments in forms
    ]


def _compiled() -> list[Contestant]:
    """NT-Xent is left out: it is SupCon's code with other labels, and compiling takes its time."""
    source = f"contune {__version__}, torch.compile"
    return [
        Contestant(
            name="torch.compile of dense", loss=loss, function=_compile(k1), source=source, footprint=matrices(6)
        )
        for loss, k1 in (("tcl", K1), ("supcon", 0.0))
    ]


def _compile(k1: float) -> LossFunction:
    def loss(z: Tensor, labels: Tensor) -> Tensor:
        z_ND = F.normalize(z.float(), dim=1)
        batch = Batch(z_ND, labels, None)
        weights_NN = batch.weights(z_ND.dtype)
        loss_N, _ = dense.loss_per_anchor(z_ND @ z_ND.T, weights_NN, batch.itself(), Knobs(TEMPERATURE, k1, K2))
        return loss_N.mean()

    return torch.compile(loss, dynamic=False)


def floor_contestants() -> list[Contestant]:
    """The sum of all embeddings: what a call with its backward pass takes, whatever it computes."""
    return [
        Contestant(
            name="autograd alone",
            loss=loss,
            function=lambda z, labels: z.sum(),
            source=f"torch {torch.__version__}",
            footprint=matrices(0),
            note="a sum and its backward pass, the least that a call takes",
            timing_only=True,
        )
        for loss in _FUNCTIONS
    ]


def transcribed_contestants(device: torch.device) -> list[Contestant]:
    """On a GPU the paper's form is there twice, as it is and with its mask built on the device: most of its time
    there goes into a mask that it builds on the host.
    """
    entries = _authors(" form", host_mask=True)
    if device.type == "cuda":
        entries += _authors(" form, mask on device", host_mask=False)
    for loss in ("supcon", "ntxent"):
        entries.append(
            Contestant(
                name="SupContrast form",
                loss=loss,
                function=partial(dense_forms.supcontrast, temperature=TEMPERATURE),
                source="own transcription",
                footprint=matrices(8),
            )
        )
    return entries


def _authors(suffix: str, *, host_mask: bool) -> list[Contestant]:
    tcl = partial(dense_forms.authors_tcl, temperature=TEMPERATURE, k1=K1, k2=K2, host_mask=host_mask)
    supcon = partial(dense_forms.authors_supcon, temperature=TEMPERATURE, host_mask=host_mask)
    name, source = "TCL paper's" + suffix, "own transcription"
    return [
        Contestant(name=name, loss="tcl", function=tcl, source=source, footprint=matrices(8.5)),
        Contestant(name=name, loss="supcon", function=supcon, source=source, footprint=matrices(7.5)),
    ]
