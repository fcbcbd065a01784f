"""Reads database rows as messages. The head of the package has the table of rows.

A row is read completely or raises an error.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from typing import TypeVar

from ...json.json_values import JSON, JSONObject, MalformedJSONError, arguments_text, exact_loads, shown
from ...model.messages import (
    IMAGE_DETAILS,
    SYSTEM,
    Block,
    CacheControl,
    File,
    Image,
    Message,
    ProviderBlock,
    ProviderState,
    RedactedThinking,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from ...rules.rules import flag, instance, items_of, optional, whole
from .row import KIND_ROLE, Row, RowError, is_readable

ROW = instance(Row)
POSITION = optional(whole(0))
STRICT = flag()

Value = TypeVar("Value")


def message_from_row(row: Row, position: int | None = None) -> Message | None:
    """Return the message of one row, or None for a row with the system prompt. Raises `RowError` naming the field and
    the row.

    position: the row's position in the conversation, for the error.
    """
    ROW.check(row, "row")
    POSITION.check(position, "position")
    reader = _Reader(row, position)
    return None if reader.is_system_prompt else _message(reader)


def messages_from_rows(rows: Iterable[Row], *, strict: bool = True) -> list[Message]:
    """Return the messages of a conversation's rows, in order. Raises `RowError` for a row that cannot be read.

    strict: raise `RowError` for a result without an earlier call of its id.
    """
    messages: list[Message] = []
    calls: set[str] = set()
    STRICT.check(strict, "strict")
    for position, row in enumerate(items_of(rows, Row, "rows")):
        reader = _Reader(row, position)
        if reader.is_system_prompt and (not messages or not row.content):
            continue
        message = _message(reader)
        for block in message.content:
            if isinstance(block, ToolCall):
                calls.add(block.id)
            elif strict and isinstance(block, ToolResult) and block.tool_call_id not in calls:
                raise reader.error("tool_call_id", f"no earlier row calls a tool as {block.tool_call_id!r}")
        if reader.data.get("continues") is True:
            # A system row may have been inserted between two rows of a message.
            last = -2 if len(messages) > 1 and messages[-1].role is SYSTEM is not message.role else -1
            if not messages or messages[last].role is not message.role:
                raise reader.error("continues", "there is no message before it that it could continue")
            messages[last].content.extend(message.content)
        else:
            messages.append(message)
    return messages


def _message(reader: _Reader) -> Message:
    kind = reader.row.kind
    read = READERS.get(kind) if isinstance(kind, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
    if read is None:
        raise reader.error("kind", f"unknown kind; known are {', '.join(READERS)}")
    blocks = [] if reader.data.get("empty") is True else read(reader)
    role = KIND_ROLE.get(kind, Role.SYSTEM)
    named = reader.optional(reader.data, "role", str)
    if named is not None:
        try:
            role = Role(named)
        except ValueError:
            raise reader.error("role", f"unknown role {named!r}") from None
    return Message(role, blocks, reader.object(reader.data, "provider_metadata"))


def _parsed(value: JSON) -> JSON:
    return exact_loads(value) if isinstance(value, str) else value


class _Reader:
    """The checked fields of one row. Every error names the row."""

    __slots__ = ("data", "position", "row")

    def __init__(self, row: Row, position: int | None) -> None:
        self.row = row
        self.position = position
        self.data: JSONObject = {}
        if row.data_json is None:
            return
        try:
            data = _parsed(row.data_json)
        except MalformedJSONError as error:
            raise self.error("data_json", str(error)) from None
        if type(data) is not dict:
            raise self.error("data_json", f"must be a JSON object, not {type(data).__name__}")
        self.data = data

    @property
    def is_system_prompt(self) -> bool:
        """Whether the row is a system prompt, and no system message in the middle of a conversation."""
        return self.row.kind == "system" and "role" not in self.data

    def error(self, field: str, message: str) -> RowError:
        """Return the error for a field of this row."""
        return RowError(field, message, self.row, self.position)

    def optional(self, data: JSONObject, name: str, kind: type[Value], field: str = "") -> Value | None:
        """Return the member if it has this type, None if it is absent. `field`: its name in errors, if it differs."""
        value = data.get(name)
        if value is None:
            return None
        if not isinstance(value, kind):
            raise self.error(field or name, f"must be {kind.__name__}, not {type(value).__name__}")
        return value

    def object(self, data: JSONObject, name: str) -> JSONObject | None:
        """Return the member if it is an object, None if it is absent. Raises `RowError` for any other value."""
        value = data.get(name)
        if value is not None and type(value) is not dict:
            raise self.error(name, f"must be an object, not {type(value).__name__}")
        return value

    def array(self, data: JSONObject, name: str) -> list[JSON] | None:
        """Return the member if it is an array, None if it is absent. Raises `RowError` for any other value."""
        value = data.get(name)
        if value is not None and type(value) is not list:
            raise self.error(name, f"must be an array, not {type(value).__name__}")
        return value

    def needed(self, data: JSONObject, names: tuple[str, ...], kind: type[Value], field: str = "") -> Value:
        """Return the first of these members that is present. Raises `RowError` if none is.

        names: the member's spellings.
        """
        for name in names:
            value = self.optional(data, name, kind, field)
            if value is not None:
                return value
        raise self.error(field or names[0], "is missing")

    def name(self, data: JSONObject, names: tuple[str, ...]) -> str:
        """Return the first of these members that is present, as `needed`. Raises `RowError` if it is empty."""
        value = self.needed(data, names, str)
        if not value:
            raise self.error(next(name for name in names if data.get(name) is not None), "must not be empty")
        return value

    def content(self) -> str:
        """Return the row's content. Raises `RowError` if it is missing or no text."""
        content: object = self.row.content
        if not isinstance(content, str):
            wrong = "is missing" if content is None else f"must be str, not {type(content).__name__}"
            raise self.error("content", wrong)
        return content

    def state(self, data: JSONObject) -> ProviderState | None:
        """Return the provider state in these members, or None."""
        state = self.object(data, "state")
        if state is None:
            return None
        inner = self.object(state, "data")
        if inner is None:
            raise self.error("state.data", "is missing")
        return ProviderState(self.needed(state, ("provider",), str, "state.provider"), inner)

    def cache_control(self, data: JSONObject) -> CacheControl | None:
        """Return the cache mark in these members, or None."""
        mark = self.object(data, "cache_control")
        if mark is None:
            return None
        ttl = mark.get("ttl")
        if ttl is None:
            return CacheControl()
        if ttl == "5m":
            return CacheControl("5m")
        if ttl == "1h":
            return CacheControl("1h")
        raise self.error("cache_control.ttl", f"must be '5m' or '1h', not {ttl!r}")


def _read_text(reader: _Reader) -> list[Block]:
    citations = reader.array(reader.data, "citations") or []
    found = [item for item in citations if type(item) is dict]
    if len(found) < len(citations):
        raise reader.error("citations", "must hold objects only")
    return [
        Text(
            reader.content(),
            citations=found,
            cache_control=reader.cache_control(reader.data),
            state=reader.state(reader.data),
        )
    ]


def _read_tool_call(reader: _Reader) -> list[Block]:
    data = reader.data
    function = reader.object(data, "function")
    if function is not None:
        data = {**function, **{name: value for name, value in data.items() if name != "function"}}
    blocks: list[Block] = []
    thinking = reader.object(data, "thinking")
    if thinking is not None:
        blocks.append(_thinking(reader, thinking, "thinking."))
    redacted = reader.object(data, "redacted_thinking")
    if redacted is not None:
        blocks.append(_redacted(reader, redacted, "redacted_thinking."))
    arguments = next((data[name] for name in ("tool_args", "arguments") if data.get(name) is not None), None)
    if type(arguments) is dict:
        arguments = arguments_text(arguments)
    if not isinstance(arguments, str):
        raise reader.error("tool_args", "is missing" if arguments is None else "must be JSON text")
    complete = reader.optional(data, "complete", bool)
    call = ToolCall(
        reader.name(data, ("tool_call_id", "id")),
        reader.name(data, ("tool_name", "name")),
        arguments,
        complete=complete is not False,
        state=reader.state(data),
        cache_control=reader.cache_control(data),
    )
    if call.complete and not reader.optional(data, "malformed", bool) and not is_readable(call):
        raise reader.error("tool_args", f"must be the text of a JSON object, not {shown(arguments)}")
    return [*blocks, call]


def _read_tool_result(reader: _Reader) -> list[Block]:
    data = reader.data
    success = reader.optional(data, "success", bool)
    parts = reader.array(data, "output_blocks")
    return [
        ToolResult(
            reader.name(data, ("tool_call_id", "id")),
            [_content(reader, part) for part in parts] if parts is not None else reader.needed(data, ("output",), str),
            is_error=success is False,
            cache_control=reader.cache_control(data),
        )
    ]


def _content(reader: _Reader, part: JSON) -> Text | Image | File:
    if type(part) is not dict:
        raise reader.error("output_blocks", f"must hold objects, not {type(part).__name__}")
    kind = reader.needed(part, ("kind",), str, "output_blocks.kind")
    if kind == "text":
        text = reader.needed(part, ("text",), str, "output_blocks.text")
        return Text(text, state=reader.state(part), cache_control=reader.cache_control(part))
    if kind in ("image", "file"):
        return _source(reader, part, kind)
    raise reader.error("output_blocks.kind", f"unknown kind {kind!r}")


def _source(reader: _Reader, data: JSONObject, kind: str) -> Image | File:
    encoded = reader.optional(data, "base64", str)
    try:
        content = base64.b64decode(encoded, validate=True) if encoded is not None else None
    except ValueError:  # not base64, or not ASCII
        raise reader.error("base64", "is not base64 text") from None
    media_type, url = reader.optional(data, "media_type", str), reader.optional(data, "url", str)
    file_id = reader.optional(data, "file_id", str)
    state, mark = reader.state(data), reader.cache_control(data)
    if kind == "file":
        name = reader.optional(data, "name", str)
        return File(content, media_type, url, file_id, name, cache_control=mark, state=state)
    detail = reader.optional(data, "detail", str)
    if detail is not None and detail not in IMAGE_DETAILS:
        raise reader.error("detail", f"must be one of {', '.join(IMAGE_DETAILS)}, not {detail!r}")
    return Image(content, media_type, url, file_id, IMAGE_DETAILS.get(detail or ""), cache_control=mark, state=state)


def _thinking(reader: _Reader, data: JSONObject, prefix: str = "") -> Thinking:
    return Thinking(
        reader.needed(data, ("text",), str, prefix + "text"),
        reader.optional(data, "signature", str, prefix + "signature"),
        state=reader.state(data),
    )


def _redacted(reader: _Reader, data: JSONObject, prefix: str = "") -> RedactedThinking:
    return RedactedThinking(reader.needed(data, ("data",), str, prefix + "data"), state=reader.state(data))


def _read_provider_block(reader: _Reader) -> list[Block]:
    data = reader.object(reader.data, "data")
    if data is None:
        raise reader.error("data", "is missing")
    return [ProviderBlock(reader.needed(reader.data, ("provider",), str), data)]


READERS: dict[str, Callable[[_Reader], list[Block]]] = {
    "system": _read_text,
    "user": _read_text,
    "assistant": _read_text,
    "tool_call": _read_tool_call,
    "tool_result": _read_tool_result,
    "tool": _read_tool_result,
    "thinking": lambda reader: [_thinking(reader, reader.data)],
    "redacted_thinking": lambda reader: [_redacted(reader, reader.data)],
    "image": lambda reader: [_source(reader, reader.data, "image")],
    "file": lambda reader: [_source(reader, reader.data, "file")],
    "provider_block": _read_provider_block,
}
"""Kind of row → the function that reads its blocks."""
