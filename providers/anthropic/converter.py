"""Converts Anthropic's `messages` to the common history and back.

The system prompt is a parameter of the request, not a message. `block_writer.py` writes blocks, and `blocks.py` reads
an assistant's blocks, as in requests and answers.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from ..catalog.dialect import Dialect
from ..catalog.provider import Anthropic, Provider, takes_block
from ..history.converter import HistoryConverter
from ..history.view import HistoryError
from ..json.json_values import JSON, JSONObject, MalformedJSONError, dumps_text, mapping, string
from ..model.events import Event
from ..model.messages import (
    Block,
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
from ..wire.accumulate import Accumulator, CallInProgress
from ..wire.cache_marks import read_mark
from ..wire.omission_warnings import BLANK_TEXT, note_foreign_refusal
from .block_writer import (
    DOCUMENT_OPTIONS,
    IMAGE_OPTION,
    INVALID_JSON,
    RESULT_KINDS,
    SYSTEM_MEMBERS,
    TOOLSET,
    system_members,
    wire_call_id,
    wire_own_text,
    wire_part_of,
    wire_text,
    wire_thinking_block,
    wire_tool_call,
    wire_tool_result,
)
from .blocks import BlockReader
from .dialect import DIALECT
from .stream import DELTAS, EVENTS

ASSISTANT_KINDS = re.compile(
    r"text|thinking|redacted_thinking|tool_use|\w+_tool_use|\w+_tool_result|compaction|fallback|container_upload"
    r"|mcp_tool_listing"
)
"""Types of an assistant's blocks."""

MORE_DELTAS = frozenset({"compaction_delta"})
"""Types of deltas of Anthropic's beta API that have no text and no calls."""

USER_KINDS = re.compile(r"container_upload|\w+_tool_result")
"""Types of a user's blocks that only Anthropic understands."""

SYSTEM_KINDS = frozenset({"tool_addition", "tool_removal"})
"""Types of a system message's blocks that only Anthropic understands."""

OWN_TEXTS = frozenset({"search_result"})
"""Types of a user's blocks that other providers get as text."""


WIRE_ROLES: dict[Role, str] = {
    Role.USER: "user",
    Role.TOOL: "user",
    Role.ASSISTANT: "assistant",
    Role.SYSTEM: "system",
}


class AnthropicConverter(HistoryConverter):
    """Converts Anthropic's messages."""

    dialect: ClassVar[Dialect] = DIALECT
    provider_class: ClassVar[type[Provider]] = Anthropic

    def is_whole(self, chunk: JSONObject) -> bool:
        return chunk.get("type") == "message"

    def is_chunk(self, names: frozenset[str], wire: JSONObject) -> bool:
        return self.is_whole(wire) or string(wire, "type") in EVENTS

    def chunk_around(self, names: frozenset[str], wire: JSONObject) -> JSONObject | None:
        kind = string(wire, "type")
        if kind is None:
            return {"type": "message_delta", "delta": wire} if "stop_reason" in names else None
        if kind in DELTAS or kind in MORE_DELTAS:
            return {"type": "content_block_delta", "index": 0, "delta": wire}
        if "snapshot" in names:  # an event of `client.messages.stream()` that repeats another one
            return {"type": "ping"}
        if not ASSISTANT_KINDS.fullmatch(kind):
            return None
        return {"type": "message_start", "message": {"role": "assistant", "content": [wire]}}

    # --- out ---

    def _write(self, messages: Sequence[Message], names: Mapping[str, str], warnings: list[str]) -> list[JSONObject]:
        wire: list[JSONObject] = []
        toolsets: dict[str, JSON] = {}  # by call id
        for number, message in enumerate(messages):
            given = system_members(message.content, self.provider.maker) if message.role is Role.SYSTEM else {}
            runs: list[tuple[str, list[JSON]]] = []
            for position, block in enumerate(message.content):
                where = f"messages[{number}].content[{position}]"
                part = self._wire_block(block, where, warnings)
                if part is None:
                    if isinstance(block, Text) and (block.text or message.role is not Role.ASSISTANT) and not given:
                        warnings.append(f"{where}: {BLANK_TEXT}")
                    continue
                if isinstance(block, ToolCall) and TOOLSET in part:
                    toolsets[block.id] = part[TOOLSET]
                elif isinstance(block, ToolResult) and block.tool_call_id in toolsets:
                    part[TOOLSET] = toolsets[block.tool_call_id]
                # A result belongs to the user, in whichever message it is.
                role = "user" if isinstance(block, ToolResult) else WIRE_ROLES[message.role]
                if not runs or runs[-1][0] != role:
                    runs.append((role, []))
                runs[-1][1].append(part)
            if given and not runs:
                runs.append(("system", []))
            wire.extend({"role": role, "content": parts, **given} for role, parts in runs)
        return wire

    def _wire_block(self, block: Block, where: str, warnings: list[str]) -> JSONObject | None:
        if isinstance(block, Text):
            note_foreign_refusal(block.state, self.provider.maker, warnings)
            return wire_own_text(block, self.provider.maker) or wire_text(block, with_citations=True)
        if isinstance(block, Thinking | RedactedThinking):
            return wire_thinking_block(block, self.provider, warnings)
        if isinstance(block, ToolCall):
            return wire_tool_call(block, wire_call_id(block.id), self.provider.maker, warnings)
        if isinstance(block, ToolResult):
            return wire_tool_result(block, wire_call_id(block.tool_call_id), where, warnings, self.provider.maker)
        if isinstance(block, Image | File):
            return wire_part_of(block, where, warnings, self.provider.maker)
        return block.data if takes_block(self.provider, block) else None

    # --- in ---

    def _read(self, wire: Sequence[JSONObject], names: dict[str, str]) -> list[Message]:
        messages: list[Message] = []
        for number, item in enumerate(wire):
            where = f"messages[{number}]"
            role, content = item.get("role"), item.get("content")
            if role == "system":
                messages.append(Message(Role.SYSTEM, self._system_blocks(item, where)))
                continue
            if role not in ("user", "assistant"):
                raise HistoryError(f"{where}.role", f"unknown role {role!r}")
            if type(content) is str:
                messages.append(Message(role, content))
                continue
            if role == "assistant":
                messages.append(Message(Role.ASSISTANT, self._answer_blocks(_blocks(content, where), where)))
                continue
            for position, wire_block in enumerate(_blocks(content, where)):
                block = self._user_block(wire_block, f"{where}.content[{position}]")
                speaker = Role.TOOL if isinstance(block, ToolResult) else Role.USER
                if position and messages[-1].role is speaker:
                    messages[-1].content.append(block)
                else:
                    messages.append(Message(speaker, [block]))
        return messages

    def _answer_blocks(self, wire: Sequence[JSONObject], where: str) -> list[Block]:
        answer = Accumulator(keep_ids=True)
        reader = BlockReader(answer, self.provider.maker, self.make_id)
        untold: list[Event] = []
        for position, wire_block in enumerate(wire):
            kind, place = string(wire_block, "type") or "", f"{where}.content[{position}]"
            if not ASSISTANT_KINDS.fullmatch(kind):
                raise HistoryError(f"{place}.type", f"unknown block {kind!r} in an assistant's message")
            try:
                opened = reader.open(wire_block, untold)
            except MalformedJSONError as error:
                raise HistoryError(place, str(error)) from None
            if isinstance(opened, CallInProgress):
                opened.settle()
                opened.call.finish()
        content = answer.response().content
        for block, wire_block in zip(content, wire, strict=True):
            if isinstance(block, Text | ToolCall):
                block.cache_control = read_mark(wire_block, where, HistoryError)
            if isinstance(block, ToolCall):
                given = mapping(wire_block, "input")
                unread = string(given, INVALID_JSON)
                if unread is not None and len(given) == 1:
                    block.arguments = unread
        return content

    def _system_blocks(self, wire: JSONObject, where: str) -> list[Block]:
        """Read a system message. Members besides its content are the state of its first text."""
        content, blocks = wire.get("content"), list[Block]()
        given: JSONObject = {name: wire[name] for name in SYSTEM_MEMBERS if wire.get(name) is not None}
        if type(content) is str:
            blocks.append(Text(content))
        elif content is not None or not given:
            for position, part in enumerate(_blocks(content, where)):
                kind, place = string(part, "type"), f"{where}.content[{position}]"
                if kind in SYSTEM_KINDS:
                    blocks.append(ProviderBlock(self.provider.maker, part))
                elif kind == "text":
                    blocks.append(_part(part, place, self.provider.maker))
                else:
                    raise HistoryError(f"{place}.type", f"unknown block {kind!r} in a system message")
        if given:
            first = next((block for block in blocks if isinstance(block, Text)), None)
            if first is None:
                first = Text("")
                blocks.insert(0, first)
            first.state = ProviderState(self.provider.maker, given)
        return blocks

    def _user_block(self, wire: JSONObject, where: str) -> Block:
        kind = string(wire, "type") or ""
        if kind == "tool_result":
            return self._tool_result(wire, where)
        if kind in OWN_TEXTS:
            return _result_part(wire, where, self.provider.maker)
        if kind in ("text", "image", "document"):
            return _part(wire, where, self.provider.maker)
        if not USER_KINDS.fullmatch(kind):
            raise HistoryError(f"{where}.type", f"unknown block {kind!r} in a user's message")
        return ProviderBlock(self.provider.maker, wire)

    def _tool_result(self, wire: JSONObject, where: str) -> ToolResult:
        content = wire.get("content")
        given: str | list[Text | Image | File]
        if content is None or type(content) is str:
            given = content or ""
        else:
            maker, parts = self.provider.maker, _blocks(content, where)
            given = [_result_part(part, f"{where}.content[{n}]", maker) for n, part in enumerate(parts)]
        call_id = string(wire, "tool_use_id") or ""
        return ToolResult(
            call_id, given, wire.get("is_error") is True, cache_control=read_mark(wire, where, HistoryError)
        )


def _blocks(content: JSON, where: str) -> list[JSONObject]:
    found = [block for block in content if type(block) is dict] if type(content) is list else []
    if type(content) is not list or len(found) < len(content):
        raise HistoryError(f"{where}.content", "must be text or a list of blocks")
    return found


def _result_part(wire: JSONObject, where: str, maker: str) -> Text | Image | File:
    """Read a block of a tool's result. One that only Anthropic understands is a text, and keeps its own form."""
    kind = string(wire, "type")
    if kind not in RESULT_KINDS:
        return _part(wire, where, maker)
    if kind == "tool_reference":
        text = string(wire, "tool_name") or ""
    else:
        head = [string(wire, name) or "" for name in ("title", "source")]
        text = "\n\n".join(["\n".join(filter(None, head)), *_texts(wire.get("content"))])
    return Text(text, cache_control=read_mark(wire, where, HistoryError), state=ProviderState(maker, wire))


def _part(wire: JSONObject, where: str, maker: str) -> Text | Image | File:
    """Read a block that is allowed both in a user's message and in a tool's result."""
    kind, mark = string(wire, "type"), read_mark(wire, where, HistoryError)
    if kind == "text":
        return Text(string(wire, "text") or "", cache_control=mark)
    if kind not in ("image", "document"):
        raise HistoryError(f"{where}.type", f"unknown block {kind!r} in a tool's result")
    source = mapping(wire, "source")
    given: JSONObject = {name: wire[name] for name in DOCUMENT_OPTIONS if wire.get(name) is not None}
    data, media_type = _data(source, where), string(source, "media_type")
    url, file_id = string(source, "url"), string(source, "file_id")
    if kind == "document" and string(source, "type") == "content":
        given["source"] = source
        data, media_type = "\n\n".join(_texts(source.get("content"))).encode(), "text/plain"
    if (data, url, file_id) == (None, None, None):
        raise HistoryError(f"{where}.source", f"cannot be read: {dumps_text(source)[:200]}")
    if kind == "image":
        option = wire.get(IMAGE_OPTION)
        own = None if option is None else ProviderState(maker, {IMAGE_OPTION: option})
        return Image(data, media_type, url, file_id, cache_control=mark, state=own)
    state = ProviderState(maker, given) if given else None
    return File(data, media_type, url, file_id, string(wire, "title"), cache_control=mark, state=state)


def _texts(content: JSON) -> list[str]:
    """Return the texts of content that is one text or a list of blocks."""
    if type(content) is str:
        return [content]
    blocks = content if type(content) is list else []
    return [text for block in blocks if type(block) is dict and (text := string(block, "text"))]


def _data(source: JSONObject, where: str) -> bytes | None:
    data = string(source, "data")
    if data is None:
        return None
    if string(source, "type") == "text":
        return data.encode()
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:  # not base64, or not ASCII
        raise HistoryError(f"{where}.source.data", "is not base64 text") from None
