"""Arrays and lists where a loss takes tensors: one sentence that says how to make one."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from contune import losses
from contune.errors import UserError

Z, LABELS, CUBE = torch.randn(6, 4), torch.arange(6) % 2, torch.rand(2, 6, 4)
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Tensor]]] = {
    "tcl": (losses.tcl_loss, {"z": Z, "labels": LABELS}),
    "candidates": (
        losses.tcl_loss,
        {"z": Z, "labels": LABELS, "candidates": Z, "candidate_labels": LABELS},
    ),
    "positives": (losses.tcl_loss, {"z": Z, "positives": LABELS[:, None] == LABELS}),
    "supcon": (losses.supcon_loss, {"z": Z, "labels": LABELS}),
    "ntxent": (losses.ntxent_loss, {"z": Z, "ids": LABELS}),
    "triplet": (losses.triplet_loss, {"z": Z, "labels": LABELS}),
    "npair": (losses.npair_loss, {"z": Z, "labels": LABELS}),
    "TCLLoss": (losses.TCLLoss(), {"z": Z, "labels": LABELS}),
    "arb": (losses.arb_loss, {"z1": Z, "z2": Z}),
    "barlow": (losses.barlow_twins_loss, {"z1": Z, "z2": Z}),
    "vicreg": (losses.vicreg_loss, {"z1": Z, "z2": Z}),
    "wmse": (losses.wmse_loss, {"z1": Z, "z2": Z}),
    "cosine": (losses.negative_cosine_loss, {"predictions": Z, "targets": Z}),
    "regression": (losses.regression_loss, {"predictions": Z, "targets": Z}),
    "infonce": (losses.infonce_loss, {"queries": Z, "keys": Z, "queue": Z}),
    "relation": (losses.relation_loss, {"queries": Z, "keys": Z, "queue": Z}),
    "sinkhorn": (losses.sinkhorn, {"scores_NK": Z}),
    "swapped": (losses.swapped_prediction_loss, {"scores_VBK": CUBE, "assignments_TBK": CUBE}),
    "dino": (losses.dino_loss, {"student_VBK": CUBE, "teacher_TBK": CUBE, "centre_K": CUBE[0, 0]}),
}
CALLED = {"z": "embeddings", "ids": "labels", "scores_NK": "scores"}
"""What a sentence calls an argument where it is not the argument's own name."""


@pytest.mark.parametrize("call", CALLS)
def test_every_argument_has_its_sentence(call: str) -> None:
    loss, arguments = CALLS[call]
    assert isinstance(loss(**arguments), Tensor)
    for name, tensor in arguments.items():
        called = CALLED.get(name, name)
        for value, kind in ((tensor.numpy(), "ndarray"), (tensor.tolist(), "list"), ("text", "str")):
            words = rf"^{called} must be a tensor, got a {kind}; torch\.as_tensor\({called}\) makes one$"
            with pytest.raises(UserError, match=words):
                loss(**(arguments | {name: value}))


def test_classes_that_are_names() -> None:
    """The way out that the sentence names gives the loss."""
    names = ["cat", "dog"] * 3
    words = r"labels must be a tensor of integers, got a {} of str; .*numpy\.unique\(labels, return_inverse=True\)\[1\]"
    for kind in (list, tuple, np.array):
        given: Any = kind(names)
        with pytest.raises(UserError, match=words.format(type(given).__name__)):
            losses.tcl_loss(Z, given)
    with pytest.raises(UserError, match=r"^candidate_labels .* labels and candidate_labels in one call$"):
        losses.tcl_loss(Z, LABELS, candidates=Z, candidate_labels=names)  # type: ignore[arg-type]
    numbers = torch.as_tensor(np.unique(names, return_inverse=True)[1])
    assert losses.tcl_loss(Z, numbers) == losses.tcl_loss(Z, LABELS)


def test_views_on_an_axis_of_their_own() -> None:
    """The way out that the sentence names gives the loss of the stacked views."""
    z = torch.stack([Z, Z + 1, Z + 2], dim=1)
    with pytest.raises(UserError, match=r"torch\.cat\(embeddings\.unbind\(1\)\) .* labels\.repeat\(views\)"):
        losses.tcl_loss(z, LABELS)
    stacked = losses.tcl_loss(torch.cat([Z, Z + 1, Z + 2]), LABELS.repeat(3))
    assert losses.tcl_loss(torch.cat(z.unbind(1)), LABELS.repeat(3)) == stacked


def test_labels_that_are_not_stacked_yet() -> None:
    with pytest.raises(UserError, match=r"labels must be a tensor, got a list; torch\.stack\(labels\) makes one"):
        losses.tcl_loss(Z, list(LABELS))  # type: ignore[arg-type]


def test_views_that_are_not_stacked_yet() -> None:
    with pytest.raises(UserError, match=r"embeddings must be a tensor, got a list; torch\.cat\(embeddings\) makes one"):
        losses.tcl_loss([Z, Z], LABELS)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"embeddings must be a tensor, got a ndarray"):
        losses.tcl_loss(np.zeros((6, 4)), LABELS)  # type: ignore[arg-type]
