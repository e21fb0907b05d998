"""Export as a folder that `timm.create_model("local-dir:…", pretrained=True)` loads."""

from pathlib import Path
from typing import Any

from torch import Tensor

from contune.device import timm
from contune.errors import UserError
from contune.export.card import Written, prepared_photo
from contune.models.encoders import MINI, RESNET_MINI, has_small_stem
from contune.models.saved import TIMM_FILE, Classifier, EncoderSpec, ImageEncoder, save_encoder
from contune.models.timm_stem import ENLARGED, STEM_CHANNELS, stem_for_timm


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
        timm.models.save_for_hf(model, folder, model_args=model_args or None, safe_serialization=True)
        save_encoder(folder / TIMM_FILE, model, spec)  # the same weights, with the description that contune needs
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


def _usage(spec: EncoderSpec, enlarged: int) -> str:
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
    if enlarged > 1:
        usage += f"""
timm has no stem for small images. These weights express it with `replace_stem_pool`, for images of {spec.image_size}
pixels that are enlarged to {spec.image_size * enlarged}. The features are the run's. Fine-tuning starts from them, with
more weights in the stem.
"""
    return usage
