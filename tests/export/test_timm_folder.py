"""Folders that timm loads: the same features, for the stem that timm has and for the one it has not."""

import json
from pathlib import Path

import pytest
import torch
from encoders import SPECS, real_images, spec, write_run
from snippets import features_by_the_card

from contune.device import timm
from contune.errors import UserError
from contune.export import export_run
from contune.export.timm_stem import stem_in_timms_parts


@pytest.mark.parametrize("name", SPECS)
def test_timm_gives_the_features_of_the_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = write_run(tmp_path, SPECS[name])
    exported = export_run(tmp_path, "timm")
    images_NCHW = real_images(encoder.spec.image_size, encoder.spec.channels)
    with torch.no_grad():
        expected_ND = encoder(images_NCHW)
    (features_1D,) = features_by_the_card(exported.folder, images_NCHW[2], monkeypatch)
    torch.testing.assert_close(features_1D, expected_ND[2:3], rtol=0, atol=1e-4)
    assert expected_ND.std(dim=0).max() > 0.01  # so that equal features of all images would not pass


def test_a_photo_of_another_size_is_prepared_nearly_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow resizes with rounded weights, so a level may differ by one."""
    encoder = write_run(tmp_path, spec("resnet-mini", size=16, channels=3))
    large_CHW = real_images(91, 3)[0]
    (features_1D,) = features_by_the_card(export_run(tmp_path, "timm").folder, large_CHW, monkeypatch)
    with torch.no_grad():
        torch.testing.assert_close(features_1D, encoder(large_CHW[None]), rtol=0, atol=0.02)


def test_what_timm_reads_of_the_preprocessing(tmp_path: Path) -> None:
    write_run(tmp_path, SPECS["usual stem, colour"])
    model = timm.create_model(f"local-dir:{export_run(tmp_path, 'timm').folder}", pretrained=True)
    data = timm.data.resolve_model_data_config(model)
    assert tuple(data["input_size"]) == (3, 72, 72)
    assert [*data["mean"], *data["std"]] == [0.31, 0.42, 0.53, 0.21, 0.24, 0.27]
    assert (data["interpolation"], data["crop_mode"], data["crop_pct"]) == ("bilinear", "squash", 1.0)
    assert (model.num_classes, model.num_features) == (0, 512)


@pytest.mark.parametrize("name", ["small stem, gray", "vision transformer, colour"])
def test_a_new_classifier_goes_on_top_for_fine_tuning(name: str, tmp_path: Path) -> None:
    write_run(tmp_path, SPECS[name])
    folder = export_run(tmp_path, "timm").folder
    model = timm.create_model(f"local-dir:{folder}", pretrained=True, num_classes=7).eval()
    plain = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    x_NCHW = torch.randn(2, *model.pretrained_cfg["input_size"])
    assert model(x_NCHW).shape == (2, 7)
    torch.testing.assert_close(model.forward_features(x_NCHW), plain.forward_features(x_NCHW))


def test_nothing_is_said_of_weights_that_timm_has_under_the_same_name(tmp_path: Path) -> None:
    write_run(tmp_path, SPECS["vision transformer, colour"])
    config = json.loads((export_run(tmp_path, "timm").folder / "config.json").read_text())
    assert not {"license", "description", "url", "hf_hub_id", "origin_url"} & config["pretrained_cfg"].keys()
    assert config["pretrained_cfg"]["tag"] == "contune"


def test_the_stem_in_timms_parts_is_the_same_function() -> None:
    """In float64, on an odd size, where only the order of sums differs."""
    torch.manual_seed(0)
    ours = spec("resnet-mini", size=7, channels=3).build().double().eval()
    with torch.no_grad():
        ours.bn1.running_mean.normal_()  # type: ignore[union-attr, operator]
        ours.bn1.running_var.uniform_(0.5, 2)  # type: ignore[union-attr, operator]
    theirs = timm.create_model(
        "resnet18", num_classes=0, layers=[1, 1, 1, 1], channels=[32, 64, 128, 256], replace_stem_pool=True
    )
    theirs.load_state_dict(stem_in_timms_parts(ours.state_dict()))
    theirs.double().eval()
    x_NCHW = torch.randn(2, 3, 7, 7, dtype=torch.float64)
    enlarged_NCHW = x_NCHW.repeat_interleave(4, dim=2).repeat_interleave(4, dim=3)
    with torch.no_grad():
        torch.testing.assert_close(theirs(enlarged_NCHW), ours(x_NCHW), rtol=1e-6, atol=1e-7)


def test_group_norm_is_refused_with_the_way_out(tmp_path: Path) -> None:
    write_run(tmp_path, spec("resnet-mini", size=8, channels=1, norm="group"))
    with pytest.raises(UserError, match=r"norm=group cannot be said in timm's arguments.* --to safetensors or"):
        export_run(tmp_path, "timm")
    assert [path.name for path in tmp_path.iterdir()] == ["encoder.safetensors"]


def test_weights_that_timm_does_not_take_are_refused(tmp_path: Path) -> None:
    """A blur after the stem's pooling has no place in timm's parts."""
    write_run(tmp_path, spec("resnetblur18", size=32, channels=3))
    with pytest.raises(UserError, match="timm's resnetblur18 does not take these weights from a folder; export it"):
        export_run(tmp_path, "timm")
    assert [path.name for path in tmp_path.iterdir()] == ["encoder.safetensors"]
