"""Converts the steps of the Interactions API to the common history and back.

The system prompt is `system_instruction`, a member of the request. `block_writer.py` writes contents and steps, and
`steps.py` reads a model's steps, as in requests and answers.

Adjacent steps of the model are one message, and so are adjacent results: the wire has no turns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from ..catalog.dialect import Dialect
from ..catalog.provider import GeminiInteractions, Provider
from ..history.converter import Chunk, ChunkView, HistoryConverter, as_object
from ..history.view import UNKNOWN_TOOL, HistoryError
from ..json.json_values import (
    JSON,
    JSONObject,
    MalformedJSONError,
    arguments_text,
    mapping,
    required_objects,
    string,
    without_nulls,
)
from ..model.messages import Block, File, Image, Message, ProviderBlock, Role, Text, ToolCall, ToolResult
from ..wire.accumulate import Accumulator, CallInProgress
from .block_writer import BlockWriter
from .dialect import DIALECT
from .message_writer import CONTENTS
from .steps import INPUT, MEDIA, OUTPUT, RESULT, THOUGHT, StepInProgress, StepReader
from .stream import DELTAS, is_interaction

MODEL_STEPS = re.compile(rf"{OUTPUT}|{THOUGHT}|\w+_call|\w+_result")
"""Types of a model's steps: its own, and those of the server's tools."""

CONTINUING = frozenset({"arguments_delta", "thought_signature"})
"""Types of deltas that mean nothing without the step that they continue."""

NOTHING: JSONObject = {"event_type": "step.stop", "index": 0}
"""An event without content."""


class InteractionsConverter(HistoryConverter):
    """Converts the steps of Google's Interactions API."""

    dialect: ClassVar[Dialect] = DIALECT
    provider_class: ClassVar[type[Provider]] = GeminiInteractions
    _has_system_messages: ClassVar[bool] = False

    def is_whole(self, chunk: JSONObject) -> bool:
        return is_interaction(chunk)

    def is_chunk(self, names: frozenset[str], wire: JSONObject) -> bool:
        return self.is_whole(wire) or "event_type" in names or "error" in names

    def chunk_around(self, names: frozenset[str], wire: JSONObject) -> JSONObject | None:
        kind = string(wire, "type") or ""
        if kind in CONTENTS:
            wire = {"type": OUTPUT, "content": [wire]}
        elif kind in DELTAS and not MODEL_STEPS.fullmatch(kind):
            return NOTHING if kind in CONTINUING else {"event_type": "step.delta", "index": 0, "delta": wire}
        elif not MODEL_STEPS.fullmatch(kind):
            return None
        return {"event_type": "step.start", "index": 0, "step": wire}

    def wrap_chunk(self, chunk: Chunk) -> ChunkView:
        delta = mapping(as_object(chunk, "chunk"), "delta")
        return super().wrap_chunk(NOTHING if string(delta, "type") in CONTINUING else chunk)

    # --- out ---

    def _write(self, messages: Sequence[Message], names: Mapping[str, str], warnings: list[str]) -> list[JSONObject]:
        writer = BlockWriter(self.provider, warnings, media_in_results=True)
        called = dict(names)
        steps: list[JSONObject] = []
        for number, message in enumerate(messages):
            kind = OUTPUT if message.role is Role.ASSISTANT else INPUT
            contents: list[JSON] | None = None  # of the last step
            for position, block in enumerate(message.content):
                where = f"messages[{number}].content[{position}]"
                if isinstance(block, ToolCall):
                    called[block.id] = block.name
                    part: JSONObject | None = writer.call(block, where)
                elif isinstance(block, ToolResult):
                    call = ToolCall(block.tool_call_id, called.get(block.tool_call_id, UNKNOWN_TOOL), "")
                    part, _ = writer.result(block, call, where)
                else:
                    part = writer.content(block, where)
                if part is None:
                    continue
                if string(part, "type") not in CONTENTS:
                    contents = None
                    steps.append(part)
                elif contents is None:
                    contents = [part]
                    steps.append({"type": kind, "content": contents})
                else:
                    contents.append(part)
        return steps

    # --- in ---

    def _read(self, wire: Sequence[JSONObject], names: dict[str, str]) -> list[Message]:
        messages: list[Message] = []
        run: list[JSONObject] = []  # steps of the model that are one message
        for number, step in enumerate(wire):
            where, kind = f"input[{number}]", string(step, "type") or ""
            if kind not in (INPUT, RESULT):
                if not MODEL_STEPS.fullmatch(kind):
                    raise HistoryError(f"{where}.type", f"unknown step {kind!r}")
                run.append(step)
                continue
            self._close(run, messages, f"input[{number - 1}]")
            blocks = [self._result(step, names, where)] if kind == RESULT else self._input(step, names, where)
            for block in blocks:
                speaker = Role.TOOL if isinstance(block, ToolResult) else Role.USER
                joins = kind == RESULT or block is not blocks[0]
                if joins and messages and messages[-1].role is speaker:
                    messages[-1].content.append(block)
                else:
                    messages.append(Message(speaker, [block]))
        self._close(run, messages, f"input[{len(wire) - 1}]")
        return messages

    def _close(self, run: list[JSONObject], messages: list[Message], where: str) -> None:
        """Make one message of the model's steps in `run`, and clear it."""
        answer = Accumulator(keep_ids=True)
        reader = StepReader(answer, self.provider.maker, self.make_id)
        try:
            for step in run:
                for part in _split(step):
                    opened = reader.open(part, [])
                    if isinstance(opened, CallInProgress):
                        opened.settle()
                        opened.call.finish()
                    elif isinstance(opened, StepInProgress):
                        opened.settle()
        except MalformedJSONError as error:
            raise HistoryError(where, str(error)) from None
        run.clear()
        content = answer.response().content
        if content:
            messages.append(Message(Role.ASSISTANT, content))

    def _input(self, step: JSONObject, names: dict[str, str], where: str) -> list[Block]:
        """Read what the user said. The results of calls may be among it."""
        blocks: list[Block] = []
        for position, content in enumerate(_contents(step.get("content"), where, "content")):
            place = f"{where}.content[{position}]"
            result = string(content, "type") == RESULT
            blocks.append(self._result(content, names, place) if result else self._content(content, place))
        return blocks

    def _content(self, content: JSONObject, where: str) -> Text | Image | File | ProviderBlock:
        kind = string(content, "type")
        if kind == "text":
            return Text(string(content, "text") or "")
        if kind not in MEDIA:
            raise HistoryError(f"{where}.type", f"unknown content {kind!r}")
        file = StepReader(Accumulator(), self.provider.maker, self.make_id).file(content)
        return file or ProviderBlock(self.provider.maker, {"type": INPUT, "content": [content]})

    def _result(self, step: JSONObject, names: dict[str, str], where: str) -> ToolResult:
        call_id, result = string(step, "call_id") or "", step.get("result")
        names[call_id] = string(step, "name") or names.get(call_id) or UNKNOWN_TOOL
        content: str | list[Text | Image | File]
        if type(result) is list:
            content = []
            for position, part in enumerate(_contents(result, where, "result")):
                block = self._content(part, f"{where}.result[{position}]")
                if isinstance(block, ProviderBlock):
                    raise HistoryError(f"{where}.result[{position}]", "has neither bytes nor a URL")
                content.append(block)
        else:
            content = result if type(result) is str else "" if result is None else arguments_text(result)
        return ToolResult(call_id, content, step.get("is_error") is True)


def _contents(value: JSON, where: str, member: str) -> list[JSONObject]:
    """Return contents, of which one may be a text. Raises `HistoryError` for any other value."""
    if type(value) is str:
        return [{"type": "text", "text": value}]
    try:
        return [without_nulls(content) for content in required_objects(value, member)]
    except MalformedJSONError as error:
        raise HistoryError(where, str(error)) from None


def _split(step: JSONObject) -> list[JSONObject]:
    """Return an output as one output for each of its contents: adjacent texts of a history are separate blocks."""
    contents = step.get("content")
    if string(step, "type") != OUTPUT or type(contents) is not list or len(contents) < 2:
        return [step]
    return [{**step, "content": [content]} for content in contents]
