"""`python -m tests.conformance.features`: writes `docs/dialects.md` from what the dialects do.

Requests are encoded, answers are decoded, and the official libraries' types are laid beside our tables; the text
between the tables is all that is written by hand. `--check` writes nothing and fails where the file is not current.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import manystream as ms
from manystream.providers.profile import Quirks
from manystream.providers.profiles import DEFAULT_PROFILES, PROFILES
from manystream.providers.registry import DIALECTS
from manystream.providers.request import ThinkingLevel

from .exchange import PROVIDERS
from .feature_requests import CONTENT_ROWS, OPTION_ROWS, RequestRow, cell, encoded_members
from .official import Wire, wires
from .phenomena import PHENOMENA, Phenomenon, unstreamed

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "dialects.md"
EXAMPLE = ROOT / "docs" / "examples" / "own_server.py"

TITLES: dict[str, str] = {
    "openai-chat": "OpenAI Chat",
    "openai-responses": "OpenAI Responses",
    "anthropic": "Anthropic",
    "gemini": "Gemini",
}

LEVEL_MODELS: tuple[tuple[str, str], ...] = (
    ("openai-responses", "o3"),
    ("openai-responses", "gpt-5"),
    ("openai-responses", "gpt-5.2"),
    ("anthropic", "claude-haiku-4-5"),
    ("anthropic", "claude-sonnet-4-5"),
    ("anthropic", "claude-opus-4-6"),
    ("gemini", "gemini-2.5-pro"),
    ("gemini", "gemini-2.5-flash"),
    ("gemini", "gemini-3-pro-preview"),
)
"""Examples: the tables in each dialect's `thinking.py` hold every model."""

HEAD = """\
<!-- Written by `python -m tests.conformance.features`; a test fails where it is not current. -->

# What each dialect sends, reads, keeps raw, and refuses

Four wire dialects, one vocabulary. This page says what becomes of each part of a request on the wire, and where each
part of an answer is found. Nothing that is asked for is dropped in silence: what a dialect cannot express is refused
before anything is sent (`InvalidRequestError`, naming the field), or left out with a line in `response.warnings`.
"""

REQUESTS_HEAD = """
## Requests

The members of the request's body that an option becomes, at the first-party servers; how compatible ones differ is a
matter of their rows (see below). Everything that has no option goes through `extra_body`, whose members are merged
into the body last, and `extra_headers`.
"""

CONTENT_HEAD = """
## Content blocks in requests

Reasoning, signatures and a provider's own blocks go back only to the provider that made them; any other never sees
them.
"""

LEVELS_HEAD = """
## Thinking levels

What a level becomes, by model. `ThinkingConfig(budget_tokens=…)` and `ThinkingConfig(effort=…)` say it in the
provider's own terms.
"""

ANSWERS_HEAD = """
## Answers: what has no event of its own

The eight events tell text, thinking and the caller's tool calls. Whatever else an answer carries is on the response,
the same whether it was streamed or not. Each expression is evaluated by a test, on a streamed and on an unstreamed
answer. Calls that the server runs itself are kept as `ProviderBlock`s and are never in `response.tool_calls`.

For every dialect alike: the request's warnings are in `response.warnings`, the provider's own usage report in
`response.usage.raw`, its own word for the end in `response.raw_finish_reason`, the response's headers (rate limits
among them) in `completion.headers`, and the provider's id for the request in `completion.request_id`.

The joined deltas of a block are its text in the response, with one exception: where a Responses server ends an item
with another text than its deltas had, the final text is in the response, and a line in `response.warnings` says so.
"""

PROFILES_HEAD = f"""
## Compatible servers

A server that speaks one of the dialects is a row of data (`ms.Profile`). These are built in, chosen by `name=`, by
`profile=`, or by the host of `base_url`. One that is not among them works through the dialect's generic row, and a
row of your own needs no code:

```python
{EXAMPLE.read_text("utf-8").strip()}
```
"""

OFFICIAL_HEAD = """
## Beside the official libraries' types

Every name that the pinned official libraries have a type for, and what becomes of it here. *Read*: it has a value of
its own. *Kept raw*: on the response, as received. *Passed over*: progress that a later event tells whole.
"""


def document() -> str:
    """The whole page."""
    lines = [HEAD, "## Dialects\n", *_dialects(), REQUESTS_HEAD, *_requests("Option", OPTION_ROWS), CONTENT_HEAD]
    lines += [*_requests("Content", CONTENT_ROWS), LEVELS_HEAD, *_levels(), ANSWERS_HEAD, *_answers()]
    lines += [PROFILES_HEAD, *_profiles(), OFFICIAL_HEAD]
    for wire in wires():
        lines += ["", f"### {wire.title}", "", *_official(wire)]
    return "\n".join(lines) + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def _dialects() -> list[str]:
    rows: list[list[str]] = [["Class"], ["Path"], ["Key in"], ["Without its terminal marker a stream is"]]
    for name, dialect in DIALECTS.items():
        provider = PROVIDERS[name]("key")
        request = ms.Request("m", [ms.Message.user("Hello")])
        wire = dialect.encode(request, "m", provider, stream=True)
        ((header, _),) = dialect.auth_headers(provider, "key")
        first, generic = DEFAULT_PROFILES[name]
        strict = "an error" if first.quirks.strict_end else "whole, if a finish reason came"
        other = (
            ""
            if generic.quirks.strict_end == first.quirks.strict_end
            else "; with another server: whole, if a finish reason came"
        )
        for row, value in zip(
            rows, (f"`ms.{PROVIDERS[name].__name__}`", f"`{wire.path}`", f"`{header}`", strict + other), strict=True
        ):
            row.append(value)
    return _table(["", *(TITLES[name] for name in DIALECTS)], rows)


def _requests(head: str, rows: Sequence[RequestRow]) -> list[str]:
    return _table(
        [head, *(TITLES[name] for name in DIALECTS)],
        ([row.what, *(cell(row, name) for name in DIALECTS)] for row in rows),
    )


def _levels() -> list[str]:
    return _table(
        ["Model", *(f"`{level.name}`" for level in ThinkingLevel)],
        (
            [f"`{model}`", *(_level(dialect, model, level) for level in ThinkingLevel)]
            for dialect, model in LEVEL_MODELS
        ),
    )


def _level(dialect: str, model: str, level: ThinkingLevel) -> str:
    return encoded_members(dialect, model, {"thinking": level})


def _answers() -> list[str]:
    names = dict.fromkeys(row.what for row in PHENOMENA)
    rows = {(row.what, row.dialect): row for row in PHENOMENA}
    return _table(
        ["`response.` …", *(TITLES[name] for name in DIALECTS)],
        ([name, *(_where(rows.get((name, dialect))) for dialect in DIALECTS)] for name in names),
    )


def _where(row: Phenomenon | None) -> str:
    """The expression, and for what is in a block the block's class."""
    if row is None:
        return "–"
    shown = f"`{row.where.removeprefix('response.')}`"
    block = re.search(r"response\.content\[(\d+|:2)\]", row.where)
    if block is None:
        return shown
    content = unstreamed(row).content
    return f"{shown}, {type(content[0 if block[1] == ':2' else int(block[1])]).__name__}"


def _profiles() -> list[str]:
    plain = Quirks()
    rows: list[list[str]] = []
    for row in PROFILES:
        quirks = [
            f"{name}={value!r}".replace("|", "/")
            for name in Quirks.__dataclass_fields__
            if (value := getattr(row.quirks, name)) != getattr(plain, name)
        ]
        keys = ", ".join(f"`{name}`" for name in row.key_variables)
        shown = ", ".join(f"`{quirk}`" for quirk in quirks)
        rows.append(
            [f"`{row.name}`", TITLES[row.dialect], f"`{row.base_url}`" if row.base_url else "yours", keys, shown]
        )
    return _table(["Row", "Dialect", "Base URL", "Key", "Departs from its dialect in"], rows)


def _official(wire: Wire) -> list[str]:
    groups: dict[str, list[str]] = {}
    for name in wire.names:
        groups.setdefault(wire.what(name), []).append(f"`{name}`")
    return _table(["What becomes of it", "Names"], ([what, ", ".join(names)] for what, names in groups.items()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or compare it. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.features", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where the file is not current")
    page = document()
    if parser.parse_args(arguments).check:
        return 0 if DOCUMENT.exists() and DOCUMENT.read_text("utf-8") == page else 1
    DOCUMENT.parent.mkdir(exist_ok=True)
    DOCUMENT.write_text(page, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
