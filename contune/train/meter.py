"""Running means that stay on the device until somebody asks."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from contune import distributed
from contune.train.sent import Sent


class Means(NamedTuple):
    """Asked for, and to be waited for."""

    counts: dict[str, int]
    """Over how many values each is taken."""
    totals: Sent

    def wait(self) -> dict[str, float]:
        return {
            name: total / count for (name, count), total in zip(self.counts.items(), self.totals.wait(), strict=True)
        }


class Meter:
    """Adds up scalars by name."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}

    def add(self, values: Mapping[str, Tensor]) -> None:
        for name, value in values.items():
            # Never the value itself: a replayed graph writes its next result over it.
            self._sums.setdefault(name, torch.zeros((), device=value.device))
            self._counts[name] = self._counts.get(name, 0) + 1
        torch._foreach_add_([self._sums[name] for name in values], [v.detach().float() for v in values.values()])

    def state_dict(self) -> dict[str, Any]:
        return {"sums": dict(self._sums), "counts": dict(self._counts)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._sums, self._counts = dict(state["sums"]), dict(state["counts"])

    def take(self, of_this_moment: Mapping[str, Tensor] | None = None) -> Means:
        """The means since the last call, and beside them values of this moment, over all ranks."""
        now = of_this_moment or {}
        counts = self._counts | dict.fromkeys(now, 1)
        scalars = [*self._sums.values(), *(value.float() for value in now.values())]
        self._sums, self._counts = {}, {}
        return Means(counts, Sent(distributed.mean(torch.stack(scalars))))
