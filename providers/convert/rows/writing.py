"""Writes messages as database rows, one per block. The head of the package has the table of rows."""

from __future__ import annotations

import base64

from ...json.json_values import JSON, JSONObject, dumps_text, exact_loads
from ...model.messages import (
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
from ...rules.message_checks import check_fields
from ...rules.rules import instance
from .row import KIND_ROLE, Row, is_readable

MESSAGE = instance(Message)

TEXT_KINDS: dict[Role, str] = {
    Role.USER: "user",
    Role.ASSISTANT: "assistant",
    Role.TOOL: "assistant",
    Role.SYSTEM: "system",
}
"""Role → the kind of the row of a text."""


def rows_from_message(message: Message) -> list[Row]:
    """Return a message as rows, in order. Reading them gives an equal message.

    Raises `InvalidRequestError` for a value that no row can hold, such as None as a text.
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
        rows.append(Row(TEXT_KINDS[message.role], "", dumps_text({"empty": True})))
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
            row.data_json = dumps_text({**data, **extra})
    return rows


def _may_follow(waiting: list[Thinking | RedactedThinking], block: Thinking | RedactedThinking) -> bool:
    """Return whether a tool call's row can have this block besides those that wait for the call.

    A row has at most one thinking block, then one redacted one.
    """
    if not waiting:
        return True
    return len(waiting) == 1 and isinstance(waiting[0], Thinking) and isinstance(block, RedactedThinking)


def _tool_call_row(block: ToolCall, waiting: list[Thinking | RedactedThinking]) -> Row:
    data: JSONObject = {"tool_call_id": block.id, "tool_name": block.name, "tool_args": block.arguments}
    for earlier in waiting:
        if isinstance(earlier, Thinking):
            data["thinking"] = _without_none(
                {"text": earlier.text, "signature": earlier.signature, "state": _state(earlier.state)}
            )
        else:
            data["redacted_thinking"] = _without_none({"data": earlier.data, "state": _state(earlier.state)})
    if not block.complete:
        data["complete"] = False
    if not is_readable(block):
        data["malformed"] = True
    data.update(_carried(block.state, block.cache_control))
    return Row("tool_call", None, dumps_text(data))


def _block_row(block: Block, role: Role) -> Row:
    if isinstance(block, Text):
        extra = _carried(block.state, block.cache_control)
        if block.citations:
            extra["citations"] = list(block.citations)
        return Row(TEXT_KINDS[role], block.text, dumps_text(extra) if extra else None)
    if isinstance(block, ToolResult):
        data: JSONObject = {"tool_call_id": block.tool_call_id, "output": block.text, "success": not block.is_error}
        if not isinstance(block.content, str):
            data["output_blocks"] = [_content_json(part) for part in block.content]
        data.update(_carried(None, block.cache_control))
        return Row("tool_result", None, dumps_text(data))
    kind, members = _other_json(block)
    return Row(kind, None, dumps_text(members))


def _other_json(block: Block) -> tuple[str, JSONObject]:
    if isinstance(block, Thinking):
        members: JSONObject = {"text": block.text, "signature": block.signature, "state": _state(block.state)}
        return "thinking", _without_none(members)
    if isinstance(block, RedactedThinking):
        return "redacted_thinking", _without_none({"data": block.data, "state": _state(block.state)})
    if isinstance(block, ProviderBlock):
        return "provider_block", {"provider": block.provider, "data": block.data}
    if isinstance(block, Image | File):
        return _source_json(block)
    raise TypeError(f"{type(block).__name__} has no row")


def _source_json(block: Image | File) -> tuple[str, JSONObject]:
    members: JSONObject = {
        "base64": base64.b64encode(block.data).decode() if block.data is not None else None,
        "media_type": block.media_type,
        "url": block.url,
        "file_id": block.file_id,
    }
    if isinstance(block, Image):
        members["detail"] = block.detail
    else:
        members["name"] = block.name
    return (
        "image" if isinstance(block, Image) else "file",
        _without_none(members) | _carried(block.state, block.cache_control),
    )


def _content_json(part: Text | Image | File) -> JSONObject:
    if isinstance(part, Text):
        return {"kind": "text", "text": part.text} | _carried(part.state, part.cache_control)
    kind, data = _source_json(part)
    return {"kind": kind, **data}


def _state(state: ProviderState | None) -> JSON:
    return {"provider": state.provider, "data": state.data} if state is not None else None


def _carried(state: ProviderState | None, cache_control: CacheControl | None) -> JSONObject:
    data: JSONObject = {}
    if state is not None:
        data["state"] = _state(state)
    if cache_control is not None:
        data["cache_control"] = {"ttl": cache_control.ttl}
    return data


def _without_none(members: JSONObject) -> JSONObject:
    return {name: value for name, value in members.items() if value is not None}
