"""Time a training step and the loss next to busy processes: do waiting threads waste the CPU's time?

    python benchmarks/cpu_busy.py                     # with contune's setting of GOMP_SPINCOUNT, idle and busy
    python benchmarks/cpu_busy.py --spin 1000,4000    # with others

The busy processes are endless Python loops, one pinned to each core. A fair share is then half of the CPU: twice the
idle time. Linux with GNU OpenMP; a few minutes, on a machine where nothing else runs. Expected on two cores of an AMD
EPYC: at most 1.3 times the fair share.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

RESULTS = Path(__file__).parent / "results"
STEP = """
import os, sys, time
from statistics import median
from contune.training.trainer import Trainer

take_step, times = Trainer.take_step, []

def timed(self, *batch):
    metrics = take_step(self, *batch)
    times.append(time.perf_counter())
    if len(times) == 62:
        print(1000 * median(after - before for before, after in zip(times[11:], times[12:])), flush=True)
        os._exit(0)
    return metrics

Trainer.take_step = timed
sys.argv = ["contune", "train", "digits", "run.report=false", "eval.start=false", "--out", sys.argv[1]]
from contune.cli import main
main()
"""
LOSS = """
import time
from statistics import median
import torch
from contune import tcl_loss

generator = torch.Generator().manual_seed(0)
z = torch.randn(4096, 128, generator=generator).requires_grad_()
labels, times = torch.randint(100, (4096,), generator=generator), []
for _ in range(25):
    z.grad, start = None, time.perf_counter()
    tcl_loss(z, labels).backward()
    times.append(time.perf_counter() - start)
print(1000 * median(times[5:]))
"""
BENCHES = {"a step of the digits recipe": STEP, "tcl_loss and its gradient, N = 4,096": LOSS}


def milliseconds(script: str, spin: str) -> float:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    environment |= {"GOMP_SPINCOUNT": spin} if spin else {}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", script, f"{folder}/run"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return round(float(done.stdout.splitlines()[-1]), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spin", default="", help="values of GOMP_SPINCOUNT, separated by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS / "cpu-busy.json")
    arguments = parser.parse_args()
    cases = [(name, spin) for spin in arguments.spin.split(",") for name in BENCHES]
    found: dict[tuple[str, str], dict[str, list[float]]] = {case: {"idle": [], "busy": []} for case in cases}
    for state in ("idle", "busy"):
        cores = sorted(os.sched_getaffinity(0)) if state == "busy" else []
        loops = [
            subprocess.Popen(["taskset", "-c", str(core), sys.executable, "-c", "while True: pass"]) for core in cores
        ]
        try:
            for _ in range(arguments.rounds):
                for name, spin in cases:
                    found[name, spin][state].append(milliseconds(BENCHES[name], spin))
        finally:
            for loop in loops:
                loop.kill()
    rows = []
    for (name, spin), times in found.items():
        share = median(times["busy"]) / (2 * median(times["idle"]))
        rows.append({"name": name, "GOMP_SPINCOUNT": spin or "contune's", **times, "of_fair_share": round(share, 2)})
        print(f"{name}, GOMP_SPINCOUNT {spin or 'as contune sets it'}: {times}, {share:.2f} times the fair share")
    processor = Path("/proc/cpuinfo").read_text().partition("model name\t: ")[2].partition("\n")[0]
    record = {"bench": __doc__.splitlines()[0], "command": sys.argv[1:], "cores": os.cpu_count(), "hardware": processor}
    arguments.out.write_text(json.dumps({**record, "unit": "ms", "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
