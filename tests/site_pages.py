"""The README and the hand-written pages of the site as tests read them: snippets by language, and command lines."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted(path for path in (ROOT / "docs").rglob("*.md") if path.name != "results.md")]
FENCE = re.compile(
    r"^(?P<mark>[ \t]*<!-- snippet: (?P<why>.*?) -->\n)?"
    r"(?P<indent>[ \t]*)```(?P<language>\w*)\n(?P<body>.*?)^(?P=indent)```$",
    flags=re.MULTILINE | re.DOTALL,
)
COMMAND = re.compile(r"(?:srun )?(?:torchrun .* -m )?contune(?: (.*))?")


@dataclass(frozen=True)
class Snippet:
    page: str
    line: int
    language: str
    text: str
    only_parsed: bool

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def snippets(language: str | None = None) -> list[Snippet]:
    found = [
        Snippet(
            page=page.relative_to(ROOT).as_posix(),
            line=page.read_text().count("\n", 0, match.start()) + 1,
            language=match["language"],
            text=re.sub(f"^{match['indent']}", "", match["body"], flags=re.MULTILINE),
            only_parsed=match["mark"] is not None,
        )
        for page in PAGES
        for match in FENCE.finditer(page.read_text())
    ]
    return [snippet for snippet in found if language is None or snippet.language == language]


def command_lines() -> list[tuple[str, list[str]]]:
    """Where it stands and the words after `contune`, for every command line in a block or in backticks."""
    found = [(str(snippet), line) for snippet in snippets("bash") for line in snippet.text.splitlines()]
    for page in PAGES:
        found += [(page.name, text) for text in re.findall(r"`(contune [^`\n]+)`", FENCE.sub("", page.read_text()))]
    matches = [(place, COMMAND.fullmatch(line.strip())) for place, line in found]
    return [(place, shlex.split(match[1] or "", comments=True)) for place, match in matches if match]
