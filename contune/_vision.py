"""The one place that imports torchvision and timm.

The wheels of torchvision on PyPI are built for CUDA. Beside a CPU-only torch their compiled operators do
not load, and `import torchvision` then fails while it describes two of them that nobody here calls. Naming
those two first lets everything else of torchvision, and so timm, work on both builds.
"""

import sys

import torch


def _import_torchvision() -> None:
    try:
        import torchvision  # noqa: F401  (imported for its effect on sys.modules)
    except RuntimeError as error:
        if "operator torchvision::nms does not exist" not in str(error):
            raise
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        for operator in ("nms", "qnms"):
            torch.library.define(
                f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            )


_import_torchvision()

import timm  # noqa: E402  (after torchvision is importable)
import torchvision  # noqa: E402

__all__ = ["timm", "torchvision"]
