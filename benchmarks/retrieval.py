"""Time and memory of `contune.retrieval`, and its values against a dense computation and pytorch-metric-learning.

    python benchmarks/retrieval.py --out benchmarks/results/retrieval-h200.json
    python benchmarks/retrieval.py --queries 1000 --references 5000          # a quick try on a CPU
    python benchmarks/retrieval.py --device cpu --alone --repeats 1          # full size on a CPU

Hardware: one GPU with 40 GiB or more (1 minute), or a CPU; --alone leaves out the others, which hold whole matrices.
Wanted on an H200: under 1 s for 10,000 queries and 50,000 references with 512 features, and the same values.

Times leave out NMI, k-means by scikit-learn on the CPU, which has its own row. Memory is the peak above what embeddings
and labels take: the allocator's on a GPU, the resident size of the process on a CPU.
"""

import re
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
import torch.nn.functional as F
from common import Row, digits, parser, release_memory, show, start, write
from torch import Tensor

import contune

KEYS = ("recall@1", "recall@5", "recall@10", "map@r", "r_precision")
Values = dict[str, float]


def dense(x_ND: Tensor, labels_N: Tensor, q_QD: Tensor, labels_Q: Tensor) -> Values:
    """All similarities and a stable sort of every row."""
    order_QN = (F.normalize(q_QD) @ F.normalize(x_ND).T).argsort(dim=1, descending=True, stable=True)
    hits_QN = labels_N[order_QN] == labels_Q[:, None]
    hits_QN = hits_QN[hits_QN.any(dim=1)]
    R_Q1 = hits_QN.sum(dim=1, keepdim=True)
    rank_R = torch.arange(1, int(R_Q1.max()) + 1, device=x_ND.device)
    hits_QR = (hits_QN[:, : len(rank_R)] & (rank_R <= R_Q1)).double()
    precision_QR = hits_QR.cumsum(dim=1) / rank_R
    found = {f"recall@{k}": hits_QN[:, :k].any(dim=1).double() for k in (1, 5, 10)}
    found |= {"map@r": ((precision_QR * hits_QR) / R_Q1).sum(dim=1), "r_precision": (hits_QR / R_Q1).sum(dim=1)}
    return {key: 100 * value_Q.mean().item() for key, value_Q in found.items()}


def metric_learning(x_ND: Tensor, labels_N: Tensor, q_QD: Tensor, labels_Q: Tensor) -> Values:
    from pytorch_metric_learning.distances import CosineSimilarity
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
    from pytorch_metric_learning.utils.inference import CustomKNN

    names = {"precision_at_1": "recall@1", "mean_average_precision_at_r": "map@r", "r_precision": "r_precision"}
    knn = CustomKNN(CosineSimilarity(), batch_size=1000)
    calculator = AccuracyCalculator(
        include=tuple(names), k="max_bin_count", device=x_ND.device, knn_func=knn, kmeans_func=knn
    )
    found = calculator.get_accuracy(q_QD, labels_Q, x_ND, labels_N, ref_includes_query=False)
    return {ours: 100 * found[theirs] for theirs, ours in names.items()}


def peak_mib(device: torch.device) -> float:
    """The highest use of memory so far: the allocator's on a GPU, on a CPU that of the process (Linux only)."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) / 2**10 if found else 0.0


def measured(name: str, call: Callable[[], Values], device: torch.device, repeats: int) -> Row:
    """Values and memory of a first call, the median time of the others."""
    release_memory(device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts over at what is resident now
    before = peak_mib(device)
    values, times = call(), []
    grown = peak_mib(device) - before
    for _ in range(repeats):
        begun = time.perf_counter()
        call()  # ends with numbers on the host
        times.append(1000 * (time.perf_counter() - begun))
    return {"name": name, "ms": median(times), "peak_mib": grown, "values": values}


def main() -> None:
    options = parser(__doc__, "retrieval")
    options.add_argument("--queries", type=int, default=10_000)
    options.add_argument("--references", type=int, default=50_000)
    options.add_argument("--dim", type=int, default=512)
    options.add_argument("--classes", type=int, default=1000, help="of unequal sizes [default: 1000]")
    options.add_argument("--repeats", type=int, default=9, help="calls to time [default: 9]")
    options.add_argument("--alone", action="store_true", help="measure contune only, without NMI")
    arguments = options.parse_args()
    device, out = start(arguments, "retrieval")
    generator = torch.Generator().manual_seed(0)
    centers = torch.randn(arguments.classes, arguments.dim, generator=generator)
    batch: list[Tensor] = []
    for num in (arguments.references, arguments.queries):
        labels = (arguments.classes * torch.rand(num, generator=generator) ** 1.5).long()
        noise = torch.randn(num, arguments.dim, generator=generator)
        batch += [(centers[labels] + 2.5 * noise).to(device), labels.to(device)]

    forms: dict[str, Callable[[], Values]] = {"contune": lambda: contune.retrieval(*batch, nmi=False)}
    if not arguments.alone:
        forms["contune, with NMI"] = lambda: contune.retrieval(*batch)
        forms["dense"] = lambda: dense(*batch)
        forms["pytorch-metric-learning"] = lambda: metric_learning(*batch)
    rows: list[Row] = []
    for name, call in forms.items():
        rows.append(measured(name, call, device, 1 if "NMI" in name else arguments.repeats))
        own, found = rows[0]["values"], rows[-1]["values"]
        rows[-1]["largest_difference"] = max(abs(found[key] - own[key]) for key in KEYS if key in found)
        rows[-1]["ratio"] = rows[-1]["ms"] / rows[0]["ms"]
    sizes = {name: getattr(arguments, name) for name in ("queries", "references", "dim", "classes")}
    write(out, device, {"bench": "retrieval", **sizes, "rows": rows})
    cells = [
        (
            row["name"],
            digits(row["ms"]),
            digits(row["ratio"]),
            digits(row["peak_mib"]),
            f"{row['largest_difference']:.1e}",
        )
        for row in rows
    ]
    title = f"{arguments.queries:,} queries, {arguments.references:,} references, {arguments.dim} features"
    show(title, ("", "ms", "ratio", "peak MiB", "largest difference, points"), cells)
    print(f"\nrows  {out}")


if __name__ == "__main__":
    main()
