"""Adds files outside docs/ to the site, and the links to them.

A page links to a file by its path in the repository (`../ARCHITECTURE.md`, `../examples/chat.py`), so the link works
wherever the repository is read. This hook makes pages of those files and directs the links to them. It does not
change a
link to another file; the strict build refuses such a link.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent

PAGES = {
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "benchmarks/RESULTS.md": "project/results.md",
}
"""File in the repository → page of the site."""

LINK = re.compile(r"(?P<before>\]\()(?P<target>[^)\s#:]+)(?P<after>(?:#[^)\s]*)?\))")
FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2 *$", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside docs/."""
    for path, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text("utf-8")))
    for path in sorted((ROOT / "benchmarks" / "plots").glob("*.png")):
        files.append(File.generated(config, f"plots/{path.name}", abs_src_path=str(path)))
    for path in sorted((ROOT / "examples").glob("*.py")):
        page = File.generated(config, f"examples/{path.stem}.md", content=_example(path))
        page.inclusion = page.inclusion.NOT_IN_NAV  # docs/examples.md links to them
        files.append(page)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files, **_: Any) -> str:
    """Direct links to files of the repository to their pages."""
    here = _repository_path(page.file.src_uri)

    def lead(match: re.Match[str]) -> str:
        wanted = posixpath.normpath(posixpath.join(posixpath.dirname(here), match["target"]))
        uri = _site_path(wanted)
        if uri is None or files.get_file_from_path(uri) is None:
            return match[0]
        relative = posixpath.relpath(uri, posixpath.dirname(page.file.src_uri) or ".")
        return match["before"] + relative + match["after"]

    parts: list[str] = []
    end = 0
    for fence in FENCE.finditer(markdown):  # code is left alone
        parts += [LINK.sub(lead, markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, LINK.sub(lead, markdown[end:])])


def _repository_path(uri: str) -> str:
    for path, page in PAGES.items():
        if uri == page:
            return path
    if uri.startswith("examples/"):
        return uri.removesuffix(".md") + ".py"
    return "docs/" + uri


def _site_path(path: str) -> str | None:
    """Return the site's path of a file of the repository."""
    if path in PAGES:
        return PAGES[path]
    if path == "README.md":
        return "index.md"
    folder, name = posixpath.split(path)
    if folder == "examples":
        return f"examples/{name.removesuffix('.py')}.md"
    if folder == "benchmarks/plots":
        return f"plots/{name}"
    return path.removeprefix("docs/") if path.startswith("docs/") else None


def _example(path: Path) -> str:
    return f"# {path.name}\n\n```python\n{path.read_text('utf-8').rstrip()}\n```\n"
