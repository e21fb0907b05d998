"""Time every contrastive loss and every kind of labels against `tcl_loss` with numbers for k1 and k2.

    python benchmarks/loss_modes.py --out benchmarks/results/loss-modes-h200.json
    python benchmarks/loss_modes.py --sizes 256 --rounds 2                      # a quick try on a CPU

Every round times all of them once, in a new random order, forward and backward from embeddings that are not
normalized. A ratio is the median over rounds of a loss's time over that of `tcl_loss` in the same round. Memory is the
peak above what the embeddings and labels take. Errors are those of the gradient against the dense form in float64 at
N = 192. Limits that contune sets itself: automatic k1 and k2 at most 1.1 times, other losses 1.5 times, label matrices
of 100 classes twice the time. Hardware: one H200, half a minute.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

import contune

NUM_CLASSES = 100
LOSSES: dict[str, Callable[..., Tensor]] = {
    "TCL, k1 = 5000, k2 = 1": partial(contune.tcl_loss, k1=5000.0, k2=1.0),
    "TCL, automatic k1 and k2": contune.tcl_loss,
    "SupCon": contune.supcon_loss,
    "SINCERE": contune.sincere_loss,
    "ε-SupInfoNCE": contune.eps_supinfonce_loss,
    "supervised DCL": contune.dcl_loss,
}
MATRIX = " with a label matrix"


def gradient(loss: Callable[..., Tensor], z_ND: Tensor, labels_N: Tensor, **options: object) -> Tensor:
    z_ND = z_ND.detach().requires_grad_()
    return torch.autograd.grad(loss(z_ND, labels_N, temperature=0.1, **options), z_ND)[0]


def cases(labels_N: Tensor) -> dict[str, tuple[Callable[..., Tensor], Tensor]]:
    matrix_NC = torch.nn.functional.one_hot(labels_N, NUM_CLASSES).float()
    found = {name: (loss, labels_N) for name, loss in LOSSES.items()}
    return found | {name + MATRIX: (LOSSES[name], matrix_NC) for name in list(LOSSES)[:3]}


def problem(num: int, device: str) -> tuple[Tensor, dict[str, tuple[Callable[..., Tensor], Tensor]]]:
    generator = torch.Generator().manual_seed(0)
    z_ND = torch.randn(num, 128, generator=generator).to(device)
    return z_ND, cases((torch.arange(num) % NUM_CLASSES).to(device))


def milliseconds(call: Callable[[], object], device: str, repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - start))
    return median(times)


def peak_mib(call: Callable[[], object], device: str) -> float | None:
    if device != "cuda":
        return None
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1024,32768", help="numbers of views, separated by commas")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=None)
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = []
    for num in map(int, arguments.sizes.split(",")):
        z_ND, timed = problem(num, device)
        small_ND, checked = problem(192, device)
        calls, errors = {}, {}
        for name, (loss, labels) in timed.items():
            exact = gradient(loss, small_ND.double(), checked[name][1], backend="dense")
            off = gradient(loss, small_ND, checked[name][1]).double() - exact
            errors[name] = (off.abs().max() / exact.abs().max()).item()
            calls[name] = partial(gradient, loss, z_ND, labels)
            milliseconds(calls[name], device, 5)
        times: dict[str, list[float]] = {name: [] for name in calls}
        for number in range(arguments.rounds):
            for name in random.Random(number).sample(list(calls), len(calls)):
                times[name].append(milliseconds(calls[name], device, 20))
        baseline = times[next(iter(LOSSES))]
        for name, seen in times.items():
            ratio = median(mine / base for mine, base in zip(seen, baseline, strict=True))
            row = {"N": num, "name": name, "ms": median(seen), "ratio": ratio, "error": errors[name]}
            row["MiB"] = peak_mib(calls[name], device)
            rows.append(row)
            memory = "" if row["MiB"] is None else f"  {row['MiB']:8.1f} MiB"
            print(f"N={num:<6} {name:45} {median(seen):8.3f} ms  {ratio:5.2f}x  error {errors[name]:.1e}{memory}")
    hardware = torch.cuda.get_device_name() if device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    if arguments.out:
        record = {"command": sys.argv[1:], "hardware": hardware, "torch": torch.__version__, "rows": rows}
        arguments.out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
