"""Encoders, the heads on them, and the files they are saved in."""

from contune.models.encoders import build_encoder
from contune.models.saved import EncoderSpec, ImageEncoder, load_encoder, save_encoder

__all__ = ["EncoderSpec", "ImageEncoder", "build_encoder", "load_encoder", "save_encoder"]
