"""Problems for the loss engine, every backend's answer to them, and its distance from float64 on the whole matrix."""

import random
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations, product
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from contune.kernels import LossSettings
from contune.losses import dcl_loss, dispatch, sincere_loss, supcon_loss, tcl_loss

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
"""Where `fused` runs: through Triton's interpreter where there is no GPU."""
CLASSES: dict[str, Callable[[int], int]] = {"one": lambda _: 1, "two": lambda _: 2, "half": lambda num: num // 2}
ASKING = {"anchors": slice(0, 1), "candidates": slice(1, 2), "both": slice(0, 2)}
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": lambda z: z,
    "turned": lambda z: z.T.contiguous().T,
    "gaps": lambda z: z.repeat_interleave(2, dim=1)[:, ::2],
}
LossOf = Callable[..., Tensor]
LOSSES: dict[str, dict[str, Any]] = {
    "tcl": {},
    "auto": {"kind": "auto"},
    "sincere": {"kind": "sincere", "k1": 0.0},
    "epsilon": {"kind": "sincere", "k1": 0.0, "epsilon": 2.0},
    "dcl": {"kind": "dcl", "k1": 0.0},
}
"""Changes of a case's settings; `auto` takes its k1 for r."""


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
    loss: str = "tcl"

    def __str__(self) -> str:
        return "-".join(str(value) for value in self)


class Answer(NamedTuple):
    """In float64, on the CPU."""

    loss: Tensor
    grads: list[Tensor]


def inputs_of(case: Case) -> dict[str, Tensor | None]:
    """The case's tensors in float64, the same for every backend."""
    draw = torch.Generator().manual_seed(case.num * 7919 + case.dim)
    columns = case.candidates or case.num
    z, candidates = (_embeddings(rows, case, draw) for rows in (case.num, columns))
    labels, candidate_labels = (_labels(rows, case, draw) for rows in (case.num, columns))
    # Neither symmetric nor free on the diagonal, and some rows without any positive.
    mask = torch.rand(case.num, columns, generator=draw) < torch.rand(case.num, 1, generator=draw) * 0.4
    weights = mask * torch.rand(case.num, columns, generator=draw, dtype=torch.float64)
    if case.pairs == "matrix":
        labels, candidate_labels = (_label_matrix(rows, case, draw) for rows in (case.num, columns))
    by_labels = case.pairs in ("labels", "matrix")
    shape = (case.num,) if case.reduction == "none" else ()
    return {
        "z": z,
        "labels": labels if by_labels else None,
        "positives": {"mask": mask, "weights": weights}.get(case.pairs),
        "candidates": candidates if case.candidates else None,
        "candidate_labels": candidate_labels if by_labels and case.candidates else None,
        "upstream": torch.randn(shape, generator=draw, dtype=torch.float64) * 3,
    }


def answer(
    case: Case,
    backend: str,
    dtype: torch.dtype = torch.float64,
    *,
    rounded: torch.dtype | None = None,
    precision: str = "high",
) -> Answer:
    """rounded: the type that embeddings are brought to first, so that an oracle sees what the other one saw."""
    device = DEVICE if backend == "fused" else torch.device("cpu")
    given = {name: None if x is None else x.to(device) for name, x in inputs_of(case).items()}
    for name in ("z", "candidates"):
        x = given[name]
        if x is not None:
            given[name] = LAYOUTS[case.layout](x.to(rounded or dtype).to(dtype)).detach()
    upstream = given.pop("upstream")
    assert upstream is not None
    both = [given["z"], given["candidates"]]
    leaves = [x.requires_grad_() for x in (both[ASKING[case.asking]] if case.candidates else both[:1]) if x is not None]
    settings = LossSettings(case.temperature, case.k1, case.k2, case.variant)._replace(**LOSSES[case.loss])
    how: dict[str, Any] = {"precision": precision, "normalize": case.normalize, "reduction": case.reduction}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*no anchor in this batch")
        # Infinities that a mask then drops: a GPU is silent about them, the interpreter's numpy is not.
        warnings.filterwarnings("ignore", "(overflow|invalid value|divide by zero) encountered", RuntimeWarning)
        loss = dispatch.pair_loss(**given, settings=settings, backend=backend, **how)  # type: ignore[arg-type]
        grads = torch.autograd.grad(loss, leaves, upstream.to(loss.dtype))
    assert all(grad.dtype == dtype for grad in grads)
    return Answer(loss.detach().double().cpu(), [grad.double().cpu() for grad in grads])


def well_conditioned(case: Case) -> bool:
    """Whether float32 can tell.

    With a single class `in` is constant but for k1's part, its gradient a remainder. Of few anchors ε-SupInfoNCE may be
    close to 0, where ε and the rest cancel.
    """
    if case.loss == "epsilon":
        return case.num > 3
    return not (case.classes == "one" and case.variant == "in" and case.loss == "tcl")


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
    """Of length 0.5 to 1.5 where they are not normalized, and of any length where they are."""
    z = torch.randn(rows, case.dim, generator=draw, dtype=torch.float64)
    length = torch.rand(rows, 1, generator=draw, dtype=torch.float64) + 0.5
    return z if case.normalize else F.normalize(z, dim=1) * length


def _labels(rows: int, case: Case, draw: torch.Generator) -> Tensor:
    """In random order and not from 0, with gaps; `all` gives every embedding its own."""
    if case.classes == "all":
        return torch.randperm(rows, generator=draw) * 3 + 5
    return torch.randint(0, max(1, CLASSES[case.classes](case.num)), (rows,), generator=draw) * 3 + 5


def _label_matrix(rows: int, case: Case, draw: torch.Generator) -> Tensor:
    """About two labels per row, some rows with none; soft, but multi-hot where there are two classes."""
    classes = case.dim + 5
    matrix = torch.rand(rows, classes, generator=draw, dtype=torch.float64)
    matrix *= torch.rand(rows, classes, generator=draw) < 2 / classes
    return (matrix > 0).double() if case.classes == "two" else matrix.float().double()


class Way(NamedTuple):
    """To compute a loss."""

    backend: str
    dtype: torch.dtype
    precision: str = "high"

    def __str__(self) -> str:
        return f"{self.backend}-{self.precision}-{self.dtype}".replace("torch.", "")

    def tensor(self, values: Tensor) -> Tensor:
        return values.to(DEVICE if self.backend == "fused" else "cpu")

    @property
    def settings(self) -> dict[str, Any]:
        return {"backend": self.backend, "precision": self.precision}


DENSE, CHUNKED = Way("dense", torch.float64), Way("chunked", torch.float64)
FUSED = [Way("fused", torch.float32), Way("fused", torch.float32, "fast")]
WAYS = [DENSE, Way("dense", torch.float32), CHUNKED, Way("chunked", torch.float32), *FUSED]
every_way = pytest.mark.parametrize("way", WAYS, ids=str)
closed_ways = pytest.mark.parametrize("way", WAYS[2:], ids=str)
"""The ones with a gradient in closed form."""
quiet = pytest.mark.filterwarnings("ignore::RuntimeWarning")
"""Triton's interpreter computes with numpy, which warns of infinities and NaN where a GPU does not."""


def rows(num: int, dim: int = 6, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(num, dim, generator=torch.Generator().manual_seed(num), dtype=torch.float64).to(dtype)


paper_tcl = partial(tcl_loss, k1=5000.0, k2=1.0)
EVERY_LOSS: dict[str, Callable[..., Tensor]] = {
    "auto": tcl_loss,
    "tcl": paper_tcl,
    "sincere": sincere_loss,
    "dcl": dcl_loss,
}
every_loss = pytest.mark.parametrize("loss_of", [*EVERY_LOSS.values(), supcon_loss], ids=[*EVERY_LOSS, "supcon"])


def supcon_in(z: Tensor, labels: Tensor, **settings: Any) -> Tensor:
    return supcon_loss(z, labels, variant="in", **settings)


def solved(
    way: Way, z: Tensor, labels: Tensor, *, loss_of: LossOf = paper_tcl, **settings: Any
) -> tuple[Tensor, Tensor]:
    """Loss and gradient of its sum, in float64."""
    leaf = way.tensor(z.to(way.dtype)).detach().requires_grad_()
    loss = loss_of(leaf, way.tensor(labels), **(way.settings | settings))
    (grad,) = torch.autograd.grad(loss.sum(), leaf)
    return loss.detach().double().cpu(), grad.double().cpu()


class _LargestTensor(TorchDispatchMode):
    num_elements: int = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        made = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.num_elements = max([self.num_elements, *made])
        return result


def largest_tensor(compute: Callable[[Tensor], Tensor], z_ND: Tensor) -> int:
    """Elements of the largest tensor that `compute` and its gradient make."""
    leaf = z_ND.detach().requires_grad_()
    largest = _LargestTensor()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    with largest:
        torch.autograd.grad(compute(leaf), leaf)
    return largest.num_elements


def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """NaN in all memory that is handed out unwritten."""

    def poisoned(make: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
        tensor = make(*args, **kwargs)
        return tensor.fill_(torch.nan if tensor.is_floating_point() else 10**6)

    monkeypatch.setattr(torch, "empty", partial(poisoned, torch.empty))
    monkeypatch.setattr(torch, "empty_like", partial(poisoned, torch.empty_like))
    new_empty = Tensor.new_empty
    monkeypatch.setattr(Tensor, "new_empty", lambda *args, **kwargs: poisoned(new_empty, *args, **kwargs))
    assert torch.empty(3).isnan().all()
    assert torch.ones(3).new_empty(2).isnan().all()
