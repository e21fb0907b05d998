"""How a training step is run: as it is, recorded as a CUDA graph, with its forward pass compiled, or its norms fused.

A GPU finishes the kernels of a small network's step faster than Python starts them, and batch-norm, ReLU and
addition, one kernel each, move more memory than the convolutions between them. Recording answers the first; the
second the compiler, which fuses them, or, for ResNets, kernels of our own.
"""

import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from contune import distributed
from contune.device import Autocast
from contune.errors import UserError
from contune.methods.base import Output

STEPS_WORTH_COMPILING = 3000
"""The compiler takes up to two minutes the first time, and less than a minute from its cache."""
STEPS_WORTH_MORE_THAN_FUSED = 100_000
"""Our own kernels are ready in seconds, compiled ones are a few per cent faster: by the rates in `benchmarks/README.md`
these have caught up after some 50,000 steps of a ResNet-50 and 200,000 of a ResNet-18."""

Forward = Callable[[Sequence[Tensor], Tensor | None], Output]


class Engine(NamedTuple):
    compiled: bool
    """Forward pass, autocast and loss compiled as one."""
    recorded: bool
    """The whole step replayed as one CUDA graph."""
    fused: bool = False
    """Batch-norm, addition and ReLU of ResNets by `models.fused_resnet`."""

    def __str__(self) -> str:
        names = {"compiled": self.compiled, "fused": self.fused, "recorded as a CUDA graph": self.recorded}
        return " and ".join(word for word, on in names.items() if on) or "eager"


def choose_engine(name: str, *, device: torch.device, num_steps: int, fusable: bool) -> Engine:
    """`compile` records as well where that is possible; `auto` compiles on a GPU when the run is long enough.

    fusable: whether the network has norms that `fused` has kernels for.
    """
    recordable = can_record(device)
    if name in ("graph", "fused") and not recordable:
        raise UserError(f"run.engine={name} takes a single process on a CUDA device; use run.engine=auto")
    if name == "fused" and not fusable:
        raise UserError(
            "run.engine=fused has kernels for ResNets with batch-norm, which this is not; use run.engine=auto"
        )
    if name == "eager":
        return Engine(compiled=False, recorded=False)
    fusable = fusable and recordable
    worthwhile = num_steps >= (STEPS_WORTH_MORE_THAN_FUSED if fusable else STEPS_WORTH_COMPILING)
    compiled = name == "compile" or (name == "auto" and device.type == "cuda" and worthwhile)
    fused = name == "fused" or (name == "auto" and fusable and not compiled)
    return Engine(compiled=compiled, recorded=recordable, fused=fused)


def can_record(device: torch.device) -> bool:
    return device.type == "cuda" and distributed.world_size() == 1


def eager_forward(model: nn.Module, autocast: Autocast) -> Forward:
    def forward(views: Sequence[Tensor], labels_B: Tensor | None) -> Output:
        with autocast():
            output: Output = model(views, labels_B)
        return output

    return forward


def compiled_forward(model: nn.Module, autocast: Autocast) -> Forward:
    """The same numbers but for the order of additions. What was compiled is kept for the next run."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path.home() / ".cache" / "contune" / "compiled"))
    # Advice on what precision to take; the few float32 products of a step are float32 on purpose.
    warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores", category=UserWarning)
    eager = eager_forward(model, autocast)

    def parts(
        views: Sequence[Tensor], labels_B: Tensor | None
    ) -> tuple[Tensor, Tensor, dict[str, Tensor], dict[str, Tensor]]:
        output = eager(views, labels_B)
        return output.loss, output.features_ND, output.metrics, output.state

    compiled = torch.compile(parts, dynamic=False)

    def forward(views: Sequence[Tensor], labels_B: Tensor | None) -> Output:
        return Output(*compiled(views, labels_B))

    return forward
