"""Numbers of things, and words that agree with them."""


def plural(num: int, noun: str, ending: str = "s") -> str:
    """`1 image`, `1,234 images`"""
    return f"{num:,} {noun}{agreeing(num, '', ending)}"


def agreeing(num: int, one: str, several: str) -> str:
    """The form of a word that goes with so many: `is` or `are`."""
    return one if num == 1 else several
