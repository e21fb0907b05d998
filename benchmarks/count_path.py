"""Count the files and functions of contune/ that a command passes through: how much must a reader read?

    python benchmarks/count_path.py            # `contune train` on digits, and tcl_loss with its backward pass
    python benchmarks/count_path.py --list     # with the functions by file

On a CPU, about half a minute. Every code object counts except module bodies: functions, class bodies, lambdas and
generators. Imports of `contune train` are part of it. Before the redesign: 139 files and 697 functions for
`contune train`, 9 files for the loss.
"""

import argparse
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

os.environ["CUDA_VISIBLE_DEVICES"] = ""

import torch

import contune

PACKAGE = str(Path(contune.__file__).parent) + os.sep
Functions = dict[str, set[str]]


def passed_through(work: Callable[[], object]) -> Functions:
    """Names of the functions called while `work` runs, in any thread, by file."""
    seen: Functions = {}

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and code.co_name != "<module>":
            seen.setdefault(code.co_filename[len(PACKAGE) :], set()).add(code.co_qualname)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return seen


def train_digits() -> None:
    from contune.cli import app

    with tempfile.TemporaryDirectory() as folder:
        app(["train", "digits", "optim.epochs=2", "run.device=cpu", "--out", f"{folder}/run"], standalone_mode=False)
        assert Path(folder, "run", "report.html").exists()


def loss_and_gradient() -> None:
    z_ND, labels_N = torch.randn(600, 16, requires_grad=True), torch.arange(600) % 8  # more than `dense` computes
    contune.tcl_loss(z_ND, labels_N).backward()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="list the functions by file")
    arguments = parser.parse_args()
    loss_and_gradient()  # imports what it needs, which is not part of the path
    for title, work in (("tcl_loss with its backward pass", loss_and_gradient), ("contune train digits", train_digits)):
        seen = passed_through(work)
        print(f"{title}: {len(seen)} files, {sum(map(len, seen.values()))} functions")
        for file in sorted(seen) if arguments.list else []:
            print(f"  {file}: {', '.join(sorted(seen[file]))}")


if __name__ == "__main__":
    main()
