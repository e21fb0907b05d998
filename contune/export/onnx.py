"""Export as one ONNX file with the preprocessing inside: uint8 images of any size in, features and probabilities out.

Shapes: N images, H height, W width, C channels, D features, S the side they are resized to, I pixels along an axis.
"""

import json
import warnings
from importlib.util import find_spec
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contune.data.augment import normalize
from contune.data.augment.ops import TOP_LEVEL
from contune.errors import UserError
from contune.export.card import Written, open_photo
from contune.models.saved import Classifier, ImageEncoder

ONNX_FILE, CLASSES_FILE = "encoder.onnx", "classes.json"


class Graph(nn.Module):
    """What the file computes: `ImageEncoder.prepare` for (N, H, W, C) images, the encoder, and the classifier."""

    def __init__(self, encoder: ImageEncoder, classifier: Classifier | None) -> None:
        super().__init__()
        self.encoder, self.classifier = encoder, classifier

    def forward(self, images_NHWC: Tensor) -> tuple[Tensor, ...]:
        spec = self.encoder.spec
        if spec.resize != "squash":
            height, width = images_NHWC.shape[1:3]
            side = (torch.sym_min if spec.resize == "crop" else torch.sym_max)(height, width)  # type: ignore[no-untyped-call]
            top, left = (height - side) // 2, (width - side) // 2
            images_NHWC = F.pad(images_NHWC, (0, 0, -left, left + side - width, -top, top + side - height))
        levels_NCHW = squash(images_NHWC.permute(0, 3, 1, 2).float(), spec.image_size)
        features_ND = self.encoder(normalize(levels_NCHW / TOP_LEVEL, spec.mean, spec.std))
        return features_ND, *([] if self.classifier is None else [self.classifier.probabilities(features_ND)])


def squash(x_NCHW: Tensor, size: int) -> Tensor:
    """Levels 0..255 resized to (size, size), bilinear with antialiasing, rounded; the width first, like PyTorch.

    `F.interpolate(antialias=True)` would become ONNX's Resize. In ONNX Runtime 1.31 that is off by 7e-4 of a gray level
    for a photo. Values half way between two levels, frequent when images are doubled, then round differently than in
    PyTorch. So we compute the weights ourselves, in PyTorch's order, with operations that every runtime has.
    """
    x_NCHS = x_NCHW @ axis_weights(x_NCHW.shape[3], size).mT
    return (axis_weights(x_NCHW.shape[2], size) @ x_NCHS).round()


def axis_weights(num_in: int, size: int) -> Tensor:
    """(S, I): the weight of each input pixel along an axis for each output pixel. For I = S, the identity."""
    in_I = torch.arange(num_in, dtype=torch.float32)
    scale = torch.full((), num_in, dtype=torch.float32) / size
    center_S1 = (scale * (torch.arange(size, dtype=torch.float32) + 0.5))[:, None]
    # Shrinking widens the triangle (antialiasing); enlarging does not.
    distance_SI = (in_I - center_S1 + 0.5) * (1 / scale.clamp(min=1))
    weights_SI = (1 - distance_SI.abs()).clamp(min=0)
    return weights_SI / weights_SI.sum(dim=1, keepdim=True)


def write_onnx(encoder: ImageEncoder, classifier: Classifier | None, folder: Path) -> Written:
    """`encoder.onnx`, and the class names if there is a classifier."""
    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if find_spec(name) is None]
    if missing:
        raise UserError(f"--to onnx needs {', '.join(missing)}. Install them in the clone: pip install -e '.[onnx]'")
    import onnxruntime

    spec, size, file = encoder.spec, encoder.spec.image_size, str(folder / ONNX_FILE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter warns about itself
        torch.onnx.export(
            Graph(encoder, classifier).eval(),
            (torch.zeros(2, size + 3, size + 5, spec.channels, dtype=torch.uint8),),
            file,
            input_names=["images"],
            output_names=["features"] if classifier is None else ["features", "probabilities"],
            dynamic_shapes={"images_NHWC": {0: "batch", 1: "height", 2: "width"}},
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    imports, classes = "numpy, onnxruntime", ""
    if classifier is not None:
        (folder / CLASSES_FILE).write_text(json.dumps(classifier.class_names) + "\n", encoding="utf-8")
        imports = f"json, pathlib, {imports}"
        chosen = "[p >= 0.5 for p in probabilities[0]]" if classifier.multilabel else "probabilities[0].argmax()"
        classes = f"""\
(probabilities,) = session.run(["probabilities"], {{"images": images}})
names = numpy.array(json.loads(pathlib.Path("{CLASSES_FILE}").read_text("utf-8")))[{chosen}]
"""
    usage = f"""\
```python
import {imports}
{open_photo(spec.channels)}

session = onnxruntime.InferenceSession("{ONNX_FILE}")
images = numpy.asarray(image){"[None, :, :, None]" if spec.channels == 1 else "[None]"}
(features,) = session.run(["features"], {{"images": images}})
{classes}```

`images` is uint8 (batch, height, width, {spec.channels}), of any size: the graph makes them
{size}×{size} pixels ({spec.resize}, bilinear, antialiased) and normalizes them. `features` is
(batch, {encoder.num_features}).
For a resized image a gray level may round differently than in PyTorch, which changes later digits of a feature.
"""
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])

    def outputs(images_NCHW: Tensor) -> list[Tensor]:
        found = session.run(None, {"images": images_NCHW.permute(0, 2, 3, 1).contiguous().numpy()})
        return [torch.from_numpy(output) for output in found]

    return Written(usage=usage, library="onnx", outputs=outputs)
