"""`python -m tests.docs.dialect_pages`: writes the tables of docs/dialects/*.md from what each dialect does.

A page is written by hand but for what stands between the two marks; that is found by encoding requests and decoding
answers, as in docs/dialects.md, here for one dialect in full.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import manystream as ms
from manystream.providers.anthropic.response import FINISH_REASONS as ANTHROPIC_REASONS
from manystream.providers.gemini.finish import FINISH_REASONS as GEMINI_REASONS
from manystream.providers.openai.chat.usage import FINISH_REASONS as CHAT_REASONS
from manystream.providers.openai.responses.response import INCOMPLETE_REASON, STATUS_REASON
from manystream.providers.profiles import DEFAULT_PROFILES, PROFILES
from tests.conformance.feature_requests import CONTENT_ROWS, OPTION_ROWS, RequestRow, cell, encoded_members
from tests.conformance.features import LEVEL_MODELS
from tests.conformance.phenomena import PHENOMENA

from .blocks import DOCS

BEGIN = "<!-- Written by `python -m tests.docs.dialect_pages`; a test fails where it is not current. -->"
END = "<!-- The end of what is written so. -->"

REASONS: dict[str, Mapping[str, ms.FinishReason]] = {
    "openai-chat": CHAT_REASONS,
    "openai-responses": STATUS_REASON | INCOMPLETE_REASON,
    "anthropic": ANTHROPIC_REASONS,
    "gemini": GEMINI_REASONS,
}
LEVELS_LIKE = {"openai-chat": "openai-responses"}
"""Dialect → the one whose example models stand for it, too."""


def page(dialect: str) -> Path:
    """A dialect's page."""
    return DOCS / "dialects" / f"{dialect}.md"


def tables(dialect: str) -> str:
    """What stands between the marks."""
    return "\n".join(
        [
            BEGIN,
            "",
            "## Where it is spoken",
            "",
            *_rows(dialect),
            "",
            "## What an option becomes",
            "",
            *_requests("Option", OPTION_ROWS, dialect),
            "",
            "## What a block becomes",
            "",
            *_requests("Block", CONTENT_ROWS, dialect),
            "",
            "## What a thinking level becomes",
            "",
            *_levels(dialect),
            "",
            "## Where the rest of an answer is",
            "",
            *_answers(dialect),
            "",
            "## Why it ended",
            "",
            *_reasons(dialect),
            "",
            END,
        ]
    )


def written(text: str, dialect: str) -> str:
    """A page with its tables current."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + tables(dialect) + (after or "\n")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def _rows(dialect: str) -> list[str]:
    found = [row for row in PROFILES if row.dialect_name == dialect]
    names = ", ".join(f"`{row.name}`" for row in found)
    first, generic = DEFAULT_PROFILES[dialect]
    if generic is first:
        return [f"One row of data, `{first.name}`, for compatible servers, too: give it their `base_url`."]
    return [f"Rows of data: {names}. `{generic.name}` is for a server without a row."]


def _requests(head: str, rows: Sequence[RequestRow], dialect: str) -> list[str]:
    return table([head, "On the wire"], ([row.what, cell(row, dialect)] for row in rows))


def _levels(dialect: str) -> list[str]:
    models = [model for name, model in LEVEL_MODELS if name == LEVELS_LIKE.get(dialect, dialect)]
    return table(
        ["Model", *(f"`{level.name}`" for level in ms.ThinkingLevel)],
        (
            [f"`{model}`", *(encoded_members(dialect, model, {"thinking": level}) for level in ms.ThinkingLevel)]
            for model in models
        ),
    )


def _answers(dialect: str) -> list[str]:
    return table(["What", "Where"], ([row.what, f"`{row.where}`"] for row in PHENOMENA if row.dialect == dialect))


def _reasons(dialect: str) -> list[str]:
    words: dict[ms.FinishReason, list[str]] = {}
    for word, reason in REASONS[dialect].items():
        words.setdefault(reason, []).append(f"`{word}`")
    return table(["Ours", "Theirs"], ([f"`{reason.name}`", ", ".join(found)] for reason, found in words.items()))


def main() -> int:
    """Write all four pages."""
    for dialect in REASONS:
        path = page(dialect)
        path.write_text(written(path.read_text("utf-8"), dialect), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
