"""Numbers and names as a person reads them."""

from math import sqrt

MEASURES = {
    "linear": ("Linear probe", "a linear classifier trained on the frozen encoder, on augmented images"),
    "linear-fast": ("Linear probe", "a linear classifier trained on the frozen encoder’s features"),
    "classifier": ("Classifier", "the classifier that was trained together with the encoder"),
    "knn": ("Nearest neighbours", "a vote of the most similar training images; nothing is trained"),
    "pixels-linear-fast": ("Raw pixels, linear", "the fast linear probe on pixels instead of features"),
    "pixels-knn": ("Raw pixels, neighbours", "the neighbours’ vote on pixels instead of features"),
}
"""Per measure its title and what its number means."""


def measure_title(name: str) -> str:
    return MEASURES.get(name, (name, ""))[0]


def duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


def wilson_interval(percent: float, num: int) -> tuple[float, float]:
    """The 95 % interval of a share seen in `num` images, in per cent; Wilson 1927, sound at 0 and 100 too."""
    z, p = 1.96, percent / 100
    middle = (p + z**2 / (2 * num)) / (1 + z**2 / num)
    half = z * sqrt(p * (1 - p) / num + z**2 / (4 * num**2)) / (1 + z**2 / num)
    return 100 * max(0.0, middle - half), 100 * min(1.0, middle + half)
