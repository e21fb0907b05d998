"""How a training step runs: eager, captured as a CUDA graph, with its forward pass compiled, or its norms fused.

A GPU finishes the kernels of a small network's step faster than Python launches them, and batch-norm, ReLU and
addition, one kernel each, move more memory than the convolutions between them. Capturing solves the first problem.
The compiler, or for ResNets custom kernels, solves the second by fusing them.
"""

import gc
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from contune import distributed
from contune.errors import UserError
from contune.eval.probes import Step as Step

STEPS_WORTH_COMPILING = 3000
"""The compiler takes up to two minutes the first time, and less than a minute from its cache."""
STEPS_WORTH_MORE_THAN_FUSED = 100_000
"""Custom kernels are ready in seconds, compiled ones are a few per cent faster: by the rates in `benchmarks/README.md`
the compiler has caught up after some 50,000 steps of a ResNet-50 and 200,000 of a ResNet-18."""
WARMUP_CALLS = 3
"""Eager calls before a capture, so that optimizer state and cached constants exist."""
CHECKED = "checked"
"""Among the outputs of a step: its loss and its largest gradient, which show whether it was finite."""
TAKEN = "taken"
"""Among the outputs of an undoable step: 1 if it was taken, 0 if it was undone. The other outputs are then 0 too."""

Part = nn.Module | torch.optim.Optimizer
"""Something that a step changes."""


class Engine(NamedTuple):
    compiled: bool = False
    """Forward pass, autocast and loss compiled as one."""
    captured: bool = False
    """The whole step replayed as one CUDA graph."""
    fused: bool = False
    """Batch-norm, addition and ReLU of ResNets by custom kernels."""

    def __str__(self) -> str:
        words = ["compiled"] * self.compiled + ["fused"] * self.fused + ["captured as a CUDA graph"] * self.captured
        return " and ".join(words) or "eager"


def choose_engine(name: str, *, device: torch.device, num_steps: int, fusable: bool, in_chunks: bool = False) -> Engine:
    """`compile` captures as well where that is possible; `auto` compiles on a GPU when the run is long enough.

    fusable: whether the network has norms that `fused` has kernels for.
    Processes that share a GPU always train eagerly, as `process_group` has said: gloo waits on the host.
    in_chunks: by `encode_in_chunks`, whose random states cannot be captured. Chunks are large enough to hide launches.
    """
    capturable = can_capture(device)
    if name == "eager" or (device.type == "cuda" and distributed.uses_gloo()):
        return Engine()
    if name in ("graph", "fused") and not capturable:
        raise UserError(f"run.engine={name} needs a single process on a CUDA device; use run.engine=auto")
    if name == "fused" and not fusable:
        raise UserError("run.engine=fused has kernels only for ResNets with batch-norm; use run.engine=auto")
    fusable = fusable and capturable
    worthwhile = num_steps >= (STEPS_WORTH_MORE_THAN_FUSED if fusable else STEPS_WORTH_COMPILING)
    compiled = not in_chunks and (name == "compile" or (name == "auto" and device.type == "cuda" and worthwhile))
    fused = fusable and (name == "fused" or (name == "auto" and not compiled))
    return Engine(compiled=compiled, captured=capturable and not in_chunks, fused=fused)


def can_capture(device: torch.device) -> bool:
    return device.type == "cuda" and distributed.world_size() == 1


def compiled(model: nn.Module) -> nn.Module:
    """The same numbers but for the order of additions. The compiled code is cached for the next run."""
    # Advice on precision; the few float32 products of a step are float32 on purpose.
    warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores", category=UserWarning)
    return torch.compile(model, dynamic=False)  # type: ignore[return-value]  # it is a module too


@contextmanager
def on_side_stream() -> Iterator[None]:
    """For the calls before a capture, which runs on a side stream too: memory and libraries are set up by stream."""
    current, side = torch.cuda.current_stream(), torch.cuda.Stream()
    side.wait_stream(current)
    with torch.cuda.stream(side):
        yield
    current.wait_stream(side)


class CapturedStep:
    """A step as a CUDA graph: called a few times eagerly, then captured, then replayed with a single launch.

    The shapes of images and labels must not change. Each call overwrites what the last one returned. Random numbers
    come from `generator`, which may be reseeded before each call.
    """

    def __init__(self, step: Step, generator: torch.Generator) -> None:
        self.step, self.generator = step, generator
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.images_BCHW: Tensor
        self.labels_B: Tensor | None
        self.outputs: dict[str, Tensor]

    def __call__(self, images_BCHW: Tensor, labels_B: Tensor | None) -> dict[str, Tensor]:
        self.calls += 1
        if self.calls <= WARMUP_CALLS:
            with on_side_stream():
                return self.step(images_BCHW, labels_B)
        if self.graph is None:
            self.images_BCHW = images_BCHW.clone()
            self.labels_B = None if labels_B is None else labels_B.clone()
            self.graph = torch.cuda.CUDAGraph()
            self.graph.register_generator_state(self.generator)
            gc.collect()  # a stopped run may have left its graph in a cycle, and a capture must not free graphs
            # A loader's thread pins memory meanwhile, which the default mode takes for an error of the capture.
            with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
                self.outputs = self.step(self.images_BCHW, self.labels_B)
        self.images_BCHW.copy_(images_BCHW)
        if self.labels_B is not None and labels_B is not None:
            self.labels_B.copy_(labels_B)
        self.graph.replay()
        return self.outputs


def undoable(step: Step, changed: Iterable[Part]) -> Step:
    """`step`, undone if it was not finite: everything it `changed` gets its old value back.

    All of it happens on the device, so that it can be captured.
    """
    changed = list(changed)

    def run(images_BCHW: Tensor, labels_B: Tensor | None) -> dict[str, Tensor]:
        before = {key: tensor.clone() for key, tensor in changed_tensors(changed)}
        outputs = step(images_BCHW, labels_B)
        is_bad = ~outputs[CHECKED].isfinite().all()
        fine = distributed.total(is_bad.float()) == 0  # in every process
        for key, tensor in changed_tensors(changed):  # state that the step created becomes zeros, as optimizers start
            tensor.copy_(torch.where(fine, tensor, before.get(key, 0.0)))
        shown = {name: torch.where(fine, value.detach(), 0.0) for name, value in outputs.items()}
        return {**shown, TAKEN: fine.float(), CHECKED: outputs[CHECKED]}

    return run


def largest_gradient(module: nn.Module) -> Tensor:
    """The largest absolute value in any gradient, NaN where one is NaN; a sum of squares would overflow earlier."""
    gradients = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    return torch.stack(torch._foreach_norm(gradients, float("inf"))).max()


def changed_tensors(parts: Iterable[Part]) -> Iterator[tuple[object, Tensor]]:
    """Everything that a step may change, with a key: weights, running statistics, queues, momenta."""
    for part in parts:
        if isinstance(part, nn.Module):
            tensors = (*part.named_parameters(), *part.named_buffers())
            yield from (((part, name), tensor.detach()) for name, tensor in tensors)
        else:
            own = ((parameter, name, value) for parameter, state in part.state.items() for name, value in state.items())
            yield from (((parameter, name), value) for parameter, name, value in own if isinstance(value, Tensor))
