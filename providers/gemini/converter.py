"""Converts Gemini's `contents` to the common history and back.

The system prompt is `systemInstruction`, a member of the request. `block_writer.py` writes parts, and the stream
machine reads them, as in requests and answers. It pairs only results without an id: such a result belongs to the first
unanswered call of its function.

The wire has ids for calls and results, and a history writes them. A request sends only ids that Gemini made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import ClassVar

from ..catalog.dialect import Dialect
from ..catalog.provider import Gemini, Provider
from ..convert.sdk_arguments import plain
from ..errors import InvalidRequestError
from ..history.converter import Chunk, HistoryConverter, as_object
from ..history.view import UNKNOWN_TOOL, HistoryError
from ..json.json_values import (
    JSON,
    JSONObject,
    MalformedJSONError,
    arguments_text,
    mapping,
    objects,
    required_objects,
    string,
    without_nulls,
)
from ..model.messages import Block, File, Image, Message, Role, Text, ToolCall, ToolResult
from .block_writer import BlockWriter
from .dialect import DIALECT
from .json_names import ANNOTATIONS, camel, wire_names
from .stream import PARTS, GeminiStream, first_error

MODEL, USER = "model", "user"
USER_ROLES = (USER, "function", "tool")
"""Roles other than the model's. Older histories have own roles for results."""

PROVIDER_PARTS = frozenset({"executableCode", "codeExecutionResult", "toolCall", "toolResponse"})
"""Types of parts that only Gemini understands."""

RESULT = "functionResponse"

CHUNK_MEMBERS = frozenset({"candidates", "promptFeedback", "usageMetadata", "modelVersion", "responseId"})
CANDIDATE_MEMBERS = frozenset({"content", "finishReason"})
CALL_MEMBERS = frozenset({"name", "args"})
"""Members that identify a chunk, a candidate and a function call."""


def as_on_the_wire(value: object, where: str, member: str = "") -> JSON:
    """Return a value as on the wire: an object of google-genai, or any form that its `model_dump` writes.

    `where` is the path of the value, and `member` the name of the member that has it. Raises `InvalidRequestError` for
    a value that JSON does not have.
    """
    return wire_names(plain(value, where, base64_bytes=True), member)


class GeminiConverter(HistoryConverter):
    """Converts Gemini's contents."""

    dialect: ClassVar[Dialect] = DIALECT
    provider_class: ClassVar[type[Provider]] = Gemini
    _has_system_messages: ClassVar[bool] = False
    _takes_parts: ClassVar[bool] = True

    def _object(self, value: Chunk, where: str) -> JSONObject:
        try:
            return mapping({"": as_on_the_wire(as_object(value, where), where)}, "")
        except InvalidRequestError as error:
            raise HistoryError(error.field, str(error).removeprefix(f"{error.field}: ")) from None

    def is_chunk(self, names: frozenset[str], wire: JSONObject) -> bool:
        return not CHUNK_MEMBERS.isdisjoint(map(camel, names))

    def chunk_around(self, names: frozenset[str], wire: JSONObject) -> JSONObject | None:
        names = frozenset(map(camel, names))
        if not names & CANDIDATE_MEMBERS:
            if "parts" not in names:
                if names >= CALL_MEMBERS:
                    wire = {"functionCall": wire}
                elif not names & (PARTS.keys() | PROVIDER_PARTS):
                    return None
                wire = {"parts": [wire]}
            wire = {"content": wire}
        return {"candidates": [wire]}

    def _system_parameter(self, texts: Sequence[str]) -> JSON:
        return {"parts": [{"text": text} for text in texts]}

    # --- out ---

    def _write(self, messages: Sequence[Message], names: Mapping[str, str], warnings: list[str]) -> list[JSONObject]:
        writer = BlockWriter(self.provider, warnings, media_in_results=True)
        calls = {call_id: deque((ToolCall(call_id, name, ""),)) for call_id, name in names.items()}
        contents: list[JSONObject] = []
        for number, message in enumerate(messages):
            runs: list[tuple[str, list[JSON]]] = []
            for position, block in enumerate(message.content):
                # A result belongs to the user, in whichever message it is.
                model = message.role is Role.ASSISTANT and not isinstance(block, ToolResult)
                role = MODEL if model else USER
                parts = _parts(writer, block, f"messages[{number}].content[{position}]", calls)
                if parts and (not runs or runs[-1][0] != role):
                    runs.append((role, []))
                for part in parts:
                    runs[-1][1].append(part)
            contents.extend({"role": role, "parts": parts} for role, parts in runs)
        return contents

    # --- in ---

    def _read(self, wire: Sequence[JSONObject], names: dict[str, str]) -> list[Message]:
        messages: list[Message] = []
        open_calls: list[ToolCall] = []
        for number, content in enumerate(wire):
            where, role = f"contents[{number}]", content.get("role") or USER
            if role != MODEL and role not in USER_ROLES:
                raise HistoryError(f"{where}.role", f"unknown role {role!r}")
            try:
                parts = [without_nulls(part) for part in required_objects(content.get("parts"), "parts")]
            except MalformedJSONError as error:
                raise HistoryError(where, str(error)) from None
            for position, part in enumerate(parts):
                place = f"{where}.parts[{position}]"
                speaker = Role.ASSISTANT if role == MODEL else Role.USER
                blocks: list[Block] = []
                if RESULT in part:
                    speaker = Role.TOOL
                    blocks.append(self._result(mapping(part, RESULT), open_calls, names, place))
                else:
                    blocks += self._blocks(part, place)
                    open_calls += [block for block in blocks if isinstance(block, ToolCall)]
                if position and messages and messages[-1].role is speaker:
                    messages[-1].content.extend(blocks)
                else:
                    messages.append(Message(speaker, blocks))
        return [message for message in messages if message.content]

    def _blocks(self, part: JSONObject, where: str) -> list[Block]:
        """Read a part with a machine of its own, because adjacent texts of a history are separate blocks."""
        if not part.keys() & (PARTS.keys() | PROVIDER_PARTS) and not part.keys() <= ANNOTATIONS:
            raise HistoryError(where, f"unknown part {', '.join(map(repr, part))}")
        machine = GeminiStream(self.provider, self.make_id)
        failed = first_error(machine.take({"candidates": [{"content": {"parts": [part]}}]}, b""))
        if failed is not None:
            raise HistoryError(where, failed.error.message.partition(" in Gemini's answer")[0])
        machine.finish()
        return machine.response().content

    def _result(self, wire: JSONObject, open_calls: list[ToolCall], names: dict[str, str], where: str) -> ToolResult:
        """Read a result with the files in it, and pair it with its call."""
        name, call_id = string(wire, "name") or UNKNOWN_TOOL, string(wire, "id")
        call = next((c for c in open_calls if (c.id == call_id if call_id else c.name == name)), None)
        if call is not None:
            open_calls.remove(call)
        call_id = call.id if call is not None else call_id or self.make_id()
        names[call_id] = name
        response = mapping(wire, "response")
        member = "output" if "output" in response else "error" if "error" in response else None
        value = response[member] if member is not None and len(response) == 1 else response
        text = value if type(value) is str else arguments_text(value)
        media = [
            block
            for position, part in enumerate(objects(wire, "parts"))
            for block in self._blocks(without_nulls(part), f"{where}.{RESULT}.parts[{position}]")
            if isinstance(block, Image | File)
        ]
        return ToolResult(call_id, [Text(text), *media] if media else text, is_error=member == "error")


def _parts(writer: BlockWriter, block: Block, where: str, calls: dict[str, deque[ToolCall]]) -> list[JSONObject]:
    """Return a block's parts: none, one, or a result with the files that it cannot contain."""
    if isinstance(block, ToolCall):
        calls.setdefault(block.id, deque()).append(block)
        part = writer.call(block, where)
        mapping(part, "functionCall").setdefault("id", block.id)
        return [part]
    if isinstance(block, ToolResult):
        asked = calls.get(block.tool_call_id) or deque((ToolCall(block.tool_call_id, UNKNOWN_TOOL, ""),))
        call = asked.popleft() if len(asked) > 1 else asked[0]  # calls that share an id are answered in order
        part, beside = writer.result(block, call, where)
        mapping(part, RESULT).setdefault("id", block.tool_call_id)
        return [part, *beside]
    content = writer.content(block, where)
    return [] if content is None else [content]
