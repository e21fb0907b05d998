"""Documents that live elsewhere in the repository: shown as pages, with copies of the files they link to."""

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

ROOT = Path(__file__).parent.parent.parent
INCLUDED = {
    "how/kernels.md": "contune/kernels/README.md",
    "benchmarks.md": "benchmarks/README.md",
    "result-files.md": "results/README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    **{f"examples/{path.stem}.md": f"examples/{path.name}" for path in sorted((ROOT / "examples").glob("*.py"))},
}
"""Pages of the site, and the documents that they are."""
PAGE_OF = {document: page for page, document in INCLUDED.items()}
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
ITEM = re.compile(r"(?:[-*]|\d+\.) ")
TAKEN_ALONG = "files"
"""The folder of the site for what else of the repository pages link to."""


def included_pages() -> dict[str, str]:
    """Their text, by page."""
    return {page: _text(document) for page, document in INCLUDED.items()}


def linked_files(text: str, page: str) -> set[str]:
    """Files and folders of the repository, outside of the site, that a page links to."""
    targets = {_target(match[1], page) for match in LINK.finditer(text)}
    return {target for target in targets if _page(target) is None and (ROOT / target).exists()}


def folder_page(folder: str) -> str:
    """A page in the place of a folder that is linked to: what is in it."""
    names = sorted(path.name for path in (ROOT / folder).iterdir() if path.is_file() and path.suffix == ".json")
    not_searched = "---\nsearch:\n  exclude: true\n---\n"
    return "\n".join([not_searched, f"# {folder}\n", *(f"- [{name}]({name})" for name in names), ""])


def with_site_links(text: str, page: str) -> str:
    """A document's links, which are right in the repository, as they are right in the site."""

    def replaced(match: re.Match[str]) -> str:
        target, heading = _target(match[1], page), match[2] or ""
        if target == "README.md":
            there, heading = ("results.md" if heading == "#results" else "index.md"), ""
        elif (ROOT / target).is_dir():
            there = f"{TAKEN_ALONG}/{target}/index.md"
        else:
            there = _page(target) or (f"{TAKEN_ALONG}/{target}" if (ROOT / target).exists() else "")
        return relpath(there, PurePosixPath(page).parent) + heading if there else match[0]

    return text if page.startswith(TAKEN_ALONG) else LINK.sub(replaced, text)


def with_lists_apart(text: str) -> str:
    """A blank line before lists that follow a paragraph: GitHub needs none, Python's Markdown does."""
    lines: list[str] = []
    fenced = False
    for line in text.splitlines():
        fenced ^= line.lstrip().startswith("```")
        before = lines[-1] if lines else ""
        if ITEM.match(line) and before and not ITEM.match(before) and not before.startswith(" ") and not fenced:
            lines.append("")
        lines.append(line)
    return "\n".join(lines) + "\n"


def _text(document: str) -> str:
    text = (ROOT / document).read_text(encoding="utf-8")
    return text if document.endswith(".md") else f"# {Path(document).name}\n\n```python\n{text}```\n"


def _home_of(page: str) -> str:
    """The document in the repository that a page is made from."""
    return INCLUDED.get(page, f"docs/{page}")


def _target(link: str, page: str) -> str:
    """What a link points to, from the root of the repository."""
    return normpath(str(PurePosixPath(_home_of(page)).parent / link))


def _page(target: str) -> str | None:
    """The place in the site of a file of the repository, where it has one."""
    if target.startswith("docs/") and not target.endswith(".py"):
        return target.removeprefix("docs/")
    return "index.md" if target == "README.md" else PAGE_OF.get(target)
