"""Encoders, the heads on them, and the files they are saved in."""

from contune.models.encoders import build_encoder
from contune.models.saved import EncoderSpec, ImageEncoder, find_weights, load_encoder, save_encoder

__all__ = ["EncoderSpec", "ImageEncoder", "build_encoder", "find_weights", "load_encoder", "save_encoder"]
