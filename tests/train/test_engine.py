"""A training step as a CUDA graph: where it is used, and that it is the eager step."""

from pathlib import Path

import pytest
import torch
from command_line import read_lines, train

from contune.errors import UserError
from contune.train.graph import use_graph

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def test_auto_records_on_a_gpu_with_an_optimizer_that_never_asks_the_host() -> None:
    assert use_graph("auto", "sgd", CUDA)
    assert use_graph("graph", "adamw", CUDA)
    assert not use_graph("auto", "lars", CUDA)
    assert not use_graph("auto", "sgd", CPU)
    assert not use_graph("eager", "sgd", CUDA)


@pytest.mark.parametrize(("optimizer", "device"), [("sgd", CPU), ("lars", CUDA)])
def test_asking_for_it_where_it_cannot_be_is_a_sentence(optimizer: str, device: torch.device) -> None:
    with pytest.raises(UserError, match=r"run\.engine=graph takes a single process on a CUDA device"):
        use_graph("graph", optimizer, device)


@pytest.mark.gpu
def test_recorded_and_eager_steps_have_the_same_losses(tmp_path: Path) -> None:
    losses = []
    for engine in ("eager", "graph"):
        train(
            tmp_path / engine, "digits", "optim.epochs=2", "run.log_every=1", f"run.engine={engine}", "run.device=cuda"
        )
        losses.append([line["loss"] for line in read_lines(tmp_path / engine)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
