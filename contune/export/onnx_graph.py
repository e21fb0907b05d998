"""One ONNX file with the preprocessing inside: uint8 images of any size in, features out, and class probabilities.

Shapes: N images, H height, W width, C channels, D features, K classes.
"""

import json
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from contune.data.augment.ops import TOP_LEVEL
from contune.errors import UserError
from contune.export.agreement import (
    HALF_TOLERANCE,
    ROUNDED_OTHERWISE,
    TOLERANCE,
    check,
    deviation,
    photos,
    photos_of_other_sizes,
)
from contune.export.opened import IMPORT, opened
from contune.export.resize_graph import squash
from contune.export.source import Source, Written
from contune.models.saved import Classifier, ImageEncoder

ONNX_FILE, CLASSES_FILE = "encoder.onnx", "classes.json"
OUTPUTS = ("features", "probabilities")
PACKAGES = ("onnx", "onnxscript", "onnxruntime")
_IMPORTS = "import json, numpy, onnxruntime\nfrom pathlib import Path"
PROTOBUF_LIMIT = 2**31
"""Bytes; a file of ONNX cannot be larger."""


class Graph(nn.Module):
    """What the file computes: `ImageEncoder.prepare` for images as cameras and NumPy have them, and the encoder."""

    def __init__(self, encoder: ImageEncoder, classifier: Classifier | None, half: bool) -> None:
        super().__init__()
        self.classifier = classifier
        spec = encoder.spec
        self.size, self.half_precision = spec.image_size, half
        self.backbone = encoder.backbone
        self.mean_C11 = nn.Buffer(torch.tensor(spec.mean)[:, None, None])
        self.std_C11 = nn.Buffer(torch.tensor(spec.std)[:, None, None])

    def forward(self, images_NHWC: Tensor) -> tuple[Tensor, ...]:
        x_NCHW = images_NHWC.permute(0, 3, 1, 2).float()
        x_NCHW = (squash(x_NCHW, self.size) / TOP_LEVEL - self.mean_C11) / self.std_C11
        features_ND: Tensor = self.backbone(x_NCHW.half() if self.half_precision else x_NCHW).float()
        return features_ND, *([] if self.classifier is None else [self.classifier.probabilities(features_ND)])


def write_onnx(source: Source, folder: Path, *, half: bool = False) -> Written:
    """`encoder.onnx`, run by ONNX Runtime on photos of several sizes and compared with PyTorch; class names."""
    check_installed()
    file = folder / ONNX_FILE
    _write_graph(source, file, half)
    session = _session(file)
    apart = _deviation(source, session, photos(source.spec.image_size, source.spec.channels))
    resized = [
        _deviation(source, session, images_NCHW)
        for images_NCHW in photos_of_other_sizes(source.spec.image_size, source.spec.channels)
    ]
    tolerance = HALF_TOLERANCE if half else TOLERANCE
    way_out = "leave --half away" if half else "export it with --to timm or --to safetensors"
    check(apart, tolerance, "what ONNX Runtime computes", way_out)
    check(max(resized), tolerance + ROUNDED_OTHERWISE, "what ONNX Runtime computes of resized images", way_out)
    if source.classifier is not None:
        (folder / CLASSES_FILE).write_text(json.dumps(source.classifier.class_names) + "\n", encoding="utf-8")
    return Written(usage=_usage(source, half), deviation=apart, library="onnx")


def check_installed() -> None:
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise UserError(f"--to onnx needs {', '.join(missing)}; install with: pip install 'contune[onnx]'")


def _write_graph(source: Source, file: Path, half: bool) -> None:
    from copy import deepcopy

    encoder = deepcopy(source.encoder).eval()
    if half:
        encoder.backbone.half()
    num_bytes = sum(tensor.nbytes for tensor in encoder.state_dict().values())
    if num_bytes > PROTOBUF_LIMIT:
        raise UserError(
            f"{num_bytes / 2**30:.1f} GiB of weights are more than the 2 GiB an ONNX file can hold; add --half"
        )
    spec = source.spec
    example_NHWC = torch.zeros(2, spec.image_size + 3, spec.image_size + 5, spec.channels, dtype=torch.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter about itself
        torch.onnx.export(
            Graph(encoder, source.classifier, half).eval(),
            (example_NHWC,),
            str(file),
            input_names=["images"],
            output_names=OUTPUTS[: 1 if source.classifier is None else 2],
            dynamic_shapes={"images_NHWC": {0: "batch", 1: "height", 2: "width"}},
            dynamo=True,
            external_data=False,
            verbose=False,
        )


def _session(file: Path) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])


@torch.no_grad()
def _deviation(source: Source, session: Any, images_NCHW: Tensor) -> float:
    expected = [source.encoder(images_NCHW)]
    if source.classifier is not None:
        expected.append(source.classifier.probabilities(expected[0]))
    found = session.run(None, {"images": images_NCHW.permute(0, 2, 3, 1).contiguous().numpy()})
    return max(deviation(ours, torch.from_numpy(theirs)) for ours, theirs in zip(expected, found, strict=True))


def _usage(source: Source, half: bool) -> str:
    spec = source.spec
    shape = "[None, :, :, None]" if spec.channels == 1 else "[None]"
    weights = "Weights are in half precision; outputs are float32." if half else "Weights and outputs are float32."
    imports = "import numpy, onnxruntime" if source.classifier is None else _IMPORTS
    return f"""\
```python
{imports}
{IMPORT}

session = onnxruntime.InferenceSession("{ONNX_FILE}")
{opened(spec.channels)}
images = numpy.asarray(image){shape}
(features,) = session.run(["features"], {{"images": images}})
{_classes(source)}```

`images` is uint8 (batch, height, width, {spec.channels}), of any size: the graph squashes them to
{spec.image_size}×{spec.image_size} pixels (bilinear, antialiased) and normalises them. `features` is
(batch, {source.encoder.num_features}). {weights} Where an image is resized, a gray level here and there is rounded
otherwise than PyTorch does, which shows in the third digit or later of a feature.
"""


def _classes(source: Source) -> str:
    """Two more lines where there is a classifier."""
    if source.classifier is None:
        return ""
    return f"""\
(probabilities,) = session.run(["probabilities"], {{"images": images}})
name = json.loads(Path("{CLASSES_FILE}").read_text("utf-8"))[probabilities[0].argmax()]
"""
