"""The folder of a tuning: the same command goes on in it, and another is refused before it writes over anything."""

import json
from dataclasses import dataclass
from pathlib import Path

from contune.config import Config
from contune.errors import UserError
from contune.files import check_unused, make_folder_of, write_whole
from contune.tune.short_run import default_epochs, short_config

SETTINGS = "settings.json"
OTHER_FOLDER = "give another folder with --out"


@dataclass(frozen=True)
class Order:
    """What is tuned and how."""

    how: str
    config: Config
    """The recipe's, of its whole length."""
    epochs: int | None = None
    """Of a short run; None: what the recipe's length makes of it."""

    @property
    def short(self) -> Config:
        return short_config(self.config, self.epochs or default_epochs(self.config.optim.epochs))

    def differences(self, other: "Order") -> list[str]:
        """What a person has to give to get from one to the other; nothing where the short runs are the same."""
        mine, theirs = self.short, other.short
        if not mine.differences(theirs):
            return []
        is_longer = self.epochs != other.epochs and mine.optim.epochs != theirs.optim.epochs
        return [*self.config.differences(other.config), *(["--epochs"] if is_longer else [])]


class TuneFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings_file = path / SETTINGS

    def check(self, order: Order) -> None:
        """Whether it may be done here: in a new or empty folder, or in one of the same trials. Writes nothing."""
        if not self.settings_file.exists():
            check_unused(self.path, "trials")
            return
        before = self._read()
        different = before.differences(order)
        if different:
            raise UserError(f"{self.path} holds trials with another {', '.join(different)}; {OTHER_FOLDER}")
        if before.how != order.how:
            raise UserError(
                f"{self.path} holds what --how {before.how} did, and this is --how {order.how}, which would write over "
                f"it; {OTHER_FOLDER}"
            )

    def open(self, order: Order) -> None:
        make_folder_of(self.settings_file)
        content = {"how": order.how, "epochs": order.epochs, "config": order.config.to_dict()}
        write_whole(self.settings_file, json.dumps(content, indent=2) + "\n")

    def _read(self) -> Order:
        try:
            content = json.loads(self.settings_file.read_text(encoding="utf-8"))
            return Order(content["how"], Config.from_dict(content["config"]), content["epochs"])
        except (ValueError, RecursionError, AttributeError, KeyError, TypeError):
            raise UserError(
                f"{self.settings_file} is not one that this version of contune wrote; {OTHER_FOLDER}"
            ) from None
