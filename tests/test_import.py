"""The public names, and what it costs to import them."""

import subprocess
import sys

import pytest

import contune


def modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("statement", ["import contune", "import contune.cli", "import contune; contune.__version__"])
def test_nothing_heavy_is_imported(statement: str) -> None:
    assert not {"torch", "numpy", "timm", "torchvision", "sklearn", "matplotlib"} & modules_after(statement)


def test_a_loss_brings_torch_and_no_vision_library() -> None:
    loaded = modules_after("from contune import tcl_loss")
    assert "torch" in loaded
    assert not {"timm", "torchvision", "sklearn", "matplotlib"} & loaded


def test_every_public_name_is_there() -> None:
    assert sorted(contune.__all__) == dir(contune)
    for name in contune.__all__:
        assert getattr(contune, name) is not None
    assert contune.tcl_loss.__module__ == "contune.losses.contrastive"


def test_other_names_are_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'contune' has no attribute 'tcl'"):
        _ = contune.tcl


def test_torchvision_works_whatever_torch_it_meets() -> None:
    from contune.device import timm, torchvision

    assert callable(torchvision.transforms.functional.resize)
    assert timm.is_model("resnet18")
