"""The model card of an export: what the encoder is, how to load it, how good it is, and how it was trained."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from contune import __version__
from contune.eval.measures import MAP, MEASURES
from contune.models.saved import EncoderSpec, ImageEncoder


@dataclass(frozen=True, kw_only=True)
class Written:
    """What a format wrote into its folder."""

    usage: str
    """Markdown that explains how to load the export. Its Python runs inside the folder."""
    library: str
    """The library that loads the export, as model hubs name it."""
    outputs: Callable[[Tensor], Sequence[Tensor]]
    """The loaded export: uint8 images (N, C, H, W) to features and, in formats that have them, probabilities."""


ARRAY = "image.npy"


def open_photo(channels: int) -> str:
    """Python that opens a photo as training did: upright, on white if it is transparent. Other channels: an array."""
    if channels not in (1, 3):
        return f'image = numpy.load("{ARRAY}")  # uint8 (height, width, {channels})'
    mode = "L" if channels == 1 else "RGB"
    return f"""\
from PIL import Image, ImageOps

image = ImageOps.exif_transpose(Image.open("photo.png")).convert("RGBA")
image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("{mode}")"""


def prepared_photo(spec: EncoderSpec, enlarged: int = 1) -> str:
    """Python that opens a photo, prepares it as training did, and gives it to `model`. Arrays must be squares already.

    enlarged: how many times timm's stem wants each side.
    """
    square = f"image = image.resize(({spec.image_size}, {spec.image_size}), Image.Resampling.BILINEAR)"
    if spec.channels not in (1, 3):
        square = f"assert image.shape[:2] == ({spec.image_size}, {spec.image_size})"
    elif spec.resize != "squash":
        square = f"""\
side = {"min" if spec.resize == "crop" else "max"}(image.size)
left, top = ((length - side) // 2 for length in image.size)
image = image.crop((left, top, left + side, top + side))
{square}"""
    to_tensor = "[None, None]" if spec.channels == 1 else ".permute(2, 0, 1)[None]"
    if enlarged > 1:
        to_tensor += f".repeat_interleave({enlarged}, 2).repeat_interleave({enlarged}, 3)  # for timm's stem"
    return f"""\
{open_photo(spec.channels)}
{square}
image = torch.tensor(numpy.asarray(image)){to_tensor}
mean, std = (torch.tensor(values)[:, None, None] for values in ({spec.mean}, {spec.std}))
with torch.no_grad():
    features = model((image / 255 - mean) / std)"""


def model_card(
    encoder: ImageEncoder,
    result: dict[str, Any] | None,
    written: Written,
    deviation: float,
    *,
    license: str | None = None,
    repo: str | None = None,
) -> str:
    """README.md. It leaves out where the data was: a card is public. repo: its OWNER/NAME on the hub, if known."""
    spec = encoder.spec
    colors = {1: "gray", 3: "RGB"}.get(spec.channels, f"{spec.channels}-channel")
    levels = "".join(f" {low:g} to {high:g}," for low, high in spec.ranges)
    values = f"Values of these ranges, by channel, become 0 to 255:{levels[:-1]}.\n" if levels else ""
    trained, accuracy, training, made = "", "", "", ""
    if result is not None:
        trained = f", trained on {result['data']} by {result['method']}"
        settings = {section: result["config"][section] for section in ("method", "augment", "optim")}
        training = f"Data: {result['data']}. Seed: {result['seed']}.\n\n```json\n{json.dumps(settings, indent=2)}\n```"
        main = "mAP %" if any(MAP in measure for measure in result["measures"]) else "top-1 %"
        rows = [("", main, "top-5 %", f"{result['split']} images", "protocol"), ("---",) * 5]
        for measure in result["measures"]:
            top1, top5 = measure.get(MAP, measure["top1"]), measure["top5"]
            title, protocol = MEASURES[measure["name"]].short_title, measure["protocol"].replace("|", "\\|")
            numbers = (f"{top1:.2f}", "–" if top5 is None else f"{top5:.2f}", f"{measure['num_images']:,}")
            rows.append((title, *numbers, protocol))
        accuracy = "\n".join(f"| {' | '.join(cells)} |" for cells in rows) if result["measures"] else ""
        versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
        revision = result["git_revision"] or "of an installed package"
        made = f"Trained on {result['hardware']}, finished {result['finished']}, revision {revision}, {versions}. "
    terms = f"These weights: {license}." if license else "*Not stated, so others may not use these weights.*"
    return f"""\
---
library_name: {written.library}
pipeline_tag: image-feature-extraction
tags: [contune, contrastive-learning]
{f"license: {license.lower()}{chr(10)}" if license else ""}---

# {spec.encoder}{trained}

An image encoder: {colors} images of {spec.image_size}×{spec.image_size} pixels in, \
{encoder.num_features} features out.

## How to load it

{written.usage.strip().replace("OWNER/NAME", repo or "OWNER/NAME")}

## Accuracy

{accuracy or "Not evaluated: that takes labels and a test split."}

## Training

{training or "Unknown: the run has no result.json."}

## Images

Rotated by their EXIF orientation, transparency on white, 16-bit images by the highest 8 of {spec.bits} bits (Pillow's
`convert` clips them), {colors}, made square by `data.resize={spec.resize}`, resized to
{spec.image_size}×{spec.image_size} (bilinear, antialiased; Pillow and contune differ by a gray level here and there),
divided by 255, minus the mean {spec.mean}, divided by the standard deviation {spec.std}.
{values}
## License

{terms} The terms of the training data apply too.

## Provenance

{made}Exported by contune {__version__}. Compared with the run on photos, features differ by at most {deviation:.1e}.
"""
