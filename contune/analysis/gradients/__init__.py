"""How hard an anchor is pulled by its positives and pushed by its negatives: lemmas 1 and 2 of the paper, measured."""

from contune.analysis.gradients.by_anchor import responses_by_anchor
from contune.analysis.gradients.coefficients import Coefficients, coefficients
from contune.analysis.gradients.responses import responses

__all__ = ["Coefficients", "coefficients", "responses", "responses_by_anchor"]
