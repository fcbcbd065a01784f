"""Write `docs/dialects.md` from the behaviour of the dialects: `python -m tests.conformance.features`.

The program encodes requests, decodes answers, and compares the official libraries' types with our tables. Only the text
between the tables is written by hand. `--check` writes nothing and fails if the file is not current.

The tables have few or short columns, so that they fit a phone. The pages in docs/dialects/ have the details.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import manystream as ms
from manystream.providers.catalog.profiles import DEFAULT_PROFILES, PROFILES
from manystream.providers.catalog.registry import DIALECTS

from .exchange import PROVIDERS
from .feature_requests import CONTENT_ROWS, LEFT_OUT, OPTION_ROWS, RequestRow, cell, encoded_members
from .official import Wire, wires
from .phenomena import PHENOMENA

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "dialects.md"
EXAMPLE = ROOT / "docs" / "examples" / "own_server.py"

TITLES: dict[str, str] = {
    "openai-chat": "OpenAI Chat", "openai-responses": "OpenAI Responses", "anthropic": "Anthropic", "gemini": "Gemini",
    "gemini-interactions": "Gemini Interactions",
}  # fmt: skip

LEVEL_MODELS: tuple[tuple[str, str], ...] = (
    ("openai-responses", "o3"), ("openai-responses", "gpt-5"), ("openai-responses", "gpt-5.2"),
    ("anthropic", "claude-haiku-4-5"), ("anthropic", "claude-sonnet-4-5"), ("anthropic", "claude-opus-4-6"),
    ("gemini", "gemini-2.5-pro"), ("gemini", "gemini-2.5-flash"), ("gemini", "gemini-3-pro-preview"),
    ("gemini-interactions", "gemini-2.5-flash"), ("gemini-interactions", "gemini-3.5-flash"),
)  # fmt: skip
"""Example models. The tables in each dialect's `thinking.py` contain all models."""

HEAD = """\
<!-- Written by `python -m tests.conformance.features`; a test fails where it is not current. -->

# What each dialect sends, reads, keeps raw, and refuses

This page is for people who need to know what a provider is sent, and what an answer holds. It compares the five
dialects for conversations. Three more are for prompts and token ids: [tokens](guide/tokens.md#servers). The page of
each dialect has the details: [OpenAI Chat](dialects/openai-chat.md), [OpenAI Responses](dialects/openai-responses.md),
[Anthropic](dialects/anthropic.md), [Gemini](dialects/gemini.md) and
[Gemini Interactions](dialects/gemini-interactions.md).

The library never drops anything silently. If a dialect has no form for a part of a request, the library refuses the
request before it sends anything (`InvalidRequestError` with the field), or omits the part and adds a line to
`response.warnings`.
"""

REQUESTS_HEAD = """
## Requests

| Word | Meaning |
| --- | --- |
| yes | the dialect sends it |
| warns | the dialect sends a part of it, or another form of it, with a warning |
| omits | the dialect does not send it; there is a warning where the answer may differ |
| refuses | `InvalidRequestError` before anything is sent |

The words are for the first-party servers. [The rows](#compatible-servers) of compatible servers may differ. Options
without a name here go through `extra_body`, which is merged into the body last, and `extra_headers`.
"""

CONTENT_HEAD = """
## Content blocks in requests

Reasoning, signatures and a provider's own blocks go back to the provider that made them. The library sends them to no
other provider.
"""

LEVELS_HEAD = """
## Thinking levels

What the request of a model has for each level. `ThinkingConfig(budget_tokens=…)` and `ThinkingConfig(effort=…)` use the
provider's own terms.
"""

ANSWERS_HEAD = """
## Answers: what has no event of its own

The eight events carry text, thinking and the caller's tool calls. The response has everything else, streamed or not.
The page of each dialect has the expression for each entry. A test evaluates it on a streamed and an unstreamed answer.
Calls that the server runs itself are `ProviderBlock`s, and never in `response.tool_calls`.

| For every dialect | Where |
| --- | --- |
| warnings about the request | `response.warnings` |
| the provider's own usage report | `response.usage.raw` |
| the provider's own finish reason | `response.raw_finish_reason` |
| headers, such as rate limits | `completion.headers` |
| the provider's id of the request | `completion.request_id` |

The text of a block is the sum of its deltas, with one exception. If a Responses server ends an item with a different
text, the response has the final text, and `response.warnings` has a line.
"""

PROFILES_HEAD = f"""
## Compatible servers

A server that speaks one of the dialects is a row of data (`ms.Profile`). The engine selects a built-in row by `name=`,
by `profile=`, or by the host of `base_url`. For any other server it uses the generic row of the dialect. A row of your
own needs no code:

```python
{EXAMPLE.read_text("utf-8").strip()}
```
"""

OFFICIAL_HEAD = """
## Beside the official libraries' types

Every name that the pinned official libraries have a type for, and what this library does with it:

| Word | Meaning |
| --- | --- |
| read | the library has a value for it |
| kept raw | the response has it as received |
| passed over | it reports progress that a later event has in full |
"""

SHORT_TITLES = {
    "openai-chat": "Chat", "openai-responses": "Responses", "anthropic": "Anthropic", "gemini": "Gemini",
    "gemini-interactions": "Interactions",
}  # fmt: skip


def document() -> str:
    """Return the text of the page."""
    lines = [HEAD, "## Dialects\n", *_dialects(), REQUESTS_HEAD, *_requests("Option", OPTION_ROWS), CONTENT_HEAD]
    lines += [*_requests("Content", CONTENT_ROWS), LEVELS_HEAD, *_levels(), ANSWERS_HEAD, *_answers()]
    lines += [PROFILES_HEAD.rstrip(), *_profiles(), OFFICIAL_HEAD]
    for wire in wires():
        lines += ["", f"### {wire.title}", "", *_official(wire)]
    return "\n".join(lines) + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def _dialects() -> list[str]:
    rows: list[list[str]] = []
    for name, dialect in DIALECTS.items():
        provider = PROVIDERS[name]("key")
        request = ms.Request("m", [ms.Message.user("Hello")])
        wire = dialect.encode(request, "m", provider, stream=True)
        ((header, _),) = dialect.auth_headers(provider, "key")
        first, generic = DEFAULT_PROFILES[name]
        strict = "an error" if first.quirks.strict_end else "complete after a finish reason"
        other = (
            ""
            if generic.quirks.strict_end == first.quirks.strict_end
            else "; at another server: complete after a finish reason"
        )
        rows += [
            [f"**{TITLES[name]}**", f"`ms.{PROVIDERS[name].__name__}`"], ["path", f"`{wire.path}`"],
            ["header with the key", f"`{header}`"], ["a stream without its terminal marker", strict + other],
        ]  # fmt: skip
    return _table(["Dialect", ""], rows)


def _requests(head: str, rows: Sequence[RequestRow]) -> list[str]:
    return _table(
        [head, *(SHORT_TITLES[name] for name in DIALECTS)],
        ([row.what, *(_support(cell(row, name)) for name in DIALECTS)] for row in rows),
    )


def _support(found: str) -> str:
    """Return the word of a table's cell: how a dialect supports a part of a request."""
    if found.startswith("refused:"):
        return "refuses"
    if found == LEFT_OUT or found.startswith("warns:"):
        return "omits"
    return "warns" if "; warns:" in found else "yes"


def _levels() -> list[str]:
    return _table(
        ["Model", "Level", "Members of the body"],
        ([f"`{model}`" if level is ms.ThinkingLevel.NONE else "", f"`{level.name}`", _level(dialect, model, level)]
        for dialect, model in LEVEL_MODELS for level in ms.ThinkingLevel),
    )  # fmt: skip


def _level(dialect: str, model: str, level: ms.ThinkingLevel) -> str:
    return encoded_members(dialect, model, {"thinking": level})


def _answers() -> list[str]:
    names = dict.fromkeys(row.what for row in PHENOMENA)
    rows = {(row.what, row.dialect) for row in PHENOMENA}
    return _table(
        ["", *(SHORT_TITLES[name] for name in DIALECTS)],
        ([name, *("yes" if (name, dialect) in rows else "–" for dialect in DIALECTS)] for name in names),
    )


def _profiles() -> list[str]:
    lines: list[str] = []
    for dialect, title in TITLES.items():
        rows = [row for row in PROFILES if row.dialect == dialect]
        lines += ["", f"### {title}: rows", "", *_table(["Row", "Server, key, deviations"], map(_profile, rows))]
    return lines


def _profile(row: ms.Profile) -> list[str]:
    plain = ms.Quirks()
    quirks = [
        f"`{name}={value!r}`".replace("|", "/")
        for name in ms.Quirks.__dataclass_fields__
        if (value := getattr(row.quirks, name)) != getattr(plain, name)
    ]
    keys = ", ".join(f"`{name}`" for name in (*row.key_variables, *row.token_variables))
    where = [f"`{row.base_url}`" if row.base_url else "your address", *map(_address, row.url_variables)]
    parts = [", or ".join(where), keys, ", ".join(quirks)]
    return [f"`{row.name}`", "<br>".join(part for part in parts if part)]


def _address(place: str) -> str:
    """An environment variable with an address, and the path behind it."""
    variable, slash, path = place.partition("/")
    return f"`{variable}`" + (f" with `{slash}{path}`" if path else "")


def _official(wire: Wire) -> list[str]:
    groups: dict[str, list[str]] = {}
    for name in wire.names:
        groups.setdefault(wire.what(name), []).append(f"`{name}`")
    return _table(["What happens", "Names"], ([what, ", ".join(names)] for what, names in groups.items()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or compare it with the file. Return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.features", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the file is not current")
    page = document()
    if parser.parse_args(arguments).check:
        return 0 if DOCUMENT.exists() and DOCUMENT.read_text("utf-8") == page else 1
    DOCUMENT.parent.mkdir(exist_ok=True)
    DOCUMENT.write_text(page, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
