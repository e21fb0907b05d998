"""Whether a run has the steps that it takes to undo what a large k1 does first: to draw everything together.

Where all pairs have about the same similarity s, as in an untrained network, k1's term of the denominator (equation 9)
is r exp(-s - s/τ) times the others, with

    r = k1 P / (P + k2 N)        for the P positives and N negatives of an anchor

So what counts is k1 times the share of positives, which with labels is about one by the number of classes: the fewer
classes, the smaller the k1 that is too large.
"""

from collections.abc import Iterator
from math import floor, log10

from contune.console import Finding, advice, plural
from contune.doctor.batch import num_steps
from contune.doctor.positives import denominator_of_equals, expected_positives
from contune.methods.tcl import TCL
from contune.train.setup import Setup

LARGE_R = 100.0
"""Up to which even a run of a few epochs learns."""
R_PER_STEP = 0.5
"""Top-1 of `contune train digits method.k1=...` by r, in its 280 steps, and in brackets in twice as many:

with labels          k1 = 0: 98.7 %    500, r = 53: 99.2     1000, r = 106: 98.7    2000, r = 213: 96.7 (99.7)
                                                                                    5000, r = 531: 88.8 (96.0)
supervised=false     k1 = 0: 94.7 %   5000, r = 39: 96.1    20000, r = 157: 95.0   60000, r = 472: 89.7
"""


def about_k1(setup: Setup) -> Iterator[Finding]:
    config, steps = setup.config, num_steps(setup)
    settings = config.method.settings
    if not isinstance(settings, TCL.Settings) or not steps:
        return
    positives = expected_positives(config, setup.dataset.train.labels)
    others = config.optim.batch_images * config.augment.views - 1
    share = positives / denominator_of_equals(config, positives)
    largest = max(LARGE_R, R_PER_STEP * steps) / share
    if settings.k1 > largest:
        yield advice(
            f"method.k1={settings.k1:g} is much for {plural(steps, 'step')} where {100 * positives / others:.2g} % "
            "of a batch are positives of an anchor, so the run may end near the untrained loss; "
            f"take method.k1={_rounded_down(largest):g} or less, or let contune tune --how advise find a value"
        )


def _rounded_down(k1: float) -> float:
    """To one digit."""
    unit = 10.0 ** floor(log10(k1))
    return floor(k1 / unit) * unit
