"""Export as safetensors with a description, for contune and for PyTorch without it."""

import json
from dataclasses import asdict
from pathlib import Path

from contune.export.card import ARRAY, Written, prepared_photo
from contune.export.timm import timm_arguments
from contune.models import ImageEncoder, load_encoder, save_encoder
from contune.models.encoders import has_small_stem
from contune.models.saved import CLASSIFIER_FILE, ENCODER_FILE, Classifier, save_classifier


def write_safetensors(encoder: ImageEncoder, classifier: Classifier | None, folder: Path) -> Written:
    """`encoder.safetensors`, and `config.json` with the network and its preprocessing."""
    save_encoder(folder / ENCODER_FILE, encoder.backbone, encoder.spec)
    description = {**asdict(encoder.spec), "num_features": encoder.num_features}
    (folder / "config.json").write_text(json.dumps(description, indent=2) + "\n")
    usage = _usage(encoder)
    if classifier is not None:
        save_classifier(folder / CLASSIFIER_FILE, classifier)
        names = ", ".join(f"`{name}`" for name in classifier.class_names)
        usage += f"""
`{CLASSIFIER_FILE}` holds `weight` and `bias` of a linear classifier on the features. Its classes, in order: {names}.
"""
    loaded = load_encoder(folder)
    return Written(usage=usage, library="pytorch", outputs=lambda images_NCHW: [loaded(images_NCHW)])


def _usage(encoder: ImageEncoder) -> str:
    spec = encoder.spec
    return f"""\
With contune, which prepares images itself. From the hub: `contune.load_encoder("hf:OWNER/NAME")`.

```python
import contune

encoder = contune.load_encoder(".")  # also a torch Module, for uint8 images (batch, {spec.channels}, height, width)
(part,) = contune.embed(encoder, ["{"photo.png" if spec.channels in (1, 3) else ARRAY}"])
features = part.embeddings
```

With PyTorch and timm only:

```python
import functools, numpy, timm, torch
from safetensors.torch import load_file

{_network(encoder)}
model.load_state_dict(load_file("{ENCODER_FILE}"))
model.eval()

{prepared_photo(spec)}
```
"""


def _network(encoder: ImageEncoder) -> str:
    """Python that builds the network as `model`."""
    name, values = timm_arguments(encoder.spec)
    arguments = "".join(f", {key}={value}" for key, value in values.items())
    if encoder.spec.norm == "group":
        arguments += ", norm_layer=functools.partial(timm.layers.GroupNorm, num_groups=8)"
    lines = [f'model = timm.create_model("{name}", num_classes=0, in_chans={encoder.spec.channels}{arguments})']
    if has_small_stem(encoder.backbone):
        lines.append(f"model.conv1 = torch.nn.Conv2d({encoder.spec.channels}, 64, 3, stride=1, padding=1, bias=False)")
        lines.append("model.maxpool = torch.nn.Identity()")
    return "\n".join(lines)
