"""A short run that keeps some of the embeddings it compared, for `advise` to read."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from contune.data.loader import Loader
from contune.files import whole_file
from contune.methods import Method, Output
from contune.run import RunFolder
from contune.train.setup import Setup
from contune.train.trainer import Trainer
from contune.tune.advise import Moment
from contune.tune.short_run import LookingTrainer, ShortRun

NUM_MOMENTS = 9


@dataclass(frozen=True)
class KeepingRun(ShortRun):
    """A short run to its end that leaves its moments in its folder."""

    def _trainer(self, setup: Setup, method: Method, loader: Loader, folder: RunFolder) -> Trainer:
        return KeepingTrainer(setup, method, loader, folder, {})


class KeepingTrainer(LookingTrainer):
    def __init__(
        self, setup: Setup, method: Method, loader: Loader, folder: RunFolder, stop_below: Mapping[int, float]
    ) -> None:
        super().__init__(setup, method, loader, folder, stop_below)
        last = max(self.num_steps - 1, 1)
        self.compared = _Compared()
        self.recorders.append(self.compared)
        self.kept_steps = {1 + round(part * last / (NUM_MOMENTS - 1)) for part in range(NUM_MOMENTS)}

    def take_step(self, images_BCHW: Tensor, labels_B: Tensor | None) -> dict[str, Tensor]:
        metrics = super().take_step(images_BCHW, labels_B)
        if self.step in self.kept_steps:
            z_ND, groups_N = (self.compared.last[name].cpu() for name in ("z_ND", "groups_N"))
            with whole_file(moment_file(self.folder.path, self.step)) as path:
                save_file({"z_ND": z_ND.float().contiguous(), "groups_N": groups_N.contiguous()}, path)
        return metrics


class _Compared:
    """A recorder that the log gets nothing from."""

    def keep(self, output: Output) -> None:
        self.last = output.state

    def read(self) -> dict[str, Tensor]:
        return {}


def moment_file(folder: Path, step: int) -> Path:
    return folder / f"moment-{step:08}.safetensors"


def read_moments(folder: Path) -> list[Moment]:
    """In the order of the run."""
    moments = []
    for path in sorted(folder.glob("moment-*.safetensors")):
        with safe_open(path, framework="pt") as file:
            step = int(path.stem.removeprefix("moment-"))
            moments.append(Moment(step, file.get_tensor("z_ND"), file.get_tensor("groups_N")))
    return moments
