"""The Python in a model card, run as its reader would: inside the folder, with a photo there."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor


def features_by_the_card(folder: Path, image_CHW: Tensor, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """What each block of Python in the card calls `features`, for this picture."""
    pixels = image_CHW[0].numpy() if len(image_CHW) == 1 else image_CHW.permute(1, 2, 0).numpy()
    Image.fromarray(pixels).save(folder / "photo.png")
    return features_of_the_photo(folder, monkeypatch)


def features_of_the_photo(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Tensor]:
    """As `features_by_the_card`, of the photo that is there already."""
    monkeypatch.chdir(folder)
    blocks = re.findall(r"^```python\n(.*?)^```$", (folder / "README.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    assert blocks
    found = []
    for number, block in enumerate(blocks):
        names: dict[str, Any] = {}
        exec(compile(block, f"{folder}/README.md, block {number}", "exec"), names)
        found.append(torch.as_tensor(names["features"]))
    return found
