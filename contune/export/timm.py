"""Export as a folder that `timm.create_model("local-dir:…", pretrained=True)` loads.

timm's ResNet has no stem for small images, a 3×3 convolution of stride 1. With `replace_stem_pool` it has

    7×7 convolution, stride 2 → batch-norm → ReLU → 3×3 convolution, stride 2 → batch-norm → ReLU

which can express the same function of an image enlarged four times, every pixel a block of 4×4. In one dimension, with
q = 2o and q = 2o + 1 the positions after the first convolution and o those after the second:

    the first one copies pixels: `here` reads at 2q, which is pixel o for both q; `next` reads at 2q + 2, which for
    q = 2o + 1 is pixel o + 1; each twice, as x and as -x, of which the ReLU keeps the positive parts, x = x⁺ - x⁻
    the second one at o sees q = 2o - 1, 2o, 2o + 1 and takes from them `here`, `here`, `next`: pixels o - 1, o, o + 1

So the second convolution can be our stem, followed by our batch-norm. Beyond the border both read zeros, as ours does.
Shapes: C channels of the image, K = 64 of the stem.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from contune.device import timm
from contune.errors import UserError
from contune.export.card import Written, open_photo, to_square
from contune.models.encoders import MINI, RESNET_MINI, has_small_stem
from contune.models.saved import SPEC_KEY, Classifier, EncoderSpec, ImageEncoder

ENLARGED = 4
STEM_CHANNELS = 8
"""Eight copies of each channel fit into K."""
READS, TAKES = (0, 2), (0, 0, 1)
"""Where `here` and `next` read, relative to the middle of the 7×7 kernel; which one each tap of the 3×3 takes."""
EPS = 1e-5
"""Epsilon of timm's batch-norm."""


def write_timm(encoder: ImageEncoder, classifier: Classifier | None, folder: Path) -> Written:
    """Weights, and `config.json` with the preprocessing, for timm and for contune."""
    spec, small_stem = encoder.spec, has_small_stem(encoder.backbone)
    if spec.norm != "batch":
        raise UserError(f"timm cannot build norm={spec.norm}: its group-norm has 32 groups, ours 8. Use --to onnx.")
    architecture, model_args = timm_arguments(spec)
    model_args |= {"replace_stem_pool": True} if small_stem else {}
    if small_stem and spec.channels > STEM_CHANNELS:
        raise UserError(f"timm's stem can copy {STEM_CHANNELS} channels, not {spec.channels}. Use --to onnx.")
    enlarged = ENLARGED if small_stem else 1
    side = spec.image_size * enlarged
    try:
        model: Any = timm.create_model(architecture, num_classes=0, in_chans=spec.channels, **model_args)
        weights = encoder.backbone.state_dict()
        model.load_state_dict(stem_for_timm(weights) if small_stem else weights)
        # Only what timm needs: nothing about weights it may have under this name itself, nor about their license.
        model.pretrained_cfg = {
            "architecture": architecture,
            "tag": "contune",
            "custom_load": False,
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
        about = {SPEC_KEY: asdict(spec)}
        timm.models.save_for_hf(model, folder, about, model_args=model_args or None, safe_serialization=True)
        loaded = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    except RuntimeError:  # a stem with anti-aliasing, or weights that timm converts from an older form (Swin)
        raise UserError(f"timm's {architecture} cannot load these weights from a folder. Use --to onnx.") from None

    def outputs(images_NCHW: Tensor) -> list[Tensor]:
        x_NCHW = encoder.prepare(images_NCHW)
        return [loaded(x_NCHW.repeat_interleave(enlarged, dim=2).repeat_interleave(enlarged, dim=3))]

    return Written(usage=_usage(spec, enlarged), library="timm", outputs=outputs)


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


def stem_for_timm(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a ResNet with our small stem, for timm's with `replace_stem_pool`. See the top of this file."""
    ours_KC33 = weights["conv1.weight"]
    K, C = ours_KC33.shape[:2]
    copy_KC77, convolve_KK33 = torch.zeros(K, C, 7, 7), torch.zeros(K, K, 3, 3)
    copies = [(down, right, sign, c) for down in (0, 1) for right in (0, 1) for sign in (1, -1) for c in range(C)]
    for k, (down, right, sign, c) in enumerate(copies):
        copy_KC77[k, c, 3 + READS[down], 3 + READS[right]] = sign
        for y in range(3):
            for x in range(3):
                if (TAKES[y], TAKES[x]) == (down, right):
                    convolve_KK33[:, k, y, x] = sign * ours_KC33[:, c, y, x]
    our_norm = {name.replace("bn1.", "maxpool.1."): weights[name] for name in weights if name.startswith("bn1.")}
    # A batch-norm that changes nothing: its variance and epsilon add up to 1.
    identity = {
        "bn1.weight": torch.ones(K),
        "bn1.bias": torch.zeros(K),
        "bn1.running_mean": torch.zeros(K),
        "bn1.running_var": torch.full((K,), 1 - EPS),
    }
    return {**weights, "conv1.weight": copy_KC77, "maxpool.0.weight": convolve_KK33, **our_norm, **identity}


def _usage(spec: EncoderSpec, enlarged: int) -> str:
    size = spec.image_size
    if spec.channels not in (1, 3):
        enlarge = f".repeat_interleave({enlarged}, 2).repeat_interleave({enlarged}, 3)" if enlarged > 1 else ""
        return f"""\
```python
import numpy, timm, torch

model = timm.create_model("local-dir:.", pretrained=True).eval()  # a path instead of the dot, or hf-hub:OWNER/NAME
{open_photo(spec.channels)}
{to_square(spec)}
image = torch.from_numpy(image).permute(2, 0, 1)[None]{enlarge}
mean, std = (torch.tensor(values)[:, None, None] for values in ({spec.mean}, {spec.std}))
with torch.no_grad():
    features = model((image / 255 - mean) / std)
```
"""
    usage = f"""\
```python
import timm, torch

model = timm.create_model("local-dir:.", pretrained=True).eval()  # a path instead of the dot, or hf-hub:OWNER/NAME
transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model))

{open_photo(spec.channels)}
{to_square(spec)}
with torch.no_grad():
    features = model(transform(image).unsqueeze(0))
```

`timm.create_model("local-dir:.", pretrained=True, num_classes=10)` adds a new classifier to train. contune loads the
encoder with `contune.load_encoder(".")`, or from the hub with `contune.load_encoder("hf:OWNER/NAME")`.
"""
    if enlarged > 1:
        usage += f"""
timm has no stem for small images. These weights express it with `replace_stem_pool`, for images of {size} pixels that
`create_transform` enlarges to {size * enlarged}. Resize other photos to {size} pixels first, as above. The features are
the run's. Fine-tuning starts from them, with more weights in the stem.
"""
    return usage
