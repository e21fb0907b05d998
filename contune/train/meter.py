"""Running means that stay on the device until somebody asks."""

from collections.abc import Mapping

from torch import Tensor


class Meter:
    """Adds up scalars by name; `read` is the only place where the host waits for the device."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self.count = 0

    def add(self, values: Mapping[str, Tensor]) -> None:
        for name, value in values.items():
            value = value.detach().float()
            self._sums[name] = self._sums[name] + value if name in self._sums else value
        self.count += 1

    def read(self) -> dict[str, float]:
        """The means since the last call."""
        means = {name: total.item() / self.count for name, total in self._sums.items()}
        self._sums, self.count = {}, 0
        return means
