"""A trained encoder at work: embeddings, nearest images, classes of any number of images."""

from contune.embedding.embeddings import Embedded, embed
from contune.embedding.nearest import Found, Hit, search
from contune.embedding.predictions import Predicted, predict

__all__ = ["Embedded", "Found", "Hit", "Predicted", "embed", "predict", "search"]
