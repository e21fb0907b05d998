"""A folder that `timm.create_model("local-dir:…", pretrained=True)` loads."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from contune.device import timm
from contune.errors import UserError
from contune.export.agreement import TOLERANCE, check, deviation, photos
from contune.export.opened import IMPORT, opened
from contune.export.source import Source, Written
from contune.export.timm_stem import ENLARGED, stem_in_timms_parts
from contune.models.saved import EncoderSpec

OTHERWISE = "export it with --to safetensors or --to onnx"


@dataclass(frozen=True, kw_only=True)
class TimmForm:
    """An encoder in timm's words."""

    architecture: str
    model_args: dict[str, Any] = field(default_factory=dict)
    enlarged: int = 1
    """How many times larger than the encoder's own images timm has to feed them."""


def write_timm(source: Source, folder: Path) -> Written:
    """Weights, `config.json` with the preprocessing, loaded again by timm and compared on photos."""
    form, spec = timm_form(source), source.spec
    try:
        _save(source, form, folder)
        apart = _deviation(source, folder, form.enlarged)
    except RuntimeError:  # a stem with anti-aliasing, or weights that timm takes for an older form of its own (Swin)
        raise UserError(f"timm's {form.architecture} does not take these weights from a folder; {OTHERWISE}") from None
    check(apart, TOLERANCE, f"what timm loads as {form.architecture}", OTHERWISE)
    return Written(usage=_usage(spec, form.enlarged), deviation=apart, library="timm")


def timm_form(source: Source) -> TimmForm:
    spec = source.spec
    if spec.norm != "batch":
        raise UserError(
            f"an encoder with norm={spec.norm} cannot be said in timm's arguments, whose groups are 32 and ours 8; "
            f"{OTHERWISE}"
        )
    model_args: dict[str, Any] = {"replace_stem_pool": True} if source.small_stem else {}
    enlarged = ENLARGED if source.small_stem else 1
    if spec.encoder == "resnet-mini":
        model_args |= {"layers": [1, 1, 1, 1], "channels": [32, 64, 128, 256]}
        return TimmForm(architecture="resnet18", model_args=model_args, enlarged=enlarged)
    architecture = timm.models.split_model_name_tag(spec.encoder)[0]
    if _takes_img_size(architecture, spec.image_size):
        model_args["img_size"] = spec.image_size
    return TimmForm(architecture=architecture, model_args=model_args, enlarged=enlarged)


def _takes_img_size(architecture: str, size: int) -> bool:
    try:
        timm.create_model(architecture, img_size=size, num_classes=0)
    except TypeError:
        return False
    return True


def _save(source: Source, form: TimmForm, folder: Path) -> None:
    weights, channels = source.encoder.backbone.state_dict(), source.spec.channels
    model: Any = timm.create_model(form.architecture, num_classes=0, in_chans=channels, **form.model_args)
    model.load_state_dict(stem_in_timms_parts(weights) if form.enlarged > 1 else weights)
    model.pretrained_cfg = _pretrained_cfg(model.pretrained_cfg, form, source.spec)
    timm.models.save_for_hf(model, folder, model_args=form.model_args or None, safe_serialization=True)


def _pretrained_cfg(theirs: dict[str, Any], form: TimmForm, spec: EncoderSpec) -> dict[str, Any]:
    """What timm needs to know; nothing of the weights it may have itself under this name, nor of their licence."""
    side = spec.image_size * form.enlarged
    return {
        "architecture": form.architecture,
        "tag": "contune",
        "custom_load": False,
        "input_size": (spec.channels, side, side),
        "fixed_input_size": "img_size" in form.model_args,
        "interpolation": "nearest" if form.enlarged > 1 else "bilinear",
        "crop_pct": 1.0,
        "crop_mode": "squash",
        "mean": spec.mean,
        "std": spec.std,
        "num_classes": 0,
        "first_conv": theirs.get("first_conv"),
        "classifier": theirs.get("classifier"),
    }


@torch.no_grad()
def _deviation(source: Source, folder: Path, enlarged: int) -> float:
    loaded = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    spec = source.spec
    images_NCHW = photos(spec.image_size, spec.channels)
    x_NCHW: Tensor = source.encoder.prepare(images_NCHW)
    theirs_ND = loaded(x_NCHW.repeat_interleave(enlarged, dim=2).repeat_interleave(enlarged, dim=3))
    return deviation(source.encoder.backbone(x_NCHW), theirs_ND)


def _usage(spec: EncoderSpec, enlarged: int) -> str:
    size = spec.image_size
    text = f"""\
```python
import timm, torch
{IMPORT}

model = timm.create_model("local-dir:.", pretrained=True).eval()  # a path instead of the dot, or hf-hub:OWNER/NAME
transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model))

{opened(spec.channels)}
image = image.resize(({size}, {size}), Image.Resampling.BILINEAR)
with torch.no_grad():
    features = model(transform(image).unsqueeze(0))
```

`timm.create_model("local-dir:.", pretrained=True, num_classes=10)` adds a new classifier to train.
"""
    if enlarged == 1:
        return text
    side = size * enlarged
    return f"""{text}
timm has no stem for small images (a 3×3 convolution of stride 1, no pooling). These weights express it with timm's
`replace_stem_pool`, as the same function of an image whose pixels are blocks of {enlarged}×{enlarged}: images of
{size} pixels, enlarged to {side} by nearest neighbour, which `create_transform` does. A photo that is not {size} pixels
wide has to be brought to that size first, as above. The features are those of the run; fine-tuning starts from them,
with a stem that has more weights than the run's.
"""
