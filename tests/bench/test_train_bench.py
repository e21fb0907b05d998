"""`contune bench train` on a tiny encoder: every stage has its row, and what is asked for wrongly is a sentence."""

from pathlib import Path
from typing import Any

import pytest
from command_line import contune, read_json

from contune.bench import train_stages
from contune.bench.train import run_train_bench
from contune.errors import UserError


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train_stages, "NUM_IMAGES", 64)
    monkeypatch.setattr(train_stages, "IMAGE_SIZE", 16)


@pytest.mark.usefixtures("small")
def test_every_stage_has_its_row(tmp_path: Path) -> None:
    out = tmp_path / "train.json"
    outcome = contune(
        "bench", "train", "--encoders", "resnet-mini", "--views", "8", "--device", "cpu", "--seconds", "0.01",
        "--out", out,
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    assert "resnet-mini, 8 views a step" in outcome.out
    assert out.with_suffix(".png").exists()
    result = read_json(out)
    rows = {row["stage"]: row for row in result["rows"]}
    assert list(rows) == [
        "encoder alone", "training, eager", "training, eager, logged", "augmentation", "loss",
        "eager, torchvision workers",
    ]  # fmt: skip
    assert rows["encoder alone"]["of_bound"] == 1
    for row in rows.values():
        assert row["views_per_second"] == pytest.approx(8 / (row["ms"] / 1000))
        assert row["steps"] >= 2


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"views": [7]}, "views must be even and at least 4"),
        ({"engines": ["fast"]}, "engine 'fast'"),
        ({"encoders": []}, "nothing to measure without encoders"),
        ({"seconds": 0}, "seconds must be above 0"),
        ({"device": "meta"}, "cpu and cuda only"),
    ],
)
def test_a_wrong_request_is_a_sentence(wrong: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    right: dict[str, Any] = {"encoders": ["resnet-mini"], "views": [8], "engines": ["eager"], "device": "cpu"}
    with pytest.raises(UserError, match=sentence):
        run_train_bench(**(right | wrong), out=tmp_path / "train.json")
    assert not list(tmp_path.iterdir())
