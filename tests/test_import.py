"""The public names, and what it costs to import them."""

import subprocess
import sys

import pytest

import contune


def modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_nothing_heavy_is_imported() -> None:
    loaded = modules_after("import contune, contune.cli, contune.eval.measures; contune.__version__")
    assert not {"torch", "numpy", "timm", "torchvision", "sklearn", "matplotlib"} & loaded


def test_a_loss_brings_torch_and_no_vision_library() -> None:
    loaded = modules_after("from contune import tcl_loss")
    assert "torch" in loaded
    assert not {"timm", "torchvision", "sklearn", "matplotlib"} & loaded


def test_public_names_are_there_and_others_are_an_attribute_error() -> None:
    assert sorted(contune.__all__) == dir(contune)
    for name in contune.__all__:
        assert getattr(contune, name) is not None
    with pytest.raises(AttributeError, match="module 'contune' has no attribute 'tcl'"):
        _ = contune.tcl


def test_a_misspelt_setting_is_found_before_torch_is_imported() -> None:
    at_the_end = "atexit.register(lambda: print('torch' in sys.modules))"
    code = f"import atexit, sys; from contune.cli import main; {at_the_end}; main()"
    for word in ("optim.lrr=1", "method.k11=1"):
        done = subprocess.run([sys.executable, "-c", code, "train", word], capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (2, "False\n"), done.stderr
