"""Hooks of mkdocs: adds generated pages and documents from elsewhere in the repository, and fixes their links."""

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
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


def on_files(files: Files, config: MkDocsConfig) -> Files:
    made = {
        "reference/commands.md": commands_page(),
        "reference/settings.md": settings_page(),
        "reference/recipes.md": recipes_page(),
        **included_pages(),
    }
    for page, text in made.items():
        files.append(File.generated(config, page, content=text))
    wanted: set[str] = set()
    for file in files.documentation_pages():
        wanted |= linked_files(file.content_string, file.src_uri)
    folders = {path for path in wanted if (ROOT / path).is_dir()}
    for folder in sorted(folders):
        files.append(File.generated(config, f"{TAKEN_ALONG}/{folder}/index.md", content=folder_page(folder)))
        wanted |= {path.relative_to(ROOT).as_posix() for path in (ROOT / folder).glob("*.json")}
    for path in sorted(wanted - folders):
        files.append(File.generated(config, f"{TAKEN_ALONG}/{path}", abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    return with_lists_apart(with_site_links(markdown, page.file.src_uri))
