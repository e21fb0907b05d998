"""Time and memory of the contrastive losses, compared with other implementations.

    python benchmarks/loss.py                                        # N = 256, 1,024, 4,096, d = 128
    python benchmarks/loss.py --sizes 1024,32768 --dims 128,512
    python benchmarks/loss.py --sizes 64,128 --seconds 0.1           # a quick try on a CPU

Hardware: one H200 (1 minute) or two CPU cores (2 minutes; --memory adds a process per row). Expected on an H200 at
N = 32,768: contune 2.6 ms in 50 MiB, the SupContrast form 25 times as long in 32 GiB (results/loss-h200-32768.json).

Equality comes first: value and gradient of every contestant at N = 192 against the dense form in float64. Whoever is
off is named and not timed; at every size the values are compared again. Everyone gets the same leaf of embeddings that
are not normalized, so that normalizing and the backward pass to that leaf are part of the work. Classes have equal
size, so every anchor has a positive; NT-Xent gets two stacked views. On a GPU every call starts on an idle device. With
--captured everyone's pass is a CUDA graph that is replayed, as in a captured training step.
"""

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from common import (
    Contestant,
    Row,
    digits,
    figure,
    numbers,
    over_sizes,
    parser,
    race,
    release_memory,
    save,
    show,
    start,
    summary,
    words,
    write,
)
from torch import Tensor

import contune
from contune.device import free_bytes, torchvision  # noqa: F401  (torchvision before lightly imports it by itself)
from contune.training.engine import on_side_stream

TEMPERATURE, K1, K2, NUM_CLASSES = 0.1, 5000.0, 1.0, 100
CHECK_SIZE = 192
TOLERANCES = {"float32": 1e-3, "float16": 3e-3, "bfloat16": 2e-2}
"""Relative, by the type of the embeddings: rounding a gradient to bfloat16 costs 1e-3 by itself."""
BASELINE = "contune"
TITLES = {"tcl": "TCL", "supcon": "SupCon", "ntxent": "NT-Xent"}
CONTUNE: dict[str, Callable[..., Tensor]] = {
    "tcl": partial(contune.tcl_loss, temperature=TEMPERATURE, k1=K1, k2=K2),
    "supcon": partial(contune.supcon_loss, temperature=TEMPERATURE),
    "ntxent": partial(contune.ntxent_loss, temperature=TEMPERATURE),
}


@dataclass(frozen=True, kw_only=True)
class Form:
    """An implementation of one loss."""

    name: str
    loss: str
    function: Callable[[Tensor, Tensor], Tensor]
    matrices: float = 0.0
    """N×N float32 matrices alive at its peak, to know beforehand what cannot fit."""
    note: str = ""
    comparable: bool = True
    """False for another formula, which is timed only."""


# ---------------------------------------------------------------------------- how public code computes these losses
# The same dense matrices in the same order, in our words: how many are alive, and where a mask is built, is the cost.


def paper_form(z: Tensor, labels: Tensor, *, k1: float, k2: float, host_mask: bool) -> Tensor:
    """TCL as in the code of the paper's authors; k1 = 0 is their SupCon, without the matrix of exp(-similarity)."""
    z_ND = F.normalize(z, dim=1)
    sim_NN = z_ND @ z_ND.T
    push_NN = torch.exp(sim_NN / TEMPERATURE)
    same_NN = labels[:, None].repeat(1, labels.shape[0]) == labels
    # Their code builds this mask on the host and copies it at every step.
    eye_NN = torch.eye(z.shape[0], dtype=z.dtype, device="cpu" if host_mask else z.device)
    positive_NN = same_NN * (1 - eye_NN).to(z.device)
    D_N = (push_NN * positive_NN).sum(dim=1) + k2 * (push_NN * ~same_NN).sum(dim=1)
    if k1 > 0:
        D_N = D_N + k1 * (torch.exp(-1 * sim_NN) * positive_NN).sum(dim=1)
    # Entry (i, p) is divided by the D of p, not of i: the same in a sum over all anchors.
    return ((-torch.log(push_NN / D_N) * positive_NN).sum(dim=1) / positive_NN.sum(dim=1)).mean()


def supcontrast_form(z: Tensor, labels: Tensor) -> Tensor:
    """The SupCon paper's code: log-probabilities over all others, then their mean over positives."""
    z_ND = F.normalize(z, dim=1)
    tempered_NN = (z_ND @ z_ND.T) / TEMPERATURE
    logits_NN = tempered_NN - tempered_NN.max(dim=1, keepdim=True)[0].detach()
    others_NN = 1 - torch.eye(z.shape[0], dtype=z.dtype, device=z.device)
    positive_NN = (labels[:, None] == labels[None, :]).to(z.dtype) * others_NN
    push_NN = torch.exp(logits_NN) * others_NN
    log_probability_NN = logits_NN - push_NN.sum(dim=1, keepdim=True).log()
    return -((positive_NN * log_probability_NN).sum(dim=1) / positive_NN.sum(dim=1)).mean()


def log_sum_exp_form(z: Tensor, labels: Tensor, *, k1: float) -> Tensor:
    """A dense form for the compiler: one log-sum-exp per anchor."""
    z_ND = F.normalize(z.float(), dim=1)
    sim_NN = z_ND @ z_ND.T
    other_NN = ~torch.eye(len(z), dtype=torch.bool, device=z.device)
    positive_NN = (labels[:, None] == labels) & other_NN
    terms_NN = torch.exp(sim_NN / TEMPERATURE - 1 / TEMPERATURE) * other_NN
    if k1 > 0:
        terms_NN = terms_NN + k1 * torch.exp(-sim_NN - 1 / TEMPERATURE) * positive_NN
    log_D_N1 = terms_NN.sum(1, keepdim=True).log() + 1 / TEMPERATURE
    return (((log_D_N1 - sim_NN / TEMPERATURE) * positive_NN).sum(1) / positive_NN.sum(1)).mean()


def all_forms(device: torch.device) -> tuple[list[Form], list[str]]:
    """Everyone who can take part on a device, and the libraries that are not installed."""
    cuda = device.type == "cuda"
    backends: list[tuple[str, dict[str, str], float]] = [(BASELINE, {}, 0), ("contune dense", {"backend": "dense"}, 10)]
    backends.append(("contune chunked", {"backend": "chunked"}, 0))
    if cuda:
        backends.append(("contune fused", {"backend": "fused"}, 0))
        backends.append(("contune fused, high", {"backend": "fused", "precision": "high"}, 0))
    forms = [
        Form(name=name, loss=loss, function=partial(function, **options), matrices=count)
        for loss, function in CONTUNE.items()
        for name, options, count in backends
    ]
    masks = {"TCL paper's form": True} | ({"TCL paper's form, mask on device": False} if cuda else {})
    for loss, k1 in (("tcl", K1), ("supcon", 0.0)):
        if cuda:
            compiled = torch.compile(partial(log_sum_exp_form, k1=k1), dynamic=False)
            forms.append(Form(name="torch.compile of dense", loss=loss, function=compiled, matrices=6))
        for name, host_mask in masks.items():
            function = partial(paper_form, k1=k1, k2=K2, host_mask=host_mask)
            forms.append(Form(name=name, loss=loss, function=function, matrices=8.5))
    forms += [
        Form(name="SupContrast form", loss=loss, function=supcontrast_form, matrices=8) for loss in ("supcon", "ntxent")
    ]
    peers = {"pytorch-metric-learning": metric_learning, "lightly": lightly} | ({"inf-cl": inf_cl} if cuda else {})
    missing = []
    for name, build in peers.items():
        try:
            version(name)
            forms += build()
        except (ImportError, PackageNotFoundError):
            missing.append(name)
    if cuda:
        note = "a sum and its backward pass, the least that a call takes"
        for loss in CONTUNE:
            forms.append(
                Form(name="autograd alone", loss=loss, function=lambda z, _: z.sum(), note=note, comparable=False)
            )
    return forms, missing


def metric_learning() -> list[Form]:
    losses, name = import_module("pytorch_metric_learning.losses"), "pytorch-metric-learning"
    ntxent = losses.NTXentLoss(temperature=TEMPERATURE)
    return [
        Form(name=name, loss="supcon", function=losses.SupConLoss(temperature=TEMPERATURE), matrices=12),
        Form(name=name, loss="ntxent", function=ntxent, matrices=float("nan"), note="its memory grows as N³"),
    ]


def lightly() -> list[Form]:
    loss = import_module("lightly.loss").NTXentLoss(temperature=TEMPERATURE)

    def of_two_views(z: Tensor, labels: Tensor) -> Tensor:
        value: Tensor = loss(*z.chunk(2))
        return value

    return [Form(name="lightly", loss="ntxent", function=of_two_views, matrices=5)]


def inf_cl() -> list[Form]:
    """As many pairs as the others; but the only positive is the same row, and is not masked out."""
    loss = import_module("inf_cl").cal_flash_loss

    def of_all_pairs(z: Tensor, labels: Tensor) -> Tensor:
        z_ND = F.normalize(z, dim=1)
        value: Tensor = loss(z_ND, z_ND, scale=1 / TEMPERATURE, head_dim=min(z.shape[1], 128))
        return value.mean()

    note = "another formula: CLIP's, no self-mask; time and memory only"
    return [Form(name="Inf-CL", loss="ntxent", function=of_all_pairs, note=note, comparable=False)]


# ---------------------------------------------------------------------------- equality, memory


def make_batch(loss: str, num: int, dim: int, device: torch.device, dtype: str) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(num + dim)
    z_ND = torch.randn(num, dim, generator=generator).to(device, getattr(torch, dtype)).requires_grad_()
    if loss == "ntxent":
        return z_ND, torch.arange(num // 2).repeat(2).to(device)
    labels_N = torch.arange(num) % min(NUM_CLASSES, num // 4)
    return z_ND, labels_N[torch.randperm(num, generator=generator)].to(device)


def check(form: Form, dim: int, device: torch.device, dtype: str) -> Row:
    """Relative errors of the value, and of the gradient in the L2 norm."""
    row: Row = {"name": form.name, "loss": form.loss, "dim": dim, "verdict": "not compared", "reason": form.note}
    if not form.comparable:
        return row
    z_ND, labels_N = make_batch(form.loss, CHECK_SIZE, dim, device, dtype)
    exact_ND = z_ND.detach().double().requires_grad_()
    expected = CONTUNE[form.loss](exact_ND, labels_N, backend="dense")
    try:
        value = form.function(z_ND, labels_N)
        pairs = [(value, expected), (torch.autograd.grad(value, z_ND)[0], torch.autograd.grad(expected, exact_ND)[0])]
    except Exception as error:  # third-party code may raise anything
        return row | {"verdict": "failed", "reason": f"{type(error).__name__}: {error}"}
    errors = [float((actual.detach().double() - right).norm() / right.norm()) for actual, right in pairs]
    equal = all(error <= TOLERANCES[dtype] for error in errors)  # never true of NaN
    row |= {"verdict": "equal" if equal else "disagrees", "reason": ""}
    return row | {"value_error": f"{errors[0]:.1e}", "gradient_error": f"{errors[1]:.1e}"}


def forward_backward(form: Form, z_ND: Tensor, labels_N: Tensor) -> Tensor:
    z_ND.grad = None
    loss = form.function(z_ND, labels_N)
    loss.backward()
    return loss.detach()


def captured(form: Form, z_ND: Tensor, labels_N: Tensor) -> Callable[[], Tensor]:
    """The pass as a CUDA graph."""
    with on_side_stream():
        for _ in range(3):
            forward_backward(form, z_ND, labels_N)
    z_ND.grad = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = forward_backward(form, z_ND, labels_N)

    def replay(gradient: object = z_ND.grad) -> Tensor:  # every replay writes to the gradient, so it is kept
        graph.replay()
        return loss

    return replay


def gpu_peak(form: Form, z_ND: Tensor, labels_N: Tensor) -> int:
    """The allocator's peak during one pass, less what was there before."""
    z_ND.grad = None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    forward_backward(form, z_ND, labels_N)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def cpu_peak(form: Form, num: int, dim: int, dtype: str) -> int | None:
    """Growth of the peak resident size of a fresh process, since a process's peak never falls."""
    request = json.dumps([form.name, form.loss, num, dim, dtype, torch.get_num_threads()])
    done = subprocess.run([sys.executable, __file__, "--child", request], capture_output=True, text=True, check=False)
    return int(done.stdout.split()[-1]) if done.returncode == 0 else None


def child(request: str) -> None:
    name, loss, num, dim, dtype, threads = json.loads(request)
    torch.set_num_threads(threads)
    device = torch.device("cpu")
    (form,) = (form for form in all_forms(device)[0] if (form.name, form.loss) == (name, loss))
    forward_backward(form, *make_batch(loss, 64, dim, device, dtype))
    batch = make_batch(loss, num, dim, device, dtype)
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # importing has a peak of its own; only Linux can start over

    def peak() -> int:
        """Linux hands the parent's ru_maxrss down to its children, so VmHWM is preferred."""
        status = Path("/proc/self/status")
        if status.exists():
            return 1024 * int(next(line for line in status.read_text().splitlines() if "VmHWM" in line).split()[1])
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

    before = peak()
    forward_backward(form, *batch)
    print(peak() - before)


# ---------------------------------------------------------------------------- the benchmark


def measure(forms: list[Form], num: int, dim: int, device: torch.device, arguments: Any) -> list[Row]:
    """The rows of one loss at one size."""
    batch = make_batch(forms[0].loss, num, dim, device, arguments.dtype)
    room = free_bytes(device) * (1.0 if device.type == "cuda" else 0.6)  # a host without memory kills processes
    field: list[Contestant] = []
    peaks: dict[str, int | None] = {}
    values: dict[str, float] = {}
    for form in forms:
        one = Contestant(name=form.name, call=partial(forward_backward, form, *batch), note=form.note)
        field.append(one)
        needed = 16 * num**3 if "N³" in form.note else 4 * form.matrices * num**2
        if needed > room:
            one.problem = f"would not fit: about {needed / 2**30:,.0f} GiB"
            continue
        try:
            values[form.name] = float(forward_backward(form, *batch))
            if device.type == "cuda":
                peaks[form.name] = gpu_peak(form, *batch)
            elif arguments.memory:
                peaks[form.name] = cpu_peak(form, num, dim, arguments.dtype)
            if arguments.captured:
                one.call = captured(form, *batch)
        except Exception as error:  # third-party code may raise anything
            text = (str(error).splitlines() or [""])[0]
            one.problem = "out of memory" if isinstance(error, torch.OutOfMemoryError) else f"failed: {text}"
            release_memory(device)
            continue
        # At full size too: a kernel can be right on a small batch and wrong on a large one.
        right = values.get(BASELINE, values[form.name])
        if form.comparable and not abs(values[form.name] - right) <= TOLERANCES[arguments.dtype] * abs(right):
            one.problem = f"disagrees at this size: {values[form.name]:.6g} where {BASELINE} has {right:.6g}"
    race(field, device, arguments.seconds, isolated=True)
    baseline = next((one for one in field if one.name == BASELINE), None)
    return [
        {"loss": forms[0].loss, "name": one.name, "n": num, "d": dim, **summary(one, baseline)}
        | {"peak_bytes": peaks.get(one.name), "note": one.note}
        for one in field
    ]


def draw(rows: list[Row], dim: int, title: str, path: Path) -> None:
    rows = [row | {"mib": row["peak_bytes"] and row["peak_bytes"] / 2**20} for row in rows if row["d"] == dim]
    losses = [loss for loss in TITLES if any(row["loss"] == loss for row in rows)]
    keys = {"ms": "time, ms"} | ({"mib": "peak extra memory, MiB"} if any(row["mib"] for row in rows) else {})
    names = list(dict.fromkeys(row["name"] for row in rows))
    drawing, panels = figure(len(keys), len(losses), title, 3.6)
    for line, (key, unit) in zip(panels, keys.items(), strict=True):
        for axes, loss in zip(line, losses, strict=True):
            over_sizes(axes, [row for row in rows if row["loss"] == loss], names, key, TITLES[loss], unit)
    handles = {
        text: mark for axes in drawing.axes for mark, text in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    drawing.legend([*handles.values()], [*handles], loc="outside lower center", ncols=4, frameon=False)
    save(drawing, path)


def main() -> None:
    options = parser(__doc__, "loss")
    options.add_argument("--sizes", type=numbers, default=[256, 1024, 4096], help="N, all views counted")
    options.add_argument("--dims", type=numbers, default=[128], help="d, length of an embedding")
    options.add_argument("--dtype", choices=TOLERANCES, default="float32", help="of the embeddings")
    options.add_argument(
        "--only", type=words, default=[], help="beginnings of contestants' names (whole names with --draw)"
    )
    options.add_argument("--memory", action="store_true", help="on a CPU, measure peak memory too")
    options.add_argument("--captured", action="store_true", help="on a GPU, replay every pass as a CUDA graph")
    options.add_argument("--child", help="for --memory: measure one pass in this process")
    options.add_argument("--draw", nargs="+", type=Path, help="draw the rows of these results instead of measuring")
    arguments = options.parse_args()
    if arguments.draw:
        results = [json.loads(path.read_text()) for path in arguments.draw]
        kept = [
            row for result in results for row in result["rows"] if not arguments.only or row["name"] in arguments.only
        ]
        title = f"Contrastive losses, forward + backward, d = 128, {results[0]['hardware']}"
        draw(kept, 128, title, arguments.out.with_suffix(".png"))
        return
    if arguments.child:
        child(arguments.child)
        return
    device, out = start(arguments, "loss")
    forms, missing = all_forms(device)
    forms = [form for form in forms if not arguments.only or form.name.startswith(tuple(arguments.only))]
    if missing:
        print(f"not installed, so not compared: {', '.join(missing)}")
    checks: list[Row] = []
    rows: list[Row] = []
    settings = {"dtype": arguments.dtype, "num_classes": NUM_CLASSES, "temperature": TEMPERATURE, "k1": K1, "k2": K2}
    settings |= {"seconds": arguments.seconds, "captured": arguments.captured, "check_size": CHECK_SIZE}
    for dim in arguments.dims:
        checks += [check(form, dim, device, arguments.dtype) for form in forms]
        columns = ("loss", "name", "value_error", "gradient_error", "verdict", "reason")
        cells = [tuple(row.get(column, "") for column in columns) for row in checks if row["dim"] == dim]
        show(f"equality at N = {CHECK_SIZE}, d = {dim}: relative error against dense in float64", columns, cells)
        right = {(row["name"], row["loss"]) for row in checks if row["verdict"] in ("equal", "not compared")}
        for num in arguments.sizes:
            torch.compiler.reset()  # it gives up after eight shapes otherwise
            for loss in TITLES:
                own = [form for form in forms if form.loss == loss and (form.name, loss) in right]
                if not own:
                    continue
                new = measure(own, num, dim, device, arguments)
                rows += new
                cells = [
                    (
                        row["name"],
                        digits(row["ms"]),
                        f"{digits(row['ms_q1'])} to {digits(row['ms_q3'])}",
                        digits(row["ratio"]),
                        digits(row["peak_bytes"] and row["peak_bytes"] / 2**20),
                        row["note"] if row["status"] == "timed" else row["status"],
                    )
                    for row in new
                ]
                columns = ("contestant", "ms", "quartiles", "× contune", "extra MiB", "note")
                show(f"{TITLES[loss]}, N = {num:,}, d = {dim}, forward + backward", columns, cells)
                result = {"bench": "loss", **settings, "not_installed": missing, "checks": checks, "rows": rows}
                write(out, device, result)
    for dim in arguments.dims:
        name = out.with_suffix(".png") if len(arguments.dims) == 1 else out.with_name(f"{out.stem}-d{dim}.png")
        draw(rows, dim, f"Contrastive losses, forward + backward, d = {dim}, {device.type}", name)


if __name__ == "__main__":
    main()
