"""Weights as safetensors with a description, for contune and for PyTorch without it."""

import json
from dataclasses import asdict
from pathlib import Path

import torch

from contune.export.agreement import TOLERANCE, check, deviation, photos
from contune.export.opened import IMPORT, opened
from contune.export.source import Source, Written
from contune.models import load_encoder, save_encoder
from contune.models.classifier import CLASSIFIER_FILE, save_classifier
from contune.models.saved import ENCODER_FILE


def write_safetensors(source: Source, folder: Path) -> Written:
    """`encoder.safetensors`, and `config.json` that says of what network it is and how images are prepared."""
    file = folder / ENCODER_FILE
    save_encoder(file, source.encoder.backbone, source.spec)
    description = {
        **asdict(source.spec),
        "num_features": source.encoder.num_features,
        "resize": "bilinear, antialiased",
    }
    (folder / "config.json").write_text(json.dumps(description, indent=2) + "\n")
    if source.classifier is not None:
        save_classifier(folder / CLASSIFIER_FILE, source.classifier)
    images_NCHW = photos(source.spec.image_size, source.spec.channels)
    with torch.no_grad():
        apart = deviation(source.encoder(images_NCHW), load_encoder(folder)(images_NCHW))
    check(apart, TOLERANCE, f"what is read back from {ENCODER_FILE}", "see that the disk is sound")
    return Written(usage=_usage(source), deviation=apart, library="pytorch")


def _usage(source: Source) -> str:
    spec = source.spec
    size = spec.image_size
    to_tensor = "[None, None]" if spec.channels == 1 else ".permute(2, 0, 1)[None]"
    return f"""\
With contune, which prepares images by itself:

```python
import contune

encoder = contune.load_encoder(".")  # also a torch Module, of uint8 images (batch, {spec.channels}, height, width)
(part,) = contune.embed(encoder, ["photo.png"])
features = part.embeddings
```

With PyTorch alone, and timm for the network:

```python
import numpy, timm, torch
{IMPORT}
from safetensors.torch import load_file

{_network(source)}
model.load_state_dict(load_file("{ENCODER_FILE}"))
model.eval()

mean, std = (torch.tensor(values)[:, None, None] for values in ({spec.mean}, {spec.std}))
{opened(spec.channels)}
image = image.resize(({size}, {size}), Image.Resampling.BILINEAR)
image = torch.tensor(numpy.asarray(image)){to_tensor}
with torch.no_grad():
    features = model((image / 255 - mean) / std)
```
{_classes(source)}"""


def _classes(source: Source) -> str:
    if source.classifier is None:
        return ""
    names = ", ".join(f"`{name}`" for name in source.classifier.class_names)
    return f"""
`{CLASSIFIER_FILE}` holds `weight` and `bias` of a linear classifier on the features, whose classes are, in its order,
{names}.
"""


def _network(source: Source) -> str:
    """Python that builds the network as `model`."""
    spec = source.spec
    arguments = f"num_classes=0, in_chans={spec.channels}"
    lines = []
    if spec.norm == "group":
        lines.append("from functools import partial\n")
        arguments += ", norm_layer=partial(timm.layers.GroupNorm, num_groups=8)"
    if spec.encoder == "resnet-mini":
        arguments += ", layers=[1, 1, 1, 1], channels=[32, 64, 128, 256]"
    elif hasattr(source.encoder.backbone, "patch_embed"):
        arguments += f", img_size={spec.image_size}"
    name = "resnet18" if spec.encoder == "resnet-mini" else spec.encoder
    lines.append(f'model = timm.create_model("{name}", {arguments})')
    if source.small_stem:
        lines.append(f"model.conv1 = torch.nn.Conv2d({spec.channels}, 64, 3, stride=1, padding=1, bias=False)")
        lines.append("model.maxpool = torch.nn.Identity()")
    return "\n".join(lines)
