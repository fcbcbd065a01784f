"""Messages as database rows `kind, content, data_json`, and back: one row per block, append-only.

Rows are a view of the message model: a new kind of block needs a row here. Older spellings of rows are read, too.

| kind | content | data_json |
|---|---|---|
| `system` | text | None: not read as a message, because the system prompt is a field of the request |
| `system` | text | `"role": "system"`: a system message in the middle of a conversation |
| `user`, `assistant` | text | None, or the text block's other members |
| `tool_call` | None | `tool_call_id, tool_name, tool_args, thinking: {text, signature}?, redacted_thinking: {data}?` |
| `tool_result`, `tool` | None | `tool_call_id, output, success` (absent: a success) |
| `thinking`, `redacted_thinking`, `image`, `file`, `provider_block` | None | the block's members |

Thinking directly before a tool call is stored in the call's row. A message of several blocks gives several rows. All
but the first have `"continues": true`, and `messages_from_rows` joins them to one message. Arguments that are no JSON
object are an error, unless the row has `"malformed": true`, which means that the model wrote them so. A `system` row
without a role that comes after a message is a system message, too.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

from ..errors import InvalidRequestError, ManystreamError
from ..json.json_values import JSON, JSONObject, MalformedJSONError, arguments_text, escaped_text, exact_loads, shown
from .message_rules import check_fields
from .messages import (
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
from .rules import flag, instance, items_of, optional, whole


@dataclass(slots=True)
class Row:
    """One row.

    kind: what the row contains: a key of `KIND_ROLE`, or `system`.
    content: the text, or None.
    data_json: the text of a JSON object, or None. Rows of a database that parses JSON may have the object itself.
    """

    kind: str
    content: str | None = None
    data_json: str | None = None


class RowError(ManystreamError, ValueError):
    """A row that cannot be read.

    field: the field that must be corrected.
    reason: what is wrong with it.
    row: the row.
    position: its position in the conversation, or None.
    """

    def __init__(self, field: str, message: str, row: Row, position: int | None = None) -> None:
        where = f"row {position}" if position is not None else "row"
        super().__init__(f"{where} (kind {row.kind!r}), field {field!r}: {message}")
        self.field = field
        self.reason = message
        self.row = row
        self.position = position


KIND_ROLE: dict[str, Role] = {
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "tool_call": Role.ASSISTANT,
    "tool_result": Role.TOOL,
    "tool": Role.TOOL,
    "thinking": Role.ASSISTANT,
    "redacted_thinking": Role.ASSISTANT,
    "image": Role.USER,
    "file": Role.USER,
    "provider_block": Role.ASSISTANT,
}
"""Kind → the role of the row's message, unless the row names another role. A row of the kind `system` names it: without
a role it is the system prompt, which is no message."""


def is_readable(call: ToolCall) -> bool:
    """Return whether a call's arguments are a JSON object. Rows keep others, which models sometimes write, as text."""
    try:
        return type(call.parsed) is dict
    except MalformedJSONError:
        return False


MESSAGE = instance(Message)

TEXT_KINDS: dict[Role, str] = {
    Role.USER: "user",
    Role.ASSISTANT: "assistant",
    Role.TOOL: "assistant",
    Role.SYSTEM: "system",
}


def rows_from_message(message: Message) -> list[Row]:
    """Return a message as rows, in order. Reading them gives an equal message.

    Raises `InvalidRequestError` for a value that no row can hold, such as None as a text or 300 levels of lists.
    """
    MESSAGE.check(message, "message")
    check_fields(message.content, "message")
    rows: list[Row] = []
    waiting: list[Thinking | RedactedThinking] = []
    for block in message.content:
        if isinstance(block, Thinking | RedactedThinking):
            if not _may_follow(waiting, block):
                rows.extend(_block_row(earlier, message.role) for earlier in waiting)
                waiting = []
            waiting.append(block)
        elif isinstance(block, ToolCall):
            rows.append(_tool_call_row(block, waiting))
            waiting = []
        else:
            rows.extend(_block_row(earlier, message.role) for earlier in waiting)
            waiting = []
            rows.append(_block_row(block, message.role))
    rows.extend(_block_row(earlier, message.role) for earlier in waiting)
    if not rows:
        rows.append(Row(TEXT_KINDS[message.role], "", _text({"empty": True})))
    for position, row in enumerate(rows):
        extra: JSONObject = {}
        if position:
            extra["continues"] = True
        elif message.provider_metadata:
            extra["provider_metadata"] = message.provider_metadata
        if KIND_ROLE.get(row.kind) is not message.role:
            extra["role"] = message.role.value
        if extra:
            data = exact_loads(row.data_json) if row.data_json is not None else {}
            assert type(data) is dict
            row.data_json = _text({**data, **extra})
    return rows


def _text(value: JSONObject) -> str:
    """Write a row's data. Raises `InvalidRequestError` for a value that JSON cannot hold, which a server may send."""
    try:
        return escaped_text(value)
    except TypeError as error:
        raise InvalidRequestError("message", f"cannot be written as JSON: {error}") from None


def _may_follow(waiting: list[Thinking | RedactedThinking], block: Thinking | RedactedThinking) -> bool:
    """Return whether a tool call's row can have this block besides those that wait for the call.

    A row has at most one thinking block, then one redacted one.
    """
    if not waiting:
        return True
    return len(waiting) == 1 and isinstance(waiting[0], Thinking) and isinstance(block, RedactedThinking)


CARRIED = ("state", "cache_control")
SOURCE = ("data", "media_type", "url", "file_id")

MEMBERS: dict[type[Block], tuple[str, tuple[str, ...]]] = {
    Text: ("text", ("text", *CARRIED)),
    Thinking: ("thinking", ("text", "signature", "state")),
    RedactedThinking: ("redacted_thinking", ("data", "state")),
    Image: ("image", (*SOURCE, "detail", *CARRIED)),
    File: ("file", (*SOURCE, "name", *CARRIED)),
    ProviderBlock: ("provider_block", ("provider", "data")),
}
"""Block type → its kind, and its attributes in its row, or in a part of a result. Bytes are a member `base64`."""


def _tool_call_row(block: ToolCall, waiting: list[Thinking | RedactedThinking]) -> Row:
    data: JSONObject = {"tool_call_id": block.id, "tool_name": block.name, "tool_args": block.arguments}
    for earlier in waiting:
        kind, names = MEMBERS[type(earlier)]
        data[kind] = _members(earlier, names)
    if not block.complete:
        data["complete"] = False
    if not is_readable(block):
        data["malformed"] = True
    return Row("tool_call", None, _text(data | _members(block, CARRIED)))


def _block_row(block: Block, role: Role) -> Row:
    if isinstance(block, Text):
        extra = _members(block, CARRIED)
        if block.citations:
            extra["citations"] = list(block.citations)
        return Row(TEXT_KINDS[role], block.text, _text(extra) if extra else None)
    if isinstance(block, ToolResult):
        data: JSONObject = {"tool_call_id": block.tool_call_id, "output": block.text, "success": not block.is_error}
        if not isinstance(block.content, str):
            parts = [(MEMBERS[type(part)], part) for part in block.content]
            data["output_blocks"] = [{"kind": kind, **_members(part, names)} for (kind, names), part in parts]
        return Row("tool_result", None, _text(data | _members(block, CARRIED[1:])))
    kind, names = MEMBERS[type(block)]
    return Row(kind, None, _text(_members(block, names)))


def _members(block: Block, names: Sequence[str]) -> JSONObject:
    """Return attributes of a block as members of its row, without those that are None."""
    members: JSONObject = {}
    for name in names:
        value: object = getattr(block, name)
        if isinstance(value, bytes | bytearray | memoryview):
            members["base64"] = base64.b64encode(cast("bytes", value)).decode()
        elif isinstance(value, ProviderState):
            members[name] = {"provider": value.provider, "data": value.data}
        elif isinstance(value, CacheControl):
            members[name] = {"ttl": value.ttl}
        elif value is not None:
            members[name] = cast("JSON", value)
    return members


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
    if read is not _read_text and reader.row.data_json is None:
        raise reader.error("data_json", f"is missing: a row of the kind {kind!r} has its values there")
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
