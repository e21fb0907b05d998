"""Time two checkouts of contune against each other: did a change cost speed?

    python benchmarks/compare_revisions.py OLD NEW                       # all tasks on the default device
    python benchmarks/compare_revisions.py OLD NEW --only loss --rounds 6

OLD and NEW are folders that contain `contune/`. Every round starts a child process for each and asks both for every
task, in alternating order, so that both meet the same machine. A child keeps one placement in memory, which on a CPU
changes its times by 10 %: only the median over many rounds counts. The first round warms up. Tasks:

- loss: `tcl_loss` forward and backward, d = 128; N = 256, 1,024 and 32,768 on a GPU, 4,096 on a CPU; ms
- wide: the same with d = 512, N = 4,096, in float32
- augment: AutoAugment of 512 images at 32 pixels, drawing included; µs per view
- train, lars: `contune train digits` with SGD or LARS, on a GPU with a ResNet-18, AutoAugment, 32 pixels and 256 views
  per step; µs per view

A ratio is the median over rounds of NEW's time over OLD's; below 1, NEW is faster. Its spread is the lowest and highest
round. A round takes about a minute on two CPU cores, and less on a GPU.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

RESULTS = Path(__file__).parent / "results"


def timed(call: Callable[[], object], cuda: bool, seconds: float = 0.4) -> float:
    """Median milliseconds of a call, after a warm-up."""
    import torch

    times: list[float] = []
    started = time.perf_counter()
    while len(times) < 12 or time.perf_counter() - started < seconds:
        if cuda:
            torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        if cuda:
            torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - start))
    return median(times[len(times) // 4 :])


def time_loss(device: str, sizes: tuple[int, ...] = (), num_dims: int = 128) -> dict[str, float]:
    import torch

    from contune import tcl_loss

    results = {}
    for num in sizes or ((256, 1024, 32768) if device == "cuda" else (4096,)):
        generator = torch.Generator().manual_seed(0)
        z_ND = torch.randn(num, num_dims, generator=generator).to(device).requires_grad_()
        labels_N = torch.randint(100, (num,), generator=generator).to(device)

        def step(z_ND: torch.Tensor = z_ND, labels_N: torch.Tensor = labels_N) -> None:
            z_ND.grad = None
            tcl_loss(z_ND, labels_N, temperature=0.1, k1=5000.0, k2=1.0).backward()

        results[f"tcl_loss N={num:,} d={num_dims}, ms"] = timed(step, device == "cuda")
    return results


def time_augment(device: str) -> dict[str, float]:
    import torch

    from contune.data.augment import Augmenter, build_policy

    policy = build_policy("autoaugment", image_size=32, channels=3)
    augmenter = Augmenter([policy, policy], (0.5,) * 3, (0.25,) * 3)
    images = torch.randint(256, (256, 3, 32, 32), dtype=torch.uint8).to(device)
    generator = torch.Generator(device).manual_seed(0)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    ms = timed(lambda: augmenter.apply(images, augmenter.draw(256, generator), dtype), device == "cuda")
    return {"autoaugment, µs per view": 1000 * ms / 512}


def time_train(device: str, optimizer: str = "sgd") -> dict[str, float]:
    from contune.recipes import RECIPES

    recipe = "digits-tcl" if "digits-tcl" in RECIPES else "digits"  # without an evaluation before training
    settings = [recipe, "optim.epochs=4", "run.log_every=4"]
    if device == "cuda":
        settings = [
            recipe, "optim.epochs=30", "run.log_every=10", "model.encoder=resnet18", "model.stem=cifar",
            "data.image_size=32", "augment.policy=autoaugment", "optim.batch_images=128",
        ]  # fmt: skip
    settings += [f"run.device={device}", "run.report=false", "eval.linear=none", "method.k1=500", "method.k2=1"]
    settings += [f"optim.name={optimizer}"]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "contune", "train", *settings, "--out", f"{folder}/run"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(done.stdout[-2000:] + done.stderr[-2000:])
        lines = Path(folder, "run", "metrics.jsonl").read_text().splitlines()
    rates = [json.loads(line)["views_per_second"] for line in lines]
    return {f"training step, {optimizer}, µs per view": 1e6 / median(rates[len(rates) // 3 :])}


TASKS: dict[str, Callable[[str], dict[str, float]]] = {
    "loss": time_loss,
    "wide": partial(time_loss, sizes=(4096,), num_dims=512),
    "augment": time_augment,
    "train": time_train,
    "lars": partial(time_train, optimizer="lars"),
}


def summary(seen: dict[str, list[list[float]]]) -> list[dict[str, Any]]:
    rows = []
    for name, pairs in seen.items():
        old, new = (median(pair[side] for pair in pairs) for side in (0, 1))
        ratios = sorted(after / before for before, after in pairs)
        rows.append({"name": name, "old": old, "new": new, "ratio": median(ratios), "ratios": ratios, "pairs": pairs})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="*", type=Path, metavar="OLD NEW")
    parser.add_argument("--only", default=",".join(TASKS), help="tasks, separated by commas")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--device", default="", help="cpu or cuda [default: cuda where there is one]")
    parser.add_argument("--out", type=Path, default=RESULTS / "compare-revisions.json")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        for line in sys.stdin:
            print(json.dumps(TASKS[line.strip()](arguments.device)), flush=True)
        return
    if len(arguments.checkouts) != 2:
        parser.error("give two checkouts, OLD and NEW")
    import torch

    device = arguments.device or ("cuda" if torch.cuda.is_available() else "cpu")
    old_new = [path.resolve() for path in arguments.checkouts]
    hardware = torch.cuda.get_device_name() if device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    record = {"command": sys.argv[1:], "device": device, "hardware": hardware}
    seen: dict[str, list[list[float]]] = {}
    for number in range(arguments.rounds + 1):
        children = {}
        for checkout in old_new:
            environment = {**os.environ, "PYTHONPATH": str(checkout)}
            command = [sys.executable, __file__, "--child", "--device", device]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            children[checkout] = subprocess.Popen(command, env=environment, cwd=checkout, **pipes)  # type: ignore[call-overload]  # pipes
        for task in arguments.only.split(","):
            values: dict[Path, dict[str, float]] = {}
            for checkout in old_new if number % 2 == 0 else reversed(old_new):
                print(task, file=children[checkout].stdin, flush=True)
                values[checkout] = json.loads(children[checkout].stdout.readline())
            for name in values[old_new[0]] if number else ():
                seen.setdefault(name, []).append([values[checkout][name] for checkout in old_new])
        for child in children.values():
            child.stdin.close()
            child.wait()
        print(f"round {number}", file=sys.stderr)
        arguments.out.write_text(json.dumps({**record, "rows": summary(seen)}, indent=2) + "\n")
    for row in summary(seen):
        spread = f"{row['ratios'][0]:.3f} to {row['ratios'][-1]:.3f}"
        print(f"{row['name']:42} old {row['old']:9.3f}  new {row['new']:9.3f}  new/old {row['ratio']:.3f} ({spread})")


if __name__ == "__main__":
    main()
