"""`python -m tests.docs.dialect_pages`: writes the tables of docs/dialects/*.md from what each dialect does.

The text outside the two marks is written by hand. The tables between them come from encoding requests and decoding
answers, as in docs/dialects.md, here for one dialect with all details. A table has at most three columns, so that it
fits a phone.
"""

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import manystream as ms
from manystream.providers.anthropic.response import FINISH_REASONS as ANTHROPIC_REASONS
from manystream.providers.catalog.profiles import DEFAULT_PROFILES, PROFILES
from manystream.providers.gemini.finish import FINISH_REASONS as GEMINI_REASONS
from manystream.providers.gemini_interactions.stream import FINISH_REASONS as INTERACTIONS_REASONS
from manystream.providers.openai.responses.response import INCOMPLETE_REASON, STATUS_REASON
from manystream.providers.wire.finish_words import FINISH_REASONS as CHAT_REASONS
from tests.conformance.feature_requests import CONTENT_ROWS, OPTION_ROWS, RequestRow, cell, encoded_members
from tests.conformance.features import LEVEL_MODELS
from tests.conformance.phenomena import PHENOMENA, Phenomenon, unstreamed
from tests.support.blocks import DOCS

BEGIN = "<!-- Written by `python -m tests.docs.dialect_pages`; a test fails where it is not current. -->"
END = "<!-- The end of the generated tables. -->"

REASONS: dict[str, Mapping[str, ms.FinishReason]] = {
    "openai-chat": CHAT_REASONS, "openai-responses": STATUS_REASON | INCOMPLETE_REASON, "anthropic": ANTHROPIC_REASONS,
    "gemini": GEMINI_REASONS, "gemini-interactions": INTERACTIONS_REASONS,
}  # fmt: skip
LEVELS_LIKE = {"openai-chat": "openai-responses"}
"""Dialect → the dialect whose example models it uses."""


def page(dialect: str) -> Path:
    """The path of a dialect's page."""
    return DOCS / "dialects" / f"{dialect}.md"


def tables(dialect: str) -> str:
    """The text between the marks."""
    return "\n".join(
        [BEGIN, "", "## Rows of data", "", *_rows(dialect), "", "## Options", "",
        *_requests("Option", OPTION_ROWS, dialect), "", "## Content blocks", "",
        *_requests("Block", CONTENT_ROWS, dialect), "", "## Thinking levels", "", *_levels(dialect), "",
        "## Other parts of an answer", "", *_answers(dialect), "", "## Finish reasons", "", *_reasons(dialect), "",
        END]
    )  # fmt: skip


def written(text: str, dialect: str) -> str:
    """The text of a page with current tables."""
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
    if generic.name == first.name:
        return [f"There is one row, `{first.name}`. For a compatible server, give its `base_url`."]
    return [f"{names}.", "", f"`{generic.name}` is for a server without a row."]


def _requests(head: str, rows: Sequence[RequestRow], dialect: str) -> list[str]:
    return table([head, "On the wire"], ([row.what, cell(row, dialect)] for row in rows))


def _levels(dialect: str) -> list[str]:
    models = [model for name, model in LEVEL_MODELS if name == LEVELS_LIKE.get(dialect, dialect)]
    return table(
        ["Model", "Level", "On the wire"], ([f"`{model}`", f"`{level.name}`",
        encoded_members(dialect, model, {"thinking": level})] for model in models for level in ms.ThinkingLevel),
    )  # fmt: skip


def _answers(dialect: str) -> list[str]:
    return table(["Part", "Where"], ([row.what, _where(row)] for row in PHENOMENA if row.dialect == dialect))


def _where(row: Phenomenon) -> str:
    """The expression; for a part of a content block, the class of the block as well."""
    shown = f"`{row.where}`"
    block = re.search(r"response\.content\[(\d+|:2)\]", row.where)
    if block is None:
        return shown
    content = unstreamed(row).content
    return f"{shown}, in `{type(content[0 if block[1] == ':2' else int(block[1])]).__name__}`"


def _reasons(dialect: str) -> list[str]:
    words: dict[ms.FinishReason, list[str]] = {}
    for word, reason in REASONS[dialect].items():
        words.setdefault(reason, []).append(f"`{word}`")
    rows = ([f"`{reason.name}`", ", ".join(found)] for reason, found in words.items())
    return table(["`FinishReason`", "On the wire"], rows)


def main() -> int:
    """Write all pages."""
    for dialect in REASONS:
        path = page(dialect)
        path.write_text(written(path.read_text("utf-8"), dialect), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
