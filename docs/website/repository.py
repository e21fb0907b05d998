"""Documents that live elsewhere in the repository: shown as pages, and what pages link to taken along."""

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath

ROOT = Path(__file__).parent.parent.parent
INCLUDED = {
    "how/kernels.md": "contune/kernels/README.md",
    "benchmarks.md": "benchmarks/README.md",
    "result-files.md": "results/README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
}
"""Pages of the site, and the documents that they are."""
README_RESULTS = "runs.md"
README_BLOCK = re.compile(r"^## Results\n(.*?)(?=^## )", flags=re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
TAKEN_ALONG = "files"
"""The folder of the site for files of the repository that pages link to."""


def included_pages() -> dict[str, str]:
    """Their text, by page."""
    pages = {page: (ROOT / document).read_text(encoding="utf-8") for page, document in INCLUDED.items()}
    found = README_BLOCK.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert found, "README.md has lost its section of results"
    return {**pages, README_RESULTS: f"# Single runs\n{found[1]}"}


def home_of(page: str) -> str:
    """The document in the repository that a page is made from, from its root."""
    return "README.md" if page == README_RESULTS else INCLUDED.get(page, f"docs/{page}")


def linked_files(text: str, page: str) -> set[str]:
    """Files of the repository, outside of the site, that a page links to."""
    targets = {_target(match[1], page) for match in LINK.finditer(text)}
    return {target for target in targets if _page(target) is None and (ROOT / target).is_file()}


def with_site_links(text: str, page: str) -> str:
    """A document's links, which are right in the repository, as they are right in the site."""

    def replaced(match: re.Match[str]) -> str:
        target, heading = _target(match[1], page), match[2] or ""
        if target == "README.md":
            there = README_RESULTS if heading == "#results" else "index.md"
            return relpath(there, PurePosixPath(page).parent)
        there = _page(target) or (f"{TAKEN_ALONG}/{target}" if (ROOT / target).is_file() else "")
        return relpath(there, PurePosixPath(page).parent) + heading if there else match[0]

    return LINK.sub(replaced, text)


def _target(link: str, page: str) -> str:
    """What a link points to, from the root of the repository."""
    return normpath(str(PurePosixPath(home_of(page)).parent / link))


def _page(target: str) -> str | None:
    """The place in the site of a file of the repository, where it has one."""
    by_document: Mapping[str, str] = {document: page for page, document in INCLUDED.items()}
    if target in by_document:
        return by_document[target]
    if target.startswith("docs/") and not target.endswith(".py"):
        return target.removeprefix("docs/")
    return "index.md" if target == "README.md" else None
