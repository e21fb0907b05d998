"""Values of k1 and k2, what a short run made of them, and which to take."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Values(NamedTuple):
    k1: float
    k2: float

    @property
    def overrides(self) -> list[str]:
        """As the command line takes them."""
        return [f"method.k1={plain(self.k1)}", f"method.k2={plain(self.k2)}"]

    @property
    def folder(self) -> str:
        return f"k1-{plain(self.k1)}-k2-{plain(self.k2)}"

    def __str__(self) -> str:
        return f"k1 {plain(self.k1)}, k2 {plain(self.k2)}"


OWN, PAPER, SUPCON = "the recipe's own", "the paper's default", "SupCon"
SUPCON_VALUES = Values(0.0, 1.0)


def paper_default(*, supervised: bool) -> Values:
    """Section 4.4, and appendix B.3 for training without labels."""
    return Values(5000.0, 1.0) if supervised else Values(1.0, 1.5)


def rounded(k1: float, k2: float) -> Values:
    """To what a person can read and type: three digits of k1, two decimals of k2."""
    return Values(float(f"{k1:.3g}"), round(k2, 2))


def plain(number: float) -> str:
    """The shortest text that is read back as the same number."""
    return f"{number:g}" if float(f"{number:g}") == number else repr(number)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A short run."""

    values: Values
    why: str = ""
    """What else these values are: the recipe's own, the paper's default; empty for others."""
    accuracy: float | None = None
    """Top-1 % of the fast linear probe on the validation split; None where the run did not come to its end."""
    knn: float | None = None
    """Top-1 % of kNN there; of a run that was given up, when it was."""
    num_images: int | None = None
    """Validation images that both were measured on."""
    seen: dict[int, float] = field(default_factory=dict)
    """kNN % on the way, by epoch."""
    stopped_at: int | None = None
    """The epoch after which it was given up."""
    error: str = ""

    @property
    def is_finished(self) -> bool:
        return self.accuracy is not None

    @property
    def remark(self) -> str:
        words = [self.why] if self.why else []
        if self.stopped_at is not None:
            words.append(f"given up after epoch {self.stopped_at}")
        if self.error:
            words.append(f"failed: {self.error}")
        return ", ".join(words)


def rank(trial: Trial) -> tuple[float, ...]:
    """Higher is better: accuracy, of equals kNN, of equals the smaller k1, then the k2 that is nearer to 1.

    What does no better with more of k1 has no reason to have it: it takes push from the negatives.
    """
    unknown = -1.0
    accuracy, knn = (unknown if value is None else value for value in (trial.accuracy, trial.knn))
    return accuracy, knn, -trial.values.k1, -abs(trial.values.k2 - 1)


def best(trials: Iterable[Trial]) -> Trial | None:
    """The highest by `rank`; of equals the one that was tried first.

    k1 = 0 is SupCon: it is run for comparison, and chosen only where the recipe itself has it.
    """
    candidates = [t for t in trials if t.is_finished and (t.values.k1 > 0 or OWN in t.why)]
    return max(candidates, key=rank, default=None)


def named(values: Values, *, own: Values, paper: Values) -> str:
    """What values are called that stand for something."""
    names = {OWN: own, PAPER: paper, SUPCON: SUPCON_VALUES}
    return " and ".join(name for name, known in names.items() if known == values)


def without_twins(values: Sequence[Values]) -> list[Values]:
    return list(dict.fromkeys(values))
