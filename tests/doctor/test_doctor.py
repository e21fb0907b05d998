"""`contune doctor`: a line on each part of a run, and what stops it."""

import math
from pathlib import Path

from command_line import contune
from examined import findings
from pictures import write_flat

from contune.console import Finding
from contune.doctor import examine
from contune.recipes import RECIPES


def test_a_healthy_recipe_gets_a_line_on_each_part() -> None:
    outcome = contune("doctor")
    lines = outcome.out.splitlines()
    assert outcome.code == 0
    assert all(line.startswith("✓ ") for line in lines)
    starts = ["machine: ", "data: ", "batch: ", "an untrained", "positives: ", "encoder: ", "memory: ", "time: "]
    assert [start for line, start in zip(lines, starts, strict=True) if not line[2:].startswith(start)] == []
    assert "digits, 898 train, 899 test; 10 classes; 8 px" in outcome.out
    assert "64 images × 2 views = 128 embeddings" in outcome.out
    assert f"about ln 127 = {math.log(127):.2f}" in outcome.out
    assert "1.2 M parameters, 256 features" in outcome.out


def test_what_stops_a_run_is_the_last_finding_and_exit_code_1() -> None:
    outcome = contune("doctor", "optim.batch_images=64", "augment.policy=digits rotation=999")
    assert outcome.code == 1
    assert outcome.out.splitlines()[-1].startswith("✗ rotation=999.0 is out of range")
    assert "is more than the 898 training images" in findings("optim.batch_images=9999")[-1].text
    assert findings("augment.views=1", "method.supervised=false")[-1] == Finding(
        "✗", "an anchor has no positives: without labels it takes augment.views=2 or more"
    )


def test_images_without_labels(tmp_path: Path) -> None:
    write_flat(tmp_path, 80)
    config = RECIPES["images-ssl"]().override(
        [f"data.path={tmp_path}", "data.image_size=8", "optim.batch_images=32", "model.encoder=resnet-mini"]
    )
    found = list(examine(config))
    assert not any(finding.is_bad for finding in found)
    assert "positives: 2.0 for each anchor on average" in [finding.text for finding in found]
