"""Converts the `input` items of Responses to the common history and back.

The system prompt is `instructions`, a member of the request. `block_writer.py` writes parts, `message_writer.py` the
ids, and `output.py` reads an assistant's items, as in requests and answers.

Adjacent items of the assistant are one message, and so are adjacent results: the wire has no turns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from ...catalog.dialect import Dialect
from ...catalog.provider import OpenAIResponses, Provider, takes_block
from ...history.converter import HistoryConverter
from ...history.view import HistoryError
from ...json.json_values import JSON, JSONObject, MalformedJSONError, string
from ...model.messages import (
    Block,
    File,
    Image,
    Message,
    ProviderBlock,
    Role,
    Text,
    Thinking,
    ToolCall,
    state_for,
)
from ...model.messages import ToolResult as Result
from ...wire.accumulate import REFUSAL, Accumulator
from ...wire.cache_marks import read_mark
from ...wire.omission_warnings import note_foreign_refusal
from ..file_data import Source, detail_of, file_source, url_source
from ..system_messages import SYSTEM_ROLES, system_message, wire_role
from .block_writer import BlockWriter
from .dialect import DIALECT
from .items import OUTPUT_KIND
from .message_writer import (
    call_item,
    content_with,
    is_own_call,
    output_kind,
    own_result,
    reasoning_item,
    wire_call_id,
)
from .output import Output
from .response import NAMELESS_CALLS

ANSWER_KINDS = re.compile(
    r"reasoning|\w+_call|mcp_\w+|tool_search_\w+|compaction\w*|item_reference|program(?:_output)?|additional_tools"
)
"""Types of an assistant's items, besides messages."""

SERVER_KINDS = re.compile(r"\w+_output|additional_tools")
"""Types of items in an answer that come from the server instead of the model: results of its tools, and its tools."""

ITEM_OF_PART: dict[str, tuple[str, str]] = {
    "output_text": ("message", "content"),
    "refusal": ("message", "content"),
    "reasoning_text": ("reasoning", "content"),
    "summary_text": ("reasoning", "summary"),
}
"""Type of a part → the type of its item, and the member that contains it."""

USER_KINDS = frozenset({*OUTPUT_KIND.values(), "configuration_update"})
"""Types of a user's items that only this API understands."""

OUTPUTS = ("function_call_output", "custom_tool_call_output")
"""Types of items with a tool's result."""


class ResponsesConverter(HistoryConverter):
    """Converts the items of OpenAI's Responses."""

    dialect: ClassVar[Dialect] = DIALECT
    provider_class: ClassVar[type[Provider]] = OpenAIResponses

    def is_whole(self, chunk: JSONObject) -> bool:
        return chunk.get("object") == "response"

    def is_chunk(self, names: frozenset[str], wire: JSONObject) -> bool:
        kind = string(wire, "type") or ""
        return self.is_whole(wire) or kind in ("error", "keepalive") or kind.startswith("response.")

    def chunk_around(self, names: frozenset[str], wire: JSONObject) -> JSONObject | None:
        kind = string(wire, "type") or ""
        if kind in ITEM_OF_PART:
            item_kind, member = ITEM_OF_PART[kind]
            wire = {"type": item_kind, "role": "assistant", member: [wire]}
        elif kind != "message" and not ANSWER_KINDS.fullmatch(kind) and not SERVER_KINDS.fullmatch(kind):
            return None
        return {"type": "response.output_item.done", "output_index": 0, "item": wire}

    # --- out ---

    def _write(self, messages: Sequence[Message], names: Mapping[str, str], warnings: list[str]) -> list[JSONObject]:
        parts = BlockWriter(breakpoints=False)
        items: list[JSONObject] = []
        calls: dict[str, JSONObject] = {}
        for message in messages:
            open_parts: list[JSON] = []
            role = "user"
            if message.role is Role.SYSTEM:
                role = wire_role(message.content, self.provider.maker, SYSTEM_ROLES[0])
            for block in message.content:
                if message.role is not Role.ASSISTANT and isinstance(block, Text | Image | File):
                    if not open_parts:
                        items.append({"type": "message", "role": role, "content": open_parts})
                    open_parts.append(parts.part(block))
                    continue
                open_parts = []
                if isinstance(block, Text):
                    note_foreign_refusal(block.state, self.provider.maker, warnings)
                item = self._item(block, parts, calls)
                if item is not None:
                    items.append(item)
                else:
                    warnings.append(
                        f"messages: an assistant's {type(block).__name__} is not written; there is no form for it"
                    )
        warnings.extend(parts.left_out)
        return items

    def _item(self, block: Block, parts: BlockWriter, calls: dict[str, JSONObject]) -> JSONObject | None:
        """Return a block's item, or None if it has none. calls: the states of the calls before, by their ids."""
        if isinstance(block, Text):
            state = dict(state_for(block.state, self.provider.maker))
            refusal = string(state, REFUSAL)
            state.pop(REFUSAL, None)
            content: JSON = content_with(refusal, block.text) if refusal else block.text
            return {"type": "message", "role": "assistant", "content": content, **state}
        if isinstance(block, ToolCall):
            state = state_for(block.state, self.provider.maker)
            calls[block.id] = state
            return call_item(block, state, wire_call_id(block.id))
        if isinstance(block, Result):
            state = calls.get(block.tool_call_id, {})
            if is_own_call(state):
                return own_result(state, block, parts)
            output = parts.output(block.content, None)
            return {"type": output_kind(state), "call_id": wire_call_id(block.tool_call_id), "output": output}
        if isinstance(block, Thinking):
            state = state_for(block.state, self.provider.maker)
            return reasoning_item(state) if state else None
        return block.data if isinstance(block, ProviderBlock) and takes_block(self.provider, block) else None

    # --- in ---

    def _read(self, wire: Sequence[JSONObject], names: dict[str, str]) -> list[Message]:
        read: list[Message] = []
        run: list[JSON] = []  # items of the assistant that are one message
        for number, item in enumerate(wire):
            where = f"input[{number}]"
            kind, role = string(item, "type") or "message", string(item, "role")
            if (kind == "message" and role == "assistant") or ANSWER_KINDS.fullmatch(kind):
                run.append({**item, "type": kind})
                continue
            self._close(run, read, where)
            if kind in OUTPUTS:
                result = Result(string(item, "call_id") or "", _output(item, where))
                if number and string(wire[number - 1], "type") in OUTPUTS:
                    read[-1].content.append(result)  # the results of one turn
                else:
                    read.append(Message(Role.TOOL, result))
            elif kind in USER_KINDS:
                read.append(Message.user(ProviderBlock(self.provider.maker, item)))
            elif kind != "message":
                raise HistoryError(f"{where}.type", f"unknown item {kind!r}")
            elif role in SYSTEM_ROLES:
                read.append(system_message(role, _parts(item.get("content"), where), self.provider.maker))
            elif role == "user":
                read.append(Message.user([*_parts(item.get("content"), where)]))
            else:
                raise HistoryError(f"{where}.role", f"unknown role {role!r}")
        self._close(run, read, "input")
        return read

    def _close(self, run: list[JSON], read: list[Message], where: str) -> None:
        """Make one message of the assistant's items in `run`, and clear it."""
        if not run:
            return
        answer = Accumulator(keep_ids=True)
        output = Output(answer, self.provider.maker, self.make_id, is_history=True)
        try:
            for index, item in enumerate(run):
                output.take(index, item if type(item) is dict else {})
        except MalformedJSONError as error:
            raise HistoryError(where, str(error)) from None
        if output.nameless_calls():
            raise HistoryError(where, NAMELESS_CALLS.format(output.nameless_calls()))
        message = answer.response().to_message()
        for block in message.content:
            if isinstance(block, ToolCall):
                block.complete = True
        if message.content:
            read.append(message)
        run.clear()


def _output(item: JSONObject, where: str) -> str | list[Text | Image | File]:
    output = item.get("output")
    if output is None or type(output) is str:
        return output or ""
    return _parts(output, f"{where}.output")


def _parts(content: JSON, where: str) -> list[Text | Image | File]:
    if type(content) is str:
        return [Text(content)]
    if type(content) is not list:
        raise HistoryError(f"{where}.content", "must be text or a list of parts")
    return [_part(part, f"{where}.content[{position}]") for position, part in enumerate(content)]


def _part(part: JSON, where: str) -> Text | Image | File:
    wire = part if type(part) is dict else {}
    block = _unmarked_part(wire, where)
    block.cache_control = read_mark(wire, where, HistoryError)
    return block


def _unmarked_part(wire: JSONObject, where: str) -> Text | Image | File:
    kind = string(wire, "type")
    if kind in ("input_text", "output_text", "text"):
        return Text(string(wire, "text") or "")
    if kind == "input_image":
        data, media_type, url = _source(string(wire, "image_url"), where)
        detail = detail_of(wire)
        return Image(data, media_type, url, string(wire, "file_id"), None if detail == "auto" else detail)
    if kind == "input_file":
        name, given = string(wire, "filename"), string(wire, "file_data")
        if given:
            data, media_type, url = _source(given, f"{where}.file_data", name, plain=True)
        else:
            data, media_type, url = _source(string(wire, "file_url"), where)
        return File(data, media_type, url, string(wire, "file_id"), name)
    raise HistoryError(f"{where}.type", f"unknown part {kind!r}")


def _source(text: str | None, where: str, name: str | None = None, *, plain: bool = False) -> Source:
    """Return the bytes and media type of a picture or file, or its URL. `plain`: base64 text is allowed, too."""
    try:
        return file_source(text or "", name) if plain else url_source(text)
    except ValueError as error:
        raise HistoryError(where, str(error)) from None
