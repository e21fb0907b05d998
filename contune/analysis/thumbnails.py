"""Small pictures inside the page."""

import base64
from io import BytesIO

import numpy as np
from PIL import Image

from contune.data.imageset import ImageSet

MAX_SIDE = 128
TINY_SIDE = 64
"""Images up to this side are shown pixel by pixel; larger ones are photos."""


def thumbnail(images: ImageSet, index: int, channels: int, description: str) -> str:
    """An <img>. `description` is its alternative text, escaped already."""
    x_CHW = images.images.decode(index, None, channels)
    picture = Image.fromarray(x_CHW[0] if channels == 1 else np.ascontiguousarray(x_CHW.transpose(1, 2, 0)))
    tiny = max(picture.size) <= TINY_SIDE
    out = BytesIO()
    if tiny:
        picture.save(out, format="PNG", optimize=True)
    else:  # a photo as PNG is four times the size for nothing that is seen
        picture.thumbnail((MAX_SIDE, MAX_SIDE), Image.Resampling.LANCZOS)
        picture.save(out, format="JPEG", quality=85)
    kind, data = ("png" if tiny else "jpeg"), base64.b64encode(out.getvalue()).decode()
    look = ' class="tiny"' if tiny else ""
    return f'<img{look} src="data:image/{kind};base64,{data}" alt="{description}">'
