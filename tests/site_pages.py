"""The site's hand-written pages as tests read them: fenced snippets by language, and the command lines in them."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    path for path in (ROOT / "docs").rglob("*.md") if path.name != "results.md"
)  # that one is made from results/, by `make docs`
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
    found = [snippet for page in PAGES for snippet in _snippets_of(page)]
    return [snippet for snippet in found if language is None or snippet.language == language]


def command_lines() -> list[tuple[str, list[str]]]:
    """Where it stands and the words after `contune`, for every command line in a block or in backticks."""
    found = []
    for snippet in snippets():
        if snippet.language in ("", "bash"):
            found += [(str(snippet), line) for line in snippet.text.splitlines()]
    for page in PAGES:
        prose = FENCE.sub("", page.read_text(encoding="utf-8"))
        found += [(page.name, text) for text in re.findall(r"`(contune [^`\n]+)`", prose)]
    matches = [(place, COMMAND.fullmatch(line.strip())) for place, line in found]
    return [(place, shlex.split(match[1] or "")) for place, match in matches if match]


def _snippets_of(page: Path) -> list[Snippet]:
    text = page.read_text(encoding="utf-8")
    return [
        Snippet(
            page=page.relative_to(ROOT / "docs").as_posix(),
            line=text.count("\n", 0, match.start()) + 1,
            language=match["language"],
            text=re.sub(f"^{match['indent']}", "", match["body"], flags=re.MULTILINE),
            only_parsed=match["mark"] is not None,
        )
        for match in FENCE.finditer(text)
    ]
