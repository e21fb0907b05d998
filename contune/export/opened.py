"""The lines of a model card that open a photo as training did: upright, and on white where it is transparent."""

IMPORT = "from PIL import Image, ImageOps"


def opened(channels: int) -> str:
    """Python that has the photo as `image`, in the colours that the encoder takes. `contune.data.decode` does more."""
    mode = "L" if channels == 1 else "RGB"
    return f"""\
image = ImageOps.exif_transpose(Image.open("photo.png")).convert("RGBA")
image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("{mode}")"""
