"""What an examination found: a line that is fine, worth a change, or wrong."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    mark: str
    text: str

    @property
    def is_bad(self) -> bool:
        return self.mark == "✗"


def fine(text: str) -> Finding:
    return Finding("✓", text)


def advice(text: str) -> Finding:
    return Finding("!", text)


def wrong(text: str) -> Finding:
    return Finding("✗", text)
