"""Find how each dialect encodes each part of a request, by encoding minimal requests.

A row is an option or a kind of content. A cell has the members of the body and the warnings, or the refusal. Only the
rows' requests are written by hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import manystream as ms
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.json.json_values import loads_object

from .exchange import PROVIDERS

MODELS: dict[str, str] = {
    "openai-chat": "gpt-4.1", "openai-responses": "gpt-4.1", "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-2.5-flash", "gemini-interactions": "gemini-2.5-flash",
}  # fmt: skip
THINKING_MODELS: dict[str, str] = {**MODELS, "openai-chat": "gpt-5.2", "openai-responses": "gpt-5.2"}

PATHS_SHOWN = 4
LEFT_OUT = "left out"
MEMBERS_NAMED = 3
"""The maximum size of an object that is shown in full."""

WEATHER = ms.Tool("weather", "The weather in a city.", {"type": "object", "properties": {"city": {"type": "string"}}})
SCHEMA: dict[str, ms.JSON] = {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False,
}  # fmt: skip
PNG = b"\x89PNG\r\n\x1a\n"
ASK = ms.Message.user("Hello")
MARK = ms.CacheControl()


@dataclass(slots=True, frozen=True)
class RequestRow:
    """One row: its title in the table, and the `Request` members that are added to a minimal request."""

    what: str
    options: dict[str, Any]
    base: dict[str, Any] = field(default_factory=dict[str, Any])
    thinking: bool = False


def _said(*blocks: ms.Block) -> dict[str, Any]:
    return {"messages": [ms.Message.user(list(blocks))]}


def _history(*blocks: ms.Block) -> dict[str, Any]:
    call = ms.ToolCall("call_1", "weather", "{}")
    answer = ms.Message.assistant([*blocks, call])
    return {"messages": [ASK, answer, ms.Message.tool_result("call_1", "warm")], "tools": [WEATHER]}


def _result(content: str | list[ms.Text | ms.Image | ms.File], *, is_error: bool = False) -> dict[str, Any]:
    call = ms.Message.tool_call("call_1", "weather", "{}")
    return {"messages": [ASK, call, ms.Message.tool_result("call_1", content, is_error)], "tools": [WEATHER]}


_TOOLS = {"tools": [WEATHER]}

OPTION_ROWS: tuple[RequestRow, ...] = (
    RequestRow("`system`", {"system": "Be brief."}),
    RequestRow("`tools`", _TOOLS),
    RequestRow("`Tool.strict`", {"tools": [replace(WEATHER, strict=True)]}, _TOOLS),
    RequestRow("`tool_choice`: `none`", {**_TOOLS, "tool_choice": "none"}, _TOOLS),
    RequestRow("`tool_choice`: `required`", {**_TOOLS, "tool_choice": "required"}, _TOOLS),
    RequestRow("`tool_choice`: a tool's name", {**_TOOLS, "tool_choice": "weather"}, _TOOLS),
    RequestRow("`parallel_tool_calls=False`", {**_TOOLS, "parallel_tool_calls": False}, _TOOLS),
    RequestRow("`max_output_tokens`", {"max_output_tokens": 99}),
    RequestRow("`temperature`", {"temperature": 0.5}),
    RequestRow("`temperature` with a thinking model", {"temperature": 0.5}, thinking=True),
    RequestRow("`top_p`", {"top_p": 0.5}),
    RequestRow("`stop`", {"stop": ["END"]}),
    RequestRow("`seed`", {"seed": 7}),
    RequestRow("`response_schema`", {"response_schema": SCHEMA}),
    RequestRow("`metadata`", {"metadata": {"user_id": "u1"}}),
    RequestRow("`thinking`: a level", {"thinking": ms.ThinkingLevel.HIGH}, thinking=True),
    RequestRow("`thinking`: `NONE`", {"thinking": ms.ThinkingLevel.NONE}, thinking=True),
    RequestRow("`thinking`: `budget_tokens`", {"thinking": ms.ThinkingConfig(budget_tokens=2048)}, thinking=True),
    RequestRow("`thinking`: `effort`", {"thinking": ms.ThinkingConfig(effort="low")}, thinking=True),
    RequestRow("`thinking`: `include_summary=False`",
        {"thinking": ms.ThinkingConfig(level=ms.ThinkingLevel.HIGH, include_summary=False)}, thinking=True),
    RequestRow("`extra_body`", {"extra_body": {"anything": 1}}),
)  # fmt: skip

FOREIGN_THINKING = ms.Thinking("Hm.", "sig", ms.ProviderState("other", {}))

CONTENT_ROWS: tuple[RequestRow, ...] = (
    RequestRow(
        "`SYSTEM` message after the first turn",
        {"messages": [ASK, ms.Message.assistant("Yes?"), ASK, ms.Message.system("Be brief.")]},
        {"messages": [ASK, ms.Message.assistant("Yes?"), ASK]},
    ),
    RequestRow("`Image`: bytes", _said(ms.Text("Hello"), ms.Image(data=PNG, media_type="image/png"))),
    RequestRow("`Image`: URL", _said(ms.Text("Hello"), ms.Image(url="https://example.com/a.png"))),
    RequestRow("`Image`: uploaded file", _said(ms.Text("Hello"), ms.Image(file_id="file-1"))),
    RequestRow("`Image.detail`", _said(ms.Text("Hello"), ms.Image(url="https://example.com/a.png", detail="low"))),
    RequestRow("`File`: PDF", _said(ms.Text("Hello"), ms.File(data=b"%PDF-1.7", media_type="application/pdf"))),
    RequestRow("`File`: text", _said(ms.Text("Hello"), ms.File(data=b"a", media_type="text/plain", name="a.txt"))),
    RequestRow("`File`: URL", _said(ms.Text("Hello"), ms.File(url="https://example.com/a.pdf"))),
    RequestRow("`File`: uploaded file", _said(ms.Text("Hello"), ms.File(file_id="file-1"))),
    RequestRow("`File`: sound", _said(ms.Text("Hello"), ms.File(data=b"RIFF", media_type="audio/wav"))),
    RequestRow("`File`: film", _said(ms.Text("Hello"), ms.File(data=b"x", media_type="video/mp4"))),
    RequestRow("`ToolResult`: text", _result("warm"), _said(ms.Text("Hello"))),
    RequestRow("`ToolResult.is_error`", _result("no", is_error=True), _result("no")),
    RequestRow("`ToolResult`: an image", _result([ms.Image(data=PNG, media_type="image/png")]), _result([])),
    RequestRow("`Thinking` of its own", {}),  # filled in per dialect: see `cell`
    RequestRow("`Thinking` of another provider", _history(FOREIGN_THINKING), _history()),
    RequestRow("`RedactedThinking`", _history(ms.RedactedThinking("opaque")), _history()),
    RequestRow("`ProviderBlock` of its own", {}),
    RequestRow("`ProviderBlock` of another provider", _history(ms.ProviderBlock("other", {"type": "x"})), _history()),
    RequestRow("`cache_control` on text", _said(ms.Text("Hello", cache_control=MARK))),
    RequestRow("`cache_control` on a tool", {"tools": [replace(WEATHER, cache_control=MARK)]}, _TOOLS),
)  # fmt: skip

OWN_THINKING: dict[str, ms.Thinking] = {
    "openai-chat": ms.Thinking("Hm.", state=ms.ProviderState("openai-chat", {"reasoning_member": "reasoning"})),
    "openai-responses": ms.Thinking(
        "Hm.", state=ms.ProviderState("openai-responses", {"id": "rs_1", "summary": [], "encrypted_content": "opaque"})
    ),
    "anthropic": ms.Thinking("Hm.", "sig"),
    "gemini": ms.Thinking("Hm.", "sig", ms.ProviderState("google", {"thought": True, "thoughtSignature": "sig"})),
    "gemini-interactions": ms.Thinking("Hm.", "sig", ms.ProviderState("google-interactions", {})),
}
OWN_BLOCK: dict[str, ms.ProviderBlock] = {
    "openai-chat": ms.ProviderBlock("openai-chat", {"type": "x"}),
    "openai-responses": ms.ProviderBlock("openai-responses", {"type": "web_search_call", "id": "ws_1"}),
    "anthropic": ms.ProviderBlock("anthropic", {"type": "compaction", "content": "So far."}),
    "gemini": ms.ProviderBlock("google", {"executableCode": {"language": "PYTHON", "code": "1"}}),
    "gemini-interactions": ms.ProviderBlock("google-interactions", {"type": "google_search_call", "id": "g"}),
}


def cell(row: RequestRow, dialect: str) -> str:
    """Return the cell of a row for one dialect."""
    if not row.options:
        own: ms.Block = OWN_THINKING[dialect] if "Thinking" in row.what else OWN_BLOCK[dialect]
        row = replace(row, options=_history(own), base=_history())
    base, _ = _encoded(row.base, dialect, thinking=row.thinking)
    try:
        body, warnings = _encoded(row.options, dialect, thinking=row.thinking)
    except ms.InvalidRequestError as error:
        return f"refused: {_plain(str(error))}"
    added = list(dict.fromkeys(_differences(base, body, "")))
    shown = ", ".join(f"`{path}`" for path in added[:PATHS_SHOWN]) + (", …" if len(added) > PATHS_SHOWN else "")
    said = "; ".join(_plain(warning) for warning in warnings)
    return "; ".join(part for part in (shown or ("" if said else LEFT_OUT), said and f"warns: {said}") if part)


def _encoded(options: dict[str, Any], dialect: str, *, thinking: bool) -> tuple[ms.JSON, list[str]]:
    return _wire(options, dialect, (THINKING_MODELS if thinking else MODELS)[dialect])


def _wire(options: dict[str, Any], dialect: str, model: str) -> tuple[ms.JSON, list[str]]:
    provider = PROVIDERS[dialect]("key")
    request = replace(ms.Request(model, [ASK]), **options)
    wire = DIALECTS[dialect].encode(request, model, provider, stream=False)
    return loads_object(wire.body), wire.warnings


def encoded_members(dialect: str, model: str, options: dict[str, Any]) -> str:
    """Return the members of the body that the options become with one model, as text."""
    try:
        base, _ = _wire({}, dialect, model)
        body, warnings = _wire(options, dialect, model)
    except ms.InvalidRequestError as error:
        return f"refused: {_plain(str(error))}"
    added = [f"`{path}`" for path in dict.fromkeys(_differences(base, body, ""))]
    return ", ".join([*added, *map(_plain, warnings)]) or LEFT_OUT


def top_level_members(dialect: str) -> set[str]:
    """Return the members that any option adds to the body (for Gemini also those one level down)."""
    members: set[str] = set()
    for row in (*OPTION_ROWS, *CONTENT_ROWS):
        for options in (row.base, row.options):
            try:
                body, _ = _encoded({**options, "extra_body": None}, dialect, thinking=row.thinking)
            except ms.InvalidRequestError:
                continue
            assert isinstance(body, dict)
            below = [member for member in body.values() if dialect.startswith("gemini") and isinstance(member, dict)]
            members.update(body, *below)
    return members


def _plain(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")


def _differences(base: ms.JSON, body: ms.JSON, path: str) -> Iterator[str]:
    """Yield the members that the body has in addition, or with another value."""
    if isinstance(base, dict) and isinstance(body, dict):
        for name, value in body.items():
            below = f"{path}.{name}" if path else name
            if name not in base:
                yield from _named(value, below)
            else:
                yield from _differences(base[name], value, below)
        for name in base:
            if name not in body:
                yield f"{path}.{name} left out" if path else f"{name} left out"
    elif isinstance(body, list):
        yield from _list_differences(base if isinstance(base, list) else [], body, path)
    elif base != body:
        yield path if isinstance(body, dict) else f"{path}: {_short(body)}"


def _list_differences(base: Sequence[ms.JSON], body: Sequence[ms.JSON], path: str) -> Iterator[str]:
    # Find inserted items at any position: skip an item that the other list contains, too.
    added = [item for item in body if item not in base]
    removed = [item for item in base if item not in body]
    for place, item in enumerate(added):
        if place < len(removed) and _same_kind(item, removed[place]):
            yield from _differences(removed[place], item, f"{path}[]")
        elif len(added) > 1 and isinstance(item, dict) and item.get("text") == "Hello":
            continue  # the question itself, as a part now
        else:
            yield from _named(item, f"{path}[]")


def _same_kind(one: ms.JSON, other: ms.JSON) -> bool:
    return isinstance(one, dict) and isinstance(other, dict) and one.get("type") == other.get("type")


def _named(value: ms.JSON, path: str) -> Iterator[str]:
    """Yield a new member, down to the first level with a meaningful value."""
    if isinstance(value, dict) and isinstance(value.get("type"), str):
        yield f"{path}: {value['type']}"
    elif isinstance(value, dict) and 0 < len(value) <= MEMBERS_NAMED and "role" not in value:
        for name, inner in value.items():
            yield from _named(inner, f"{path}.{name}")
    elif isinstance(value, str | int | float | bool):
        yield f"{path}: {_short(value)}"
    else:
        yield path


def _short(value: ms.JSON) -> str:
    text = str(value) if not isinstance(value, bool) else str(value).lower()
    return text if len(text) <= 24 else text[:24] + "…"
