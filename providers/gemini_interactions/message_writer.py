"""Writes a conversation as the steps of `input`: what the user said, what the model did, and the results of its calls.

The rules are Gemini's (`..gemini.message_writer`): turns in order, all results of a turn's calls after it, and no call
without a result. Contents of one speaker that follow each other are one step. Calls have different ids. A call that the
server has answered itself (an agent's) has its result in the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..gemini.block_writer import BlockWriter
from ..gemini.message_writer import USER, Call, MessageWriter, Turn, WriterState
from ..json.json_values import JSON, JSONObject, string
from ..model.messages import Message, ToolCall
from ..model.prefix_cache import Segment
from ..wire.call_ids import TakenIds, unique_id
from .steps import INPUT, MEDIA, OUTPUT, RESULT

CONTENTS = frozenset({"text", *MEDIA})
"""Types of contents of a step. Any other type is one of steps."""


class StepWriter(MessageWriter):
    """Writes the steps of one request, or of a segment of it."""

    __slots__ = ("_taken",)

    def __init__(self, parts: BlockWriter, warnings: list[str]) -> None:
        super().__init__(parts, warnings, sign_calls=False)
        self._taken: TakenIds = {}

    def write(self, messages: Sequence[Message], first: int, state: WriterState | None) -> Segment[WriterState] | None:
        if state is not None:
            self._taken.update(dict.fromkeys(state.taken, 1))
        return super().write(messages, first, state)

    def _state_after(self, open_calls: Iterable[str]) -> WriterState | None:
        state = super()._state_after(open_calls)
        return None if state is None else WriterState(state.open_calls, frozenset(self._taken))

    def _named(self, block: ToolCall) -> ToolCall:
        call = super()._named(block)
        call_id = unique_id(call.id, self._taken)
        self._taken[call_id] = 1
        return call if call_id == call.id else replace(call, id=call_id)

    def _add(self, turn: Turn, part: JSONObject) -> None:
        call_id = string(part, "call_id") if part.get("type") == RESULT else None
        waiting = self._waiting.get(call_id or "")
        if waiting and (found := waiting.popleft()) is not None:
            found[1].result = {**part, "call_id": found[1].block.id}
        else:
            turn.parts.append(part)

    def _contents(self, turn: Turn) -> list[JSONObject]:
        """Return the turn's steps, then its calls' results."""
        steps: list[JSONObject] = []
        results: list[JSONObject] = []
        contents: list[JSON] | None = None  # of the last step
        for part in turn.parts:
            if isinstance(part, Call):
                if part.result is None:
                    continue
                results.append(part.result)
                part = part.part
            if string(part, "type") not in CONTENTS:
                contents = None
                steps.append(part)
            elif contents is None:
                contents = [part]
                steps.append({"type": INPUT if turn.role == USER else OUTPUT, "content": contents})
            else:
                contents.append(part)
        return steps + results
