"""Exports for contune and for PyTorch without it."""

import json
from pathlib import Path

import pytest
import torch
from encoders import SPECS, real_images, spec, write_run
from snippets import features_by_the_card

import contune
from contune.export import export_run

ALL = {**SPECS, "group norm": spec("resnet-mini", size=16, channels=3, norm="group")}


@pytest.mark.parametrize("name", ALL)
def test_both_ways_of_the_card_give_the_features_of_the_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = write_run(tmp_path, ALL[name])
    exported = export_run(tmp_path, "safetensors")
    images_NCHW = real_images(encoder.spec.image_size, encoder.spec.channels)
    with torch.no_grad():
        expected_ND = encoder(images_NCHW)
        assert torch.equal(contune.load_encoder(exported.folder)(images_NCHW), expected_ND)
    with_contune, without = features_by_the_card(exported.folder, images_NCHW[0], monkeypatch)
    for features_1D in (with_contune, without):
        torch.testing.assert_close(features_1D, expected_ND[:1], rtol=0, atol=1e-5)


def test_the_description_beside_the_weights(tmp_path: Path) -> None:
    write_run(tmp_path, SPECS["small stem, colour"])
    config = json.loads((export_run(tmp_path, "safetensors", tmp_path / "out").folder / "config.json").read_text())
    assert (config["encoder"], config["image_size"], config["num_features"]) == ("resnet18", 32, 512)
    assert config["mean"] == [0.31, 0.42, 0.53]


def test_an_export_can_be_exported_again(tmp_path: Path) -> None:
    write_run(tmp_path, SPECS["small stem, gray"])
    once = export_run(tmp_path, "safetensors", tmp_path / "once").folder
    assert export_run(once, "timm", tmp_path / "twice").files == ("README.md", "config.json", "model.safetensors")
