"""Images as Python code has them, an array, pictures, paths or a folder → one set of images.

Shapes: N images, H height, W width, C channels.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps

from contune.data.folder import folder_splits
from contune.data.images import EncodedImages, TensorImages
from contune.data.imageset import ImageSet
from contune.data.picture_file import undecodable
from contune.data.sequences import NumberedNames
from contune.errors import UserError

NOT_IN_TIFF = {"La": "LA", "RGBa": "RGBA", "HSV": "RGB"}
WANTED = "uint8 images (N, H, W) or (N, H, W, C), a list of pictures or paths, or the path of a folder"


def given_images(images: Any) -> tuple[ImageSet, tuple[str, ...]]:
    """The images and, for a folder of class folders, the names of its classes; only there they have labels."""
    if isinstance(images, str | Path):
        return _from_folder(Path(images).expanduser())
    if isinstance(images, Sequence) and len(images) and isinstance(images[0], str | Path | Image.Image):
        return _from_list(images), ()
    return _from_array(np.asarray(images)), ()


def _from_folder(folder: Path) -> tuple[ImageSet, tuple[str, ...]]:
    if not folder.is_dir():
        raise UserError(f"{str(folder)!r} is no folder; give one with images, or a list of paths")
    splits = folder_splits(folder)
    if splits.test is not None or splits.val is not None:
        raise UserError(f"{str(folder)!r} holds several splits; give one of them, such as {str(folder / 'train')!r}")
    return splits.train, splits.class_names


def _from_list(items: Sequence[Any]) -> ImageSet:
    for number, item in enumerate(items):
        check_item(item, number)
    names = [f"images#{number}" if isinstance(item, Image.Image) else str(item) for number, item in enumerate(items)]
    sources = [
        picture_bytes(item, name) if isinstance(item, Image.Image) else name
        for item, name in zip(items, names, strict=True)
    ]
    return ImageSet(images=EncodedImages(sources, names), labels=None, names=names)


def check_item(item: Any, number: int) -> None:
    if not isinstance(item, str | Path | Image.Image):
        raise UserError(f"item {number} is of type {type(item).__name__}; a list holds pictures (PIL) or paths")


def picture_bytes(picture: Image.Image, name: str) -> bytes:
    """As those of a file, so that one way leads from all kinds to pixels; `name` is for one that cannot be read."""
    file = io.BytesIO()
    try:
        _for_tiff(ImageOps.exif_transpose(picture)).save(file, format="TIFF")  # does not compress
    except Exception as error:  # a picture that is damaged, or closed, makes Pillow raise nearly anything
        raise undecodable(error, name) from error
    return file.getvalue()


def _for_tiff(picture: Image.Image) -> Image.Image:
    """In a mode that the format has, and with no colour that only stands for transparency, which it would forget."""
    if "transparency" in picture.info:
        return picture.convert("RGBA")
    return picture.convert(NOT_IN_TIFF[picture.mode]) if picture.mode in NOT_IN_TIFF else picture


def _from_array(pixels: np.ndarray) -> ImageSet:
    if pixels.dtype != np.uint8:
        raise UserError(
            f"images of type {pixels.dtype} have no known range; give {WANTED} "
            "(of floats from 0 to 1: (images * 255).round().astype('uint8'))"
        )
    x_NHWC = pixels[..., None] if pixels.ndim == 3 else pixels
    if x_NHWC.ndim != 4 or x_NHWC.shape[3] not in (1, 3) or 0 in x_NHWC.shape:
        raise UserError(f"an array of shape {pixels.shape} is not a set of images; give {WANTED}, with C = 1 or 3")
    x_NCHW = torch.from_numpy(np.ascontiguousarray(x_NHWC.transpose(0, 3, 1, 2)))
    return ImageSet(images=TensorImages(x_NCHW), labels=None, names=NumberedNames([("images", len(x_NCHW))]))
