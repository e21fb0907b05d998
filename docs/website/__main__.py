"""Writes the pages of the site: `python -m website`, from the folder docs.

The lists of commands, settings and recipes go to docs/reference, which is part of the repository. Then build/pages gets
all that the site shows: docs, documents from elsewhere in the repository, and the files that they link to. Links are
rewritten for the site. Any generator can build the site from there; mkdocs.yml needs no hook.

python -m website --reference    only docs/reference
python -m website --pages        only build/pages
"""

import shutil
import sys

from website.commands import commands_page
from website.recipes import recipes_page
from website.repository import (
    ROOT,
    TAKEN_ALONG,
    folder_page,
    included_pages,
    linked_files,
    with_lists_apart,
    with_site_links,
)
from website.settings import settings_page

DOCS, PAGES = ROOT / "docs", ROOT / "build" / "pages"
GENERATED = {"commands.md": commands_page, "settings.md": settings_page, "recipes.md": recipes_page}


def write_reference() -> None:
    for name, page in GENERATED.items():
        (DOCS / "reference" / name).write_text(page(), encoding="utf-8")


def write_pages() -> None:
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(DOCS, PAGES, ignore=shutil.ignore_patterns("*.py", "__pycache__", "website"))
    texts = {path.relative_to(PAGES).as_posix(): path.read_text(encoding="utf-8") for path in PAGES.rglob("*.md")}
    texts |= included_pages()
    wanted = {path for page, text in texts.items() for path in linked_files(text, page)}
    for folder in sorted(path for path in wanted if (ROOT / path).is_dir()):
        texts[f"{TAKEN_ALONG}/{folder}/index.md"] = folder_page(folder)
        wanted |= {path.relative_to(ROOT).as_posix() for path in (ROOT / folder).glob("*.json")}
        wanted.remove(folder)
    for path in wanted:
        (PAGES / TAKEN_ALONG / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, PAGES / TAKEN_ALONG / path)
    for page, text in texts.items():
        (PAGES / page).parent.mkdir(parents=True, exist_ok=True)
        (PAGES / page).write_text(with_lists_apart(with_site_links(text, page)), encoding="utf-8")


if __name__ == "__main__":
    if "--pages" not in sys.argv:
        write_reference()
    if "--reference" not in sys.argv:
        write_pages()
