"""Responses at many values of k1 and k2 on the same embeddings."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from contune.analysis.gradients.anchors import BLOCK_PAIRS, anchors_of, check_knobs
from contune.analysis.gradients.by_similarity import Profiles
from contune.analysis.gradients.quantities import SUPCON, split_of
from contune.analysis.gradients.responses import HARD_SHARE, ratios, sums_and_counts
from contune.errors import UserError
from contune.kernels import LossSettings

K1_VALUES = (0.0, 1.0, 10.0, 100.0, 1000.0, 2000.0, 5000.0, 10000.0, 50000.0)
"""From SupCon's to the value at which the paper's accuracy falls."""
K2_VALUES = (1.0, 1.2, 1.5, 2.0, 3.0, 5.0)


class Plan(NamedTuple):
    """Which responses are asked for."""

    temperature: float
    k1: float
    k2: float
    k1_values: tuple[float, ...] = K1_VALUES
    k2_values: tuple[float, ...] = K2_VALUES

    def check(self) -> None:
        for k1, k2 in self.settings():
            check_knobs(LossSettings(self.temperature, k1, k2))

    def settings(self) -> list[tuple[float, float]]:
        """The pair in question, k1's values beside its k2, k2's beside its k1."""
        pairs = [
            (self.k1, self.k2),
            *((k1, self.k2) for k1 in self.k1_values),
            *((self.k1, k2) for k2 in self.k2_values),
        ]
        return list(dict.fromkeys(pairs))


@torch.no_grad()
def sweep(batches: Iterable[tuple[Tensor, Tensor]], plan: Plan) -> dict[str, Any]:
    """Means over batches of embeddings (N, d) and groups (N,), whose members are positives of each other.

    What comes back is plain numbers: `tcl` at the k1 and k2 in question, `supcon`, `by_k1`, `by_k2` and
    `by_similarity`. Each has the names that `responses` gives. Of a batch of more than 2,048 it takes evenly
    spaced anchors.
    """
    plan.check()
    sums: dict[tuple[float, float], defaultdict[str, float]] = {s: defaultdict(float) for s in plan.settings()}
    profiles, num = Profiles.empty(), 0
    for z_ND, groups_N in batches:
        num += 1
        anchors = anchors_of(z_ND, groups_N, None, normalize=True).thinned(BLOCK_PAIRS)
        split = split_of(anchors.compared(plan.temperature), HARD_SHARE)
        for k1, k2 in sums:
            found = ratios(sums_and_counts(anchors, LossSettings(plan.temperature, k1, k2), split=split))
            for name, value in zip(found, torch.stack(list(found.values())).tolist(), strict=True):
                sums[k1, k2][name] += value
        profiles.add(anchors, LossSettings(plan.temperature, plan.k1, plan.k2))
    if not num:
        raise UserError("there is no batch to analyze; ask for one or more")
    means = {setting: {name: total / num for name, total in sums_.items()} for setting, sums_ in sums.items()}
    own = means[plan.k1, plan.k2]
    return {
        "temperature": plan.temperature,
        "hard_share": HARD_SHARE,
        "num_batches": num,
        "tcl": _tcl(own, plan.k1, plan.k2),
        "supcon": {name.removeprefix(SUPCON): value for name, value in own.items() if name.startswith(SUPCON)},
        "by_k1": [_tcl(means[k1, plan.k2], k1, plan.k2) for k1 in sorted({*plan.k1_values, plan.k1})],
        "by_k2": [_tcl(means[plan.k1, k2], plan.k1, k2) for k2 in sorted({*plan.k2_values, plan.k2})],
        "by_similarity": profiles.to_dict(),
    }


def _tcl(means: dict[str, float], k1: float, k2: float) -> dict[str, float]:
    return {"k1": k1, "k2": k2, **{name: value for name, value in means.items() if not name.startswith(SUPCON)}}
