"""The site: it builds with every link leading somewhere, fetches nothing, and its reference has every public name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import manystream as ms
from manystream.engine.options import EngineOptions
from tests.docs.dialect_pages import REASONS, page, written
from tests.support.blocks import DOCS, ROOT

REFERENCE = re.compile(r"^::: (manystream[\w.]+)$", re.MULTILINE)
UNIONS = {"Block", "Event", "__version__"}
"""Public names that are neither classes nor functions. The reference describes them in its text."""
FETCHED = re.compile(r"""<(?:script|img|iframe|link)\b[^>]*?\b(?:src|href)=["']?((?:https?:)?//[^"'\s>]+)""")


def documented() -> set[str]:
    """The last part of every name that the reference shows."""
    pages = (DOCS / "reference").glob("*.md")
    return {path.rpartition(".")[2] for text in pages for path in REFERENCE.findall(text.read_text("utf-8"))}


def test_the_reference_has_every_public_name() -> None:
    assert set(ms.__all__) - UNIONS <= documented()


def test_the_reference_lists_every_public_name() -> None:
    index = (DOCS / "reference" / "index.md").read_text("utf-8")
    eight = {
        "Start",
        "TextDelta",
        "ThinkingDelta",
        "ToolCallStart",
        "ToolCallDelta",
        "ToolCallDone",
        "Done",
        "ErrorEvent",
    }
    missing = [name for name in ms.__all__ if f"`{name}`" not in index and name not in eight | {"__version__"}]
    assert not missing


@pytest.mark.parametrize("dialect", REASONS)
def test_a_dialects_tables_are_what_it_does(dialect: str) -> None:
    text = page(dialect).read_text("utf-8")
    assert text == written(text, dialect), "run: python -m tests.docs.dialect_pages"


@pytest.mark.timeout(360)
def test_it_builds_without_broken_links_and_fetches_nothing(tmp_path: Path) -> None:
    for needed in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(needed, reason="the dependency group `docs` is not installed")
    site = tmp_path / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)], cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    fetched = {f"{path.name}: {url}" for path in pages for url in FETCHED.findall(path.read_text("utf-8"))}
    assert not fetched
    assert (site / "search" / "search_index.js").is_file(), "the search of pages that are opened as files"
    options = (site / "reference" / "engine.html").read_text("utf-8")
    missing = [name for name in EngineOptions.__annotations__ if f'EngineOptions--{name}"' not in options]
    assert not missing, "each option has an anchor"
