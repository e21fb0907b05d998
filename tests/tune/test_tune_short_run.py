"""A short run in this process: on the validation split, looked at, given up, and kept moments of."""

from pathlib import Path

import pytest
import torch

from contune.config import Config
from contune.errors import UserError
from contune.recipes import find_recipe
from contune.run import RunFolder
from contune.tune.moments import KeepingRun, read_moments
from contune.tune.short_run import ShortRun, look_epochs, short_config


def config(*overrides: str, epochs: int = 2) -> Config:
    small = ("optim.batch_images=128", "eval.knn_k=5", *overrides)
    return short_config(find_recipe("digits")().override(small), epochs)


def test_a_short_run_is_the_recipe_on_a_validation_split() -> None:
    short = short_config(find_recipe("cifar100-byol")(), 20)
    whole = find_recipe("cifar100-byol")()
    assert (short.eval.split, short.data.val_fraction, short.optim.epochs) == ("val", 0.2, 20)
    assert short.optim.warmup_epochs / 20 == pytest.approx(whole.optim.warmup_epochs / whole.optim.epochs, abs=0.001)
    assert short_config(find_recipe("digits")().override(["data.val_fraction=0.1"]), 5).data.val_fraction == 0.1


@pytest.mark.parametrize(("epochs", "looks"), [(1, []), (2, [1]), (10, [4, 6, 8]), (100, [40, 60, 80])])
def test_when_a_run_is_looked_at(epochs: int, looks: list[int]) -> None:
    assert look_epochs(epochs) == looks


def test_it_measures_on_the_validation_split_and_keeps_what_it_saw(tmp_path: Path) -> None:
    result = KeepingRun()(config(), RunFolder(tmp_path / "run"))
    assert {measure["split"] for measure in result["measures"]} == {"val"}
    assert result["measures"][0]["num_images"] == 180  # a fifth of the 898 training images
    assert list(result["seen"]) == ["1"]
    assert (RunFolder(tmp_path / "run").result() or {})["seen"] == result["seen"]
    assert not list((tmp_path / "run").glob("checkpoint*"))
    moments = read_moments(tmp_path / "run")
    assert moments[0].step == 1
    assert moments[0].z_ND.shape == (256, 128)
    assert moments[-1].step == 10
    assert len(moments[0].groups_N.unique()) == 10


def test_a_run_that_falls_behind_is_given_up(tmp_path: Path) -> None:
    result = ShortRun({1: 100.1})(config(), RunFolder(tmp_path))
    assert result["stopped_at"] == 1
    assert result["measures"] == []
    assert not (tmp_path / "encoder.safetensors").exists()


def test_the_test_images_are_never_opened(tmp_path: Path) -> None:
    """They are no images at all, which a run that measures on them does not survive."""
    from PIL import Image

    generator = torch.Generator().manual_seed(0)
    for split, num in (("train", 12), ("test", 2)):
        for kind in ("a", "b"):
            folder = tmp_path / "photos" / split / kind
            folder.mkdir(parents=True)
            for number in range(num):
                pixels = torch.randint(0, 256, (16, 16, 3), generator=generator, dtype=torch.uint8)
                Image.fromarray(pixels.numpy()).save(folder / f"{number}.png")
                if split == "test":
                    (folder / f"{number}.png").write_bytes(b"no picture")
    images = find_recipe("images")().override(
        [f"data.path={tmp_path / 'photos'}", "model.encoder=resnet-mini", "optim.batch_images=8", "data.image_size=16"]
    )
    result = ShortRun()(short_config(images, 1), RunFolder(tmp_path / "run"))
    assert result["measures"][0]["split"] == "val"
    images.optim.epochs = 1
    with pytest.raises(UserError):
        ShortRun()(images, RunFolder(tmp_path / "measured on test"))


def test_without_labels_there_is_nothing_to_tune_on(tmp_path: Path) -> None:
    from PIL import Image

    (tmp_path / "photos").mkdir()
    for number in range(20):
        Image.new("RGB", (16, 16), (number, 0, 0)).save(tmp_path / "photos" / f"{number}.png")
    images = find_recipe("images-ssl")().override(
        [f"data.path={tmp_path / 'photos'}", "model.encoder=resnet-mini", "optim.batch_images=4", "data.image_size=16"]
    )
    with pytest.raises(UserError, match="no labelled images to measure k1 and k2 on"):
        ShortRun()(short_config(images, 1), RunFolder(tmp_path / "run"))
