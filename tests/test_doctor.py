"""`contune doctor`: a line on each part of a run, advice, and what stops it."""

from pathlib import Path

import pytest
import torch
from pictures import write_picture
from small_run import write_run

from contune import doctor
from contune.config import Config
from contune.console import Finding
from contune.doctor import examine, expected_positives
from contune.recipes import RECIPES


@pytest.fixture(autouse=True)
def _no_timing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_seconds_per_view", lambda setup, method, num: 3600 / (128 * 14 * 20))


def findings(*overrides: str) -> list[Finding]:
    return list(examine(RECIPES["digits-tcl"]().override(overrides)))


def advice(*overrides: str) -> str:
    return "\n".join(finding.text for finding in findings(*overrides) if finding.mark == "!")


def images(folder: Path, **counts: int) -> tuple[str, ...]:
    """Settings for a folder with this many images of each class and no test split."""
    for label, num in counts.items():
        for number in range(num):
            write_picture(folder / label / f"{number}.png", seed=number, size=8)
    return ("data.name=images", f"data.path={folder}", "data.image_size=8", "data.test_fraction=0")


@pytest.mark.parametrize("recipe", ["digits", "images", "images-ssl", "images-finetune"])
def test_everyday_recipes_pass(recipe: str, tmp_path: Path) -> None:
    settings = [] if recipe == "digits" else images(tmp_path / "photos", **dict.fromkeys("abcd", 64))[:3]
    if recipe == "images-finetune":
        settings = [*settings, f"model.weights={write_run(tmp_path / 'run')}"]
    found = list(examine(RECIPES[recipe]().override([*settings])))
    assert {finding.mark for finding in found} == {" ", "✓"}, found


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("optim.lr=30",), "far from"),
        (("optim.batch_images=4",), "few anchors"),
        (("method.k1=5000",), "method.k1=1000 or less"),
        (("method.k1=50", "method.k2=auto"), "method.k2=1"),
        (("method.k1=30000", "method.k2=3"), "method.k1=3000 or less"),
        (("method.k1=100000", "method.supervised=false"), "method.k1=10000 or less"),
        (("method.k1=2000", "optim.balance=sampler", "data.images_per_class=32"), "method.k1=200 or less"),
    ],
)
def test_settings_worth_a_change(overrides: tuple[str, ...], words: str) -> None:
    assert words in advice(*overrides)


def test_images_worth_a_change(tmp_path: Path) -> None:
    unequal = images(tmp_path / "unequal", common=66, rare=3, single=1)
    assert "from 1 (single) to 66 images; start with optim.balance=none" in advice(*unequal)
    assert "no test split" in advice(*unequal)
    assert "positives: 41.7" in "\n".join(found.text for found in findings(*unequal, "optim.balance=sampler"))
    alone = images(tmp_path / "alone", **{f"class{number}": 1 for number in range(20)})
    small = (*alone, "optim.batch_images=10", "optim.lr=0.02")
    assert "every class has a single image" in advice(*small)
    assert "every class has a single image, so" not in advice(*small, "method.supervised=false")


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("augment.policy=digits rotation=999",), "rotation"),
        (("augment.views=1", "method.supervised=false"), "no positives"),
        (("data.name=images", "data.path=nowhere"), "nowhere"),
        (("run.device=gpu",), "run.device=auto"),
    ],
)
def test_what_stops_a_run_is_the_last_finding(overrides: tuple[str, ...], words: str) -> None:
    found = findings(*overrides)
    assert found[0].text.startswith("machine: ")
    assert [finding.mark == "✗" for finding in found] == [*[False] * (len(found) - 1), True]
    assert words in found[-1].text


def test_expected_positives_by_hand() -> None:
    labels_N = torch.tensor([0, 0, 1, 1])
    config = Config().override(["optim.batch_images=3", "augment.views=3"])

    def balanced(batch: int) -> Config:
        own = ["augment.views=3", f"optim.batch_images={batch}", "optim.balance=sampler", "data.images_per_class=2"]
        return Config().override(own)

    assert expected_positives(config, labels_N) == pytest.approx(2 + 3 * 2 * 1 / 3)
    assert expected_positives(config, torch.arange(9)) == 2
    assert expected_positives(config, None) == 2
    assert expected_positives(balanced(8), labels_N) == 3 * 4 - 1
    assert expected_positives(balanced(9), labels_N) == pytest.approx(3 * (4 * 4 + 5 * 5) / 9 - 1)
    pairs_N2 = torch.nn.functional.one_hot(labels_N).float()  # several labels per image: batches are random
    assert expected_positives(balanced(3), pairs_N2) == pytest.approx(2 + 3 * 2 * 1 / 3)
    assert expected_positives(config.override(["method.name=simclr"]), labels_N) == 2
