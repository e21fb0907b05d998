"""What a batch is made of, and its learning rate."""

from pathlib import Path

import pytest
from examined import advice, findings, texts
from pictures import write_picture


def test_its_advice_to_balance_works_as_it_stands_however_few_the_classes(tmp_path: Path) -> None:
    for label, num in (("common", 66), ("rare", 3), ("single", 1)):
        for number in range(num):
            write_picture(tmp_path / label / f"{number}.png", seed=number)
    images = ("data.name=images", f"data.path={tmp_path}", "data.image_size=8", "data.test_fraction=0")
    assert "classes have from 1 (single) to 66 images; data.sampler=balanced gives" in advice(*images)
    found = findings(*images, "data.sampler=balanced")
    assert not any(finding.is_bad for finding in found)
    said = [finding.text for finding in found]
    assert "balanced: 3 classes in a batch, 21 or 22 images of each" in said
    assert "positives: 41.7 for each anchor on average" in said


def test_a_batch_of_one_view_is_a_finding_and_no_crash() -> None:
    found = texts("optim.batch_images=1", "augment.views=1")
    assert "batch: 1 image × 1 view = 1 embedding, which is what the paper counts" in found
    assert "an anchor has no positives" in found[-1]


def test_a_learning_rate_far_from_the_papers_ratio() -> None:
    words = "optim.lr=30 is far from the paper's ratio of 0.2 at 256 embeddings, which is 0.1 here"
    assert words in advice("optim.lr=30")
    assert "far from" in advice("optim.lr=0.1", "optim.batch_images=512"), "eight times the batch at the same rate"


@pytest.mark.parametrize(("embeddings", "lr"), [(32, 8e-3), (64, 9e-3), (128, 0.1), (256, 0.2), (512, 0.5), (1024, 1)])
def test_the_papers_own_learning_rates_are_not_called_far(embeddings: int, lr: float) -> None:
    assert "far from" not in advice(f"optim.batch_images={embeddings // 2}", f"optim.lr={lr}")
