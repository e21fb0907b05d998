"""Running means that stay on the device until somebody asks."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from contune import distributed


class Meter:
    """Adds up scalars by name; `read` is the only place where the host waits for the device."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self.count = 0

    def add(self, values: Mapping[str, Tensor]) -> None:
        for name, value in values.items():
            # Never the value itself: a replayed graph writes its next result over it.
            self._sums.setdefault(name, torch.zeros((), device=value.device))
        torch._foreach_add_([self._sums[name] for name in values], [v.detach().float() for v in values.values()])
        self.count += 1

    def state_dict(self) -> dict[str, Any]:
        return {"sums": dict(self._sums), "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._sums, self.count = dict(state["sums"]), state["count"]

    def read(self, of_this_moment: Mapping[str, Tensor] | None = None) -> dict[str, float]:
        """The means since the last call, and beside them values of this moment, over all ranks."""
        now = of_this_moment or {}
        scalars = [*self._sums.values(), *(value.float() for value in now.values())]
        counts = [self.count] * len(self._sums) + [1] * len(now)
        totals = distributed.mean(torch.stack(scalars)).tolist()
        names = [*self._sums, *now]
        self._sums, self.count = {}, 0
        return {name: total / count for name, total, count in zip(names, totals, counts, strict=True)}
