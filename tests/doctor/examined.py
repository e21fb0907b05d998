"""What the doctor says of the recipe digits with some settings changed."""

from contune.console import Finding
from contune.doctor import examine
from contune.recipes import RECIPES


def findings(*overrides: str) -> list[Finding]:
    return list(examine(RECIPES["digits"]().override(list(overrides))))


def texts(*overrides: str) -> list[str]:
    return [finding.text for finding in findings(*overrides)]


def advice(*overrides: str) -> str:
    return "\n".join(finding.text for finding in findings(*overrides) if finding.mark == "!")
