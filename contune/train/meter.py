"""Running means that stay on the device until somebody asks."""

from collections.abc import Mapping

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

    def read(self) -> dict[str, float]:
        """The means since the last call, over all ranks."""
        totals = distributed.mean(torch.stack(list(self._sums.values()))).tolist()
        means = {name: total / self.count for name, total in zip(self._sums, totals, strict=True)}
        self._sums, self.count = {}, 0
        return means
