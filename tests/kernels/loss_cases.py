"""Problems for the loss engine, every backend's answer to them, and how far it is from float64 on the whole matrix."""

import random
import warnings
from collections.abc import Callable, Sequence
from itertools import combinations, product
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from contune.kernels.problem import Knobs
from contune.losses import pairs
from contune.losses.dispatch import pair_loss

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
"""Where `fused` runs: through Triton's interpreter where there is no GPU."""
CLASSES: dict[str, Callable[[int], int]] = {"one": lambda _: 1, "two": lambda _: 2, "half": lambda num: num // 2}
_ASKING = {"anchors": slice(0, 1), "candidates": slice(1, 2), "both": slice(0, 2)}
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": lambda z: z,
    "turned": lambda z: z.T.contiguous().T,
    "gaps": lambda z: z.repeat_interleave(2, dim=1)[:, ::2],
}


class Case(NamedTuple):
    num: int
    dim: int
    classes: str = "half"
    temperature: float = 0.1
    k1: float = 5000.0
    k2: float = 1.0
    variant: str = "out"
    pairs: str = "labels"
    reduction: str = "none"
    normalize: bool = True
    layout: str = "plain"
    candidates: int = 0
    asking: str = "both"
    """Who asks for a gradient: anchors, candidates or both."""

    def __str__(self) -> str:
        return "-".join(str(value) for value in self)


class Batch(NamedTuple):
    z: Tensor
    candidates: Tensor | None
    labels: Tensor | None
    candidate_labels: Tensor | None
    positives: Tensor | None
    upstream: Tensor


class Answer(NamedTuple):
    """In float64, on the CPU."""

    loss: Tensor
    grads: list[Tensor]


def batch_of(case: Case) -> Batch:
    """The case's tensors in float64, the same for every backend."""
    draw = torch.Generator().manual_seed(case.num * 7919 + case.dim)
    columns = case.candidates or case.num
    z, candidates = (_embeddings(rows, case, draw) for rows in (case.num, columns))
    labels, candidate_labels = (_labels(rows, case, draw) for rows in (case.num, columns))
    # Neither symmetric nor free on the diagonal, and some rows without any positive.
    mask = torch.rand(case.num, columns, generator=draw) < torch.rand(case.num, 1, generator=draw) * 0.4
    weights = mask * torch.rand(case.num, columns, generator=draw, dtype=torch.float64)
    shape = (case.num,) if case.reduction == "none" else ()
    return Batch(
        z,
        candidates if case.candidates else None,
        labels if case.pairs == "labels" else None,
        candidate_labels if case.pairs == "labels" and case.candidates else None,
        {"labels": None, "mask": mask, "weights": weights}[case.pairs],
        torch.randn(shape, generator=draw, dtype=torch.float64) * 3,
    )


def answer(
    case: Case,
    backend: str,
    dtype: torch.dtype = torch.float64,
    *,
    rounded: torch.dtype | None = None,
    precision: str = "high",
    device: torch.device | None = None,
) -> Answer:
    """rounded: the type that embeddings are brought to first, so that an oracle sees what the other one saw."""
    batch, device = batch_of(case), device or torch.device("cpu")
    z, candidates = (_laid_out(x, case, rounded or dtype, dtype, device) for x in (batch.z, batch.candidates))
    assert z is not None
    leaves = [z] if candidates is None else [z, candidates][_ASKING[case.asking]]
    for leaf in leaves:
        leaf.requires_grad_()
    with warnings.catch_warnings():
        _allow_what_kernels_do()
        given = (_to(batch.labels, device), _to(batch.positives, device))
        loss = pair_loss(
            pairs.Batch(z, *given, candidates, _to(batch.candidate_labels, device)),
            Knobs(case.temperature, case.k1, case.k2, case.variant, precision),
            normalize=case.normalize,
            reduction=case.reduction,
            backend=backend,
            distributed=False,
        )
        grads = torch.autograd.grad(loss, leaves, batch.upstream.to(device, loss.dtype))
    assert all(grad.dtype == dtype for grad in grads)
    return Answer(loss.detach().double().cpu(), [grad.double().cpu() for grad in grads])


def _allow_what_kernels_do() -> None:
    """Infinities that a mask then drops: a GPU says nothing of them, and the interpreter's numpy does."""
    warnings.filterwarnings("ignore", "no anchor in this batch")
    warnings.filterwarnings("ignore", "(overflow|invalid value|divide by zero) encountered", RuntimeWarning)


def well_conditioned(case: Case) -> bool:
    """Whether float32 can tell: `in` with a single class is constant but for k1's part, its gradient a remainder."""
    return not (case.classes == "one" and case.variant == "in")


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """In the L2 norm; where nothing is expected, anything but an exact zero is infinitely wrong."""
    difference = torch.linalg.vector_norm(actual - expected).item()
    return difference / torch.linalg.vector_norm(expected).item() if difference else 0.0


def assert_close(actual: Answer, expected: Answer, tolerance: float) -> None:
    assert relative_error(actual.loss, expected.loss) <= tolerance
    for one, other in zip(actual.grads, expected.grads, strict=True):
        assert relative_error(one, other) <= tolerance


def float32_tolerance(temperature: float) -> float:
    """1e-5, and more below τ = 0.1: rounding s by 6e-8 moves s/τ, and so the logarithm of exp(s/τ), by 6e-8/τ."""
    return 1e-5 * max(1.0, 0.1 / temperature)


def all_pairs(**axes: Sequence[Any]) -> list[Case]:
    """Few cases in which any two values of different axes meet: of 50 draws, always the one with most new pairs."""
    draw = random.Random(0)
    missing = {
        (one, other)
        for (name, values), (other_name, others) in combinations(axes.items(), 2)
        for one, other in product([(name, v) for v in values], [(other_name, v) for v in others])
    }
    cases = []
    while missing:
        seed = dict(draw.choice(sorted(missing, key=repr)))
        drawn = [{name: seed.get(name, draw.choice(values)) for name, values in axes.items()} for _ in range(50)]
        best = max(drawn, key=lambda case: len(missing.intersection(combinations(case.items(), 2))))
        missing -= set(combinations(best.items(), 2))
        cases.append(Case(**best))
    return cases


def _embeddings(rows: int, case: Case, draw: torch.Generator) -> Tensor:
    """Of length 0.5 to 1.5 where they are not normalised, and of any length where they are."""
    z = torch.randn(rows, case.dim, generator=draw, dtype=torch.float64)
    length = torch.rand(rows, 1, generator=draw, dtype=torch.float64) + 0.5
    return z if case.normalize else F.normalize(z, dim=1) * length


def _labels(rows: int, case: Case, draw: torch.Generator) -> Tensor:
    """In random order and not from 0, with gaps; `all` gives every embedding its own."""
    if case.classes == "all":
        return torch.randperm(rows, generator=draw) * 3 + 5
    return torch.randint(0, max(1, CLASSES[case.classes](case.num)), (rows,), generator=draw) * 3 + 5


def _laid_out(
    x: Tensor | None, case: Case, rounded: torch.dtype, dtype: torch.dtype, device: torch.device
) -> Tensor | None:
    return None if x is None else LAYOUTS[case.layout](x.to(rounded).to(device, dtype)).detach()


def _to(x: Tensor | None, device: torch.device) -> Tensor | None:
    return None if x is None else x.to(device)
