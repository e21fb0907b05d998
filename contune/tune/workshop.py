"""Where trials are done: a few short runs at a time, each in a folder that is named after its values."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from contune.config import Config
from contune.console import say
from contune.device import available_cores
from contune.errors import UserError
from contune.run import RunFolder
from contune.train.many import MOST_ON_A_GPU, Job, run_many
from contune.tune.short_run import ShortRun
from contune.tune.trial import Trial, Values, named, paper_default


@dataclass(frozen=True)
class Workshop:
    """Makes trials out of values. What was done in its folder before is not done again."""

    config: Config
    """Of a short run, with the recipe's own k1 and k2."""
    folder: Path
    parallel: int
    until: float = float("inf")
    """The time.monotonic() after which no more trials are begun."""
    told: set[Values] = field(default_factory=set)
    """Those whose end was told already."""

    @property
    def own(self) -> Values:
        knobs: Any = self.config.method.settings
        return Values(knobs.k1, knobs.k2)

    @property
    def paper(self) -> Values:
        knobs: Any = self.config.method.settings
        return paper_default(supervised=knobs.supervised)

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.until

    @property
    def has_results(self) -> bool:
        """Whether a run came to its end here: then what fails does so by its values, not by the settings."""
        return any(RunFolder(path).result_file.exists() for path in (self.folder / "trials").glob("*"))

    def why(self, values: Values) -> str:
        return named(values, own=self.own, paper=self.paper)

    def run(self, batch: Sequence[Values], work: Mapping[Values, ShortRun] | None = None) -> list[Trial]:
        """A trial for each of these values, in their order; where nothing could be run here yet, the reason."""
        doing = {values: ShortRun() for values in batch} | dict(work or {})
        jobs = [self._job(values, doing[values]) for values in doing]
        results = run_many(jobs, self.parallel)
        done = {values: self._trial(values, result) for values, result in zip(doing, results, strict=True)}
        if all(trial.error for trial in done.values()) and not self.has_results:
            raise UserError(next(iter(done.values())).error)
        for values, trial in done.items():
            self._tell(values, trial)
        return [done[values] for values in batch]

    def run_folder(self, values: Values) -> Path:
        return self.folder / "trials" / values.folder

    def _job(self, values: Values, work: ShortRun) -> Job:
        config = Config.from_dict(self.config.to_dict()).override(values.overrides)
        return Job(config, self.run_folder(values), str(values), work)

    def _trial(self, values: Values, result: dict[str, Any]) -> Trial:
        seen = {int(epoch): knn for epoch, knn in result.get("seen", {}).items()}
        given_up = result.get("stopped_at")
        return Trial(
            values=values,
            why=self.why(values),
            accuracy=result.get("linear_top1"),
            knn=seen.get(given_up) if given_up is not None else result.get("knn_top1"),
            num_images=result["measures"][0]["num_images"] if result.get("measures") else None,
            seen=seen,
            stopped_at=given_up,
            error=result.get("error", ""),
        )

    def _tell(self, values: Values, trial: Trial) -> None:
        if values in self.told:
            return
        self.told.add(values)
        numbers = "" if trial.accuracy is None else f"{trial.accuracy:.2f} %, kNN {trial.knn:.2f} %"
        say(f"{values}: {numbers}{'; ' if numbers and trial.remark else ''}{trial.remark}")


def default_parallel(device: str) -> int:
    """Short runs are small: on a CPU a thread for each does more than all threads for one."""
    on_gpu = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    return MOST_ON_A_GPU if on_gpu else min(MOST_ON_A_GPU, available_cores())
