"""Two processes on half a batch each compute what one computes on the whole of it."""

import socket
from pathlib import Path

import pytest
import torch
from command_line import PLAIN, contune, read_lines, start, train
from safetensors.torch import load_file
from small_heads import small_heads_as_text

RUN = ("digits", "optim.epochs=2", "data.val_fraction=0.28", "model.norm=group", "run.log_every=1", "eval.linear=none")
"""Without batch-norm, whose statistics are shared on GPUs only; ten steps an epoch."""
RATES = {"tcl": 3e-4, "supcon": 3e-4, "simclr": 3e-4, "cross-entropy": 1e-4}
RATES |= {"vicreg": 1e-5, "barlow-twins": 5e-6, "w-mse": 3e-5, "arb": 1e-4}
RATES |= {"byol": 1e-4, "simsiam": 5e-3, "moco-v2": 3e-4, "ressl": 3e-4}
RATES |= {"dino": 3e-4, "swav": 3e-4}
"""Low ones: at 0.1 float32 itself departs by more than 1e-5 within ten steps, whenever a ReLU over the many equal
pixels of the background changes sides. In float64 the two runs agree to 1e-15 at any rate."""
QUICK = ("tcl", "byol", "swav")
"""One of each kind; the others take their turn in `make test-slow`."""
OF_ITS_OWN_VIEWS = {"feature_std", "effective_rank", "uniformity"}
"""What each process measures on its part of the batch; the mean of that is another number."""


def in_two(*arguments: str | Path) -> tuple[int, str]:
    """Exit code and output of `torchrun --nproc-per-node=2 -m contune ARGUMENTS`."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    launcher = ("torch.distributed.run", "--nproc-per-node=2", f"--master-port={port}")
    with start(*arguments, launcher=launcher) as process:
        printed, _ = process.communicate(timeout=120)
    return process.returncode, printed


@pytest.mark.parametrize("method", [m if m in QUICK else pytest.param(m, marks=pytest.mark.slow) for m in RATES])
def test_losses_and_weights_follow_the_single_process(method: str, tmp_path: Path) -> None:
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    arguments = (*RUN, f"method.name={method}", f"optim.lr={RATES[method]}", *small_heads_as_text(method))
    train(alone, *arguments)
    code, printed = in_two("train", *arguments, *PLAIN, "--out", shared)
    assert code == 0, printed

    one, two = (
        [{key: value for key, value in line.items() if key not in OF_ITS_OWN_VIEWS} for line in read_lines(folder)]
        for folder in (alone, shared)
    )
    assert [line["step"] for line in two] == list(range(1, 21))
    assert abs(one[0]["loss"] - one[-1]["loss"]) > 5e-3, "a loss that stands still would prove nothing"
    for line, other in zip(one, two, strict=True):
        assert other == pytest.approx(line, rel=1e-5, abs=1e-5), line["step"]

    expected, found = (load_file(folder / "encoder.safetensors") for folder in (alone, shared))
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-5)


def test_a_batch_that_cannot_be_shared_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("contune.distributed.world_size", lambda: 2)
    outcome = contune("train", "optim.batch_images=65", *PLAIN, "--out", tmp_path / "run")
    assert outcome.code == 2
    assert outcome.err == "contune: optim.batch_images=65 cannot be shared by 2 processes; take a multiple of 2\n"
    assert not (tmp_path / "run").exists()
