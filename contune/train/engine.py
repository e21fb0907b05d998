"""How a training step runs: eager, captured as a CUDA graph, with its forward pass compiled, or its norms fused.

A GPU finishes the kernels of a small network's step faster than Python launches them, and batch-norm, ReLU and
addition, one kernel each, move more memory than the convolutions between them. Capturing solves the first problem.
The compiler, or for ResNets custom kernels, solves the second by fusing them.
"""

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from contune import distributed
from contune.device import Autocast
from contune.errors import UserError
from contune.methods.base import Method, Output

STEPS_WORTH_COMPILING = 3000
"""The compiler takes up to two minutes the first time, and less than a minute from its cache."""
STEPS_WORTH_MORE_THAN_FUSED = 100_000
"""Custom kernels are ready in seconds, compiled ones are a few per cent faster: by the rates in `benchmarks/README.md`
the compiler has caught up after some 50,000 steps of a ResNet-50 and 200,000 of a ResNet-18."""
WARMUP_CALLS = 3
"""Eager calls before a capture, so that optimizer state and cached constants exist."""
CHECKED = "checked"
"""Among the outputs of a checked step: its loss and its largest gradient."""
TAKEN = "taken"
"""Among the outputs of a checked step: 1 if it was taken, 0 if it was undone. The other outputs are then 0 too."""

Step = Callable[[Tensor, Tensor | None], dict[str, Tensor]]
"""From raw images and labels to the scalars worth a curve."""
Forward = Callable[[Sequence[Tensor], Tensor | None], Output]
Part = nn.Module | torch.optim.Optimizer
"""Something that a step changes."""


class Engine(NamedTuple):
    compiled: bool
    """Forward pass, autocast and loss compiled as one."""
    captured: bool
    """The whole step replayed as one CUDA graph."""
    fused: bool = False
    """Batch-norm, addition and ReLU of ResNets by custom kernels."""

    def __str__(self) -> str:
        names = {"compiled": self.compiled, "fused": self.fused, "captured as a CUDA graph": self.captured}
        return " and ".join(word for word, on in names.items() if on) or "eager"


def choose_engine(name: str, *, device: torch.device, num_steps: int, fusable: bool, in_chunks: bool = False) -> Engine:
    """`compile` captures as well where that is possible; `auto` compiles on a GPU when the run is long enough.

    fusable: whether the network has norms that `fused` has kernels for.
    in_chunks: by `cached_step`, whose random states cannot be captured. A chunk is large enough to hide its launches.
    """
    capturable = can_capture(device)
    if name in ("graph", "fused") and not capturable:
        raise UserError(f"run.engine={name} needs a single process on a CUDA device; use run.engine=auto")
    if name == "fused" and not fusable:
        raise UserError("run.engine=fused has kernels only for ResNets with batch-norm; use run.engine=auto")
    if name == "eager":
        return Engine(compiled=False, captured=False)
    fusable = fusable and capturable
    if in_chunks:
        return Engine(compiled=False, captured=False, fused=fusable and name in ("auto", "fused"))
    worthwhile = num_steps >= (STEPS_WORTH_MORE_THAN_FUSED if fusable else STEPS_WORTH_COMPILING)
    compiled = name == "compile" or (name == "auto" and device.type == "cuda" and worthwhile)
    fused = name == "fused" or (name == "auto" and fusable and not compiled)
    return Engine(compiled=compiled, captured=capturable, fused=fused)


def can_capture(device: torch.device) -> bool:
    return device.type == "cuda" and distributed.world_size() == 1


def eager_forward(model: nn.Module, autocast: Autocast) -> Forward:
    def forward(views: Sequence[Tensor], labels_B: Tensor | None) -> Output:
        with autocast():
            output: Output = model(views, labels_B)
        return output

    return forward


def compiled_forward(model: nn.Module, autocast: Autocast) -> Forward:
    """The same numbers but for the order of additions. The compiled code is cached for the next run."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path.home() / ".cache" / "contune" / "compiled"))
    # Advice on precision; the few float32 products of a step are float32 on purpose.
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


def cached_step(
    encoder: nn.Module, loss: Callable[..., Tensor], views: Tensor | Sequence[Tensor], *, micro_batch: int
) -> Tensor:
    """`loss(encoder(views)).backward()` for large batches, with the activations of `micro_batch` views at a time.

        for each chunk of views: encode it without gradient
        compute the loss of all embeddings and its gradient with respect to them
        for each chunk of views: encode it again, and backpropagate its part of that gradient

    This is gradient caching (Gao et al. 2021). It costs a second forward pass. The result is exact for encoders in
    which rows do not depend on each other. Batch norm normalizes by the statistics of a chunk instead of the batch;
    only the second pass updates its running statistics. Dropout repeats its random numbers in the second pass. Autocast
    works inside the encoder and around this call. DistributedDataParallel synchronizes in the last chunk.

    Args:
        encoder: from (n, …) views to (n, …) embeddings, or to a tuple of such tensors.
        loss: of the embeddings of all views, stacked; called with as many tensors as the encoder returns.
        views: (N, …), or several such tensors, such as one for each view of a batch. A chunk is part of one of them.

    Returns the loss, detached. The gradients are in `.grad`, added to what was there.
    """
    if micro_batch < 1:
        raise UserError(f"micro_batch must be 1 or more, got {micro_batch}")
    tensors = [views] if isinstance(views, Tensor) else views
    chunks = [chunk for view in tensors for chunk in view.split(micro_batch)]
    on_gpu, device = chunks[0].is_cuda, chunks[0].device

    def random_state() -> tuple[Tensor, Tensor | None]:
        return torch.get_rng_state(), torch.cuda.get_rng_state(device) if on_gpu else None

    def set_random_state(cpu: Tensor, gpu: Tensor | None) -> None:
        torch.set_rng_state(cpu)
        if gpu is not None:
            torch.cuda.set_rng_state(gpu, device)

    def encode(chunk: Tensor) -> tuple[Tensor, ...]:
        outputs = encoder(chunk)
        return (outputs,) if isinstance(outputs, Tensor) else outputs

    states, outputs = [], []
    with torch.no_grad():
        buffers = [buffer.clone() for buffer in encoder.buffers()]
        for chunk in chunks:
            states.append(random_state())
            outputs.append(encode(chunk))
        for buffer, before in zip(encoder.buffers(), buffers, strict=True):
            buffer.copy_(before)
    torch.clear_autocast_cache()  # it holds copies of the weights that have no gradient
    embeddings = [torch.cat(parts).requires_grad_() for parts in zip(*outputs, strict=True)]
    del outputs
    value = loss(*embeddings)
    value.backward()
    after = random_state()
    sizes = [len(chunk) for chunk in chunks]
    gradients = [None if z.grad is None else z.grad.split(sizes) for z in embeddings]
    for number, (chunk, state) in enumerate(zip(chunks, states, strict=True)):
        set_random_state(*state)
        is_last = number + 1 == len(chunks)
        with nullcontext() if is_last else getattr(encoder, "no_sync", nullcontext)():
            pairs = [(z, own[number]) for z, own in zip(encode(chunk), gradients, strict=True) if own is not None]
            torch.autograd.backward([z for z, _ in pairs], [gradient for _, gradient in pairs])
    set_random_state(*after)
    return value.detach()


class Embedder(nn.Module):
    """The part of a method that `cached_step` runs chunk by chunk: from views to features and embeddings."""

    def __init__(self, method: Method, autocast: Autocast) -> None:
        super().__init__()
        self.method, self.autocast = method, autocast

    def forward(self, view_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        with self.autocast():
            features_BD = self.method.encoder(view_BCHW)
            return features_BD.detach(), self.method.embed(features_BD)


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
            # A loader's thread pins memory meanwhile, which the default mode takes for an error of the capture.
            with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
                self.outputs = self.step(self.images_BCHW, self.labels_B)
        self.images_BCHW.copy_(images_BCHW)
        if self.labels_B is not None and labels_B is not None:
            self.labels_B.copy_(labels_B)
        self.graph.replay()
        return self.outputs


def checked(step: Step, method: nn.Module, changed: Iterable[Part], *, skip: bool) -> Step:
    """`step` that also returns its loss and its largest gradient, which show whether it was finite.

    With `skip`, a step that was not finite is undone: everything it `changed` gets its old value back. All of it
    happens on the device, so that it can be captured.
    """
    changed = list(changed)

    def run(images_BCHW: Tensor, labels_B: Tensor | None) -> dict[str, Tensor]:
        before = {key: tensor.clone() for key, tensor in changed_tensors(changed)} if skip else {}
        outputs = step(images_BCHW, labels_B)
        loss, gradient = outputs["loss"].detach().float(), largest_gradient(method)
        if skip:
            bad = ~(loss.isfinite() & gradient.isfinite())
            fine = distributed.total(bad.float()) == 0  # in every process
            with torch.no_grad():
                for key, tensor in changed_tensors(changed):
                    # State that the step has created becomes zeros, which optimizers start from.
                    old = before[key] if key in before else torch.zeros_like(tensor)
                    tensor.copy_(torch.where(fine, tensor, old))
            outputs = {name: torch.where(fine, value.detach(), 0.0) for name, value in outputs.items()}
            outputs[TAKEN] = fine.float()
        return {**outputs, CHECKED: torch.stack([loss, gradient])}

    return run


def largest_gradient(module: nn.Module) -> Tensor:
    """The largest absolute value in any gradient, NaN where one is NaN; a sum of squares would overflow earlier."""
    gradients = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    return torch.stack(torch._foreach_norm(gradients, float("inf"))).max()


def changed_tensors(parts: Iterable[Part]) -> Iterator[tuple[tuple[int, object, str], Tensor]]:
    """Everything that a step may change, each with a key: weights, running statistics, queues, momenta."""
    for number, part in enumerate(parts):
        if isinstance(part, nn.Module):
            for name, tensor in [*part.named_parameters(), *part.named_buffers()]:
                yield (number, None, name), tensor.detach()
        else:
            for parameter, state in part.state.items():
                for name, value in state.items():
                    if isinstance(value, Tensor):
                        yield (number, parameter, name), value
