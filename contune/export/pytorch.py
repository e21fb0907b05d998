"""The two exports for PyTorch: a folder that timm loads, and safetensors for contune and for PyTorch without it."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from contune.device import timm
from contune.errors import UserError
from contune.export.card import ARRAY, Written, prepared_photo
from contune.models import ImageEncoder, load_encoder, save_encoder
from contune.models.encoders import MINI, RESNET_MINI, has_small_stem
from contune.models.saved import CLASSIFIER_FILE, ENCODER_FILE, TIMM_FILE, Classifier, EncoderSpec, save_classifier
from contune.models.timm_stem import ENLARGED, stem_for_timm


def write_timm(encoder: ImageEncoder, classifier: Classifier | None, folder: Path) -> Written:
    """Weights, and `config.json` with the preprocessing, for timm and for contune."""
    spec, small_stem = encoder.spec, has_small_stem(encoder.backbone)
    architecture, model_args = timm_arguments(spec)
    model_args |= {"replace_stem_pool": True} if small_stem else {}
    enlarged = ENLARGED if small_stem else 1
    side = spec.image_size * enlarged
    try:
        model: Any = timm.create_model(architecture, num_classes=0, in_chans=spec.channels, **model_args)
        weights = encoder.backbone.state_dict()
        model.load_state_dict(stem_for_timm(weights) if small_stem else weights)
        # Only what timm needs: nothing about weights it may have under this name itself, nor about their license.
        model.pretrained_cfg = {
            "architecture": architecture,
            "input_size": (spec.channels, side, side),
            "fixed_input_size": "img_size" in model_args,
            "interpolation": "nearest" if small_stem else "bilinear",
            "crop_pct": 1.0,
            "crop_mode": {"squash": "squash", "crop": "center", "pad": "border"}[spec.resize],
            "mean": spec.mean,
            "std": spec.std,
            "num_classes": 0,
            # timm would adapt the first convolution from three channels to those of input_size.
            "first_conv": model.pretrained_cfg.get("first_conv") if spec.channels in (1, 3) else None,
            "classifier": model.pretrained_cfg.get("classifier"),
        }
        timm.models.save_for_hf(model, folder, model_args=model_args or None, safe_serialization=True)
        save_encoder(folder / TIMM_FILE, model, spec)  # the same weights, with the description that contune needs
        loaded = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    # A stem with anti-aliasing or too many channels, group-norm (timm's has 32 groups, ours 8), or weights that timm
    # converts from an older form (Swin).
    except (RuntimeError, IndexError):
        raise UserError(f"timm's {architecture} cannot load these weights from a folder. Use --to onnx.") from None

    usage = f"""\
```python
import numpy, timm, torch

model = timm.create_model("local-dir:.", pretrained=True).eval()  # a path instead of the dot, or hf-hub:OWNER/NAME

{prepared_photo(spec, enlarged)}
```

`timm.create_model("local-dir:.", pretrained=True, num_classes=10)` adds a new classifier to train. contune loads the
encoder with `contune.load_encoder(".")`, or from the hub with `contune.load_encoder("hf:OWNER/NAME")`. For a square
photo, `timm.data.create_transform(**timm.data.resolve_model_data_config(model))` does the rest of the preparation.
"""

    def outputs(images_NCHW: Tensor) -> list[Tensor]:
        x_NCHW = encoder.prepare(images_NCHW)
        return [loaded(x_NCHW.repeat_interleave(enlarged, dim=2).repeat_interleave(enlarged, dim=3))]

    return Written(usage=usage, library="timm", outputs=outputs)


def timm_arguments(spec: EncoderSpec) -> tuple[str, dict[str, Any]]:
    """timm's name for the encoder, and the arguments it takes besides the number of channels."""
    if spec.encoder == RESNET_MINI:
        return "resnet18", {**MINI}
    architecture = timm.models.split_model_name_tag(spec.encoder)[0]
    try:
        timm.create_model(architecture, img_size=spec.image_size, num_classes=0)
    except TypeError:  # convolutional models take any size and no such argument
        return architecture, {}
    return architecture, {"img_size": spec.image_size}


def write_safetensors(encoder: ImageEncoder, classifier: Classifier | None, folder: Path) -> Written:
    """`encoder.safetensors`, and `config.json` with the network and its preprocessing."""
    spec = encoder.spec
    save_encoder(folder / ENCODER_FILE, encoder.backbone, spec)
    description = {**asdict(spec), "num_features": encoder.num_features}
    (folder / "config.json").write_text(json.dumps(description, indent=2) + "\n")
    name, values = timm_arguments(spec)
    arguments = "".join(f", {key}={value}" for key, value in values.items())
    if spec.norm == "group":
        arguments += ", norm_layer=functools.partial(timm.layers.GroupNorm, num_groups=8)"
    network = f'model = timm.create_model("{name}", num_classes=0, in_chans={spec.channels}{arguments})'
    if has_small_stem(encoder.backbone):
        network += f"""
model.conv1 = torch.nn.Conv2d({spec.channels}, 64, 3, stride=1, padding=1, bias=False)
model.maxpool = torch.nn.Identity()"""
    usage = f"""\
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

{network}
model.load_state_dict(load_file("{ENCODER_FILE}"))
model.eval()

{prepared_photo(spec)}
```
"""
    if classifier is not None:
        save_classifier(folder / CLASSIFIER_FILE, classifier)
        names = ", ".join(f"`{name}`" for name in classifier.class_names)
        usage += f"""
`{CLASSIFIER_FILE}` holds `weight` and `bias` of a linear classifier on the features. Its classes, in order: {names}.
"""
    loaded = load_encoder(folder)
    return Written(usage=usage, library="pytorch", outputs=lambda images_NCHW: [loaded(images_NCHW)])
