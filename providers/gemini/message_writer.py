"""A conversation → Gemini's `contents`: who spoke, in which order, with every call answered right after it.

The rules, all of them Gemini's own (documentation, "Function calling" and "Thought signatures"):
- Roles are `user` and `model`; results of functions are the user's.
- All calls of one turn stand in one content, in order, and all their results in the content right after it,
  wherever the history has them. As many results as calls: a call without a result, or a result without a call,
  cannot be sent and is left out, with a warning.
- The first content is the user's. Before the model's, one is put that says so, with a warning.
- From Gemini 3 on the first call of a turn needs a thought signature. A call that another provider made has none;
  the documented value that tells the server so takes its place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ..json_values import JSON, JSONObject
from ..messages import Message, Role, Text, ToolCall, ToolResult
from ..omission_warnings import OPENING, opening_added, unanswered_call, unasked_result
from ..prefix_cache import Segment
from ..tool_names import named_call
from .block_writer import BlockWriter

USER = "user"
MODEL = "model"

SKIP_SIGNATURE = "skip_thought_signature_validator"
"""The documented stand-in for the signature of a call that Gemini did not make itself."""


class _Call:
    """A call of the model's, and its result once that has been found, with what has to stand beside it."""

    __slots__ = ("beside", "block", "part", "result")

    def __init__(self, block: ToolCall, part: JSONObject) -> None:
        self.block = block
        self.part = part
        self.result: JSONObject | None = None
        self.beside: list[JSONObject] = []


class _Turn:
    """One content under construction. `calls`: those among its parts. `answered`: a result has come, so the model's
    next words are another turn."""

    __slots__ = ("answered", "calls", "parts", "role")

    def __init__(self, role: str) -> None:
        self.role = role
        self.parts: list[JSONObject | _Call] = []
        self.calls: list[_Call] = []
        self.answered = False


@dataclass(slots=True, frozen=True)
class WriterState:
    """What contents leave to those after them: the ids of the calls without results."""

    open_calls: tuple[str, ...]


class MessageWriter:
    """Writes the contents of one request, or of a segment of its messages."""

    __slots__ = ("_parts", "_sign_calls", "_turns", "_waiting", "_warnings")

    def __init__(self, parts: BlockWriter, warnings: list[str], *, sign_calls: bool) -> None:
        self._parts = parts
        self._warnings = warnings
        self._sign_calls = sign_calls
        self._turns: list[_Turn] = []
        self._waiting: dict[str, deque[tuple[_Turn, _Call] | None]] = {}  # None: a call of an earlier segment

    def write(self, messages: Sequence[Message], first: int, state: WriterState | None) -> Segment[WriterState] | None:
        """The contents; see `written.Write`."""
        if state is not None:
            for id in state.open_calls:
                self._waiting.setdefault(id, deque()).append(None)
        for number, message in enumerate(messages, first):
            turn: _Turn | None = None
            for place, block in enumerate(message.content):
                if type(block) is ToolResult:
                    if not self._result(block, number, place):
                        return None
                    continue
                if turn is None:
                    turn = self._model_turn() if message.role is Role.ASSISTANT else self._new_turn(USER)
                if type(block) is ToolCall:
                    self._call(turn, block, f"messages[{number}].content[{place}]")
                elif type(block) is Text and block.state is None and block.cache_control is None:
                    if block.text:
                        turn.parts.append({"text": block.text})
                else:
                    part = self._parts.content(block, f"messages[{number}].content[{place}]")
                    if part is not None:
                        turn.parts.append(part)
        items = [content for turn in self._turns for content in self._contents(turn)]
        if not first and items and items[0]["role"] == MODEL:
            items.insert(0, {"role": USER, "parts": [{"text": OPENING}]})
            self._warnings.append(opening_added("Gemini"))
        unanswered = [unanswered_call(id) for id in self._open_calls()]
        # Where nothing was written yet, what comes next is the first content: it is written in one with these.
        return Segment(items, self._left() if items or state is not None else None, self._warnings, unanswered)

    def _left(self) -> WriterState | None:
        """What to tell those after these; None where they might go on with a turn of the model's that is in these."""
        last = self._turns[-1] if self._turns else None
        may_go_on = last is not None and last.role == MODEL and not last.answered
        return None if may_go_on else WriterState(tuple(self._open_calls()))

    def _open_calls(self) -> list[str]:
        return [id for id, calls in self._waiting.items() for _ in calls]

    def _new_turn(self, role: str) -> _Turn:
        turn = _Turn(role)
        self._turns.append(turn)
        return turn

    def _model_turn(self) -> _Turn:
        """The turn that the model's next words belong to: messages in a row are one, until a result has come."""
        last = self._turns[-1] if self._turns else None
        return last if last is not None and last.role == MODEL and not last.answered else self._new_turn(MODEL)

    def _call(self, turn: _Turn, block: ToolCall, where: str) -> None:
        block = named_call(block, "gemini", self._warnings)
        call = _Call(block, self._parts.call(block, where))
        turn.parts.append(call)
        turn.calls.append(call)
        waiting = self._waiting.setdefault(block.id, deque())
        while waiting and (waiting[0] is None or waiting[0][0] is not turn):
            waiting.popleft()
            self._warnings.append(unanswered_call(block.id))
        waiting.append((turn, call))

    def _result(self, block: ToolResult, number: int, place: int) -> bool:
        """A result joins its call: calls of one turn that share an id are answered in order. False where that call is
        in an earlier segment."""
        waiting = self._waiting.get(block.tool_call_id)
        if not waiting:
            self._warnings.append(unasked_result(block.tool_call_id))
            return True
        found = waiting.popleft()
        if found is None:
            return False
        turn, call = found
        turn.answered = True
        where = f"messages[{number}].content[{place}]"
        call.result, call.beside = self._parts.result(block, call.block, where)
        return True

    def _contents(self, turn: _Turn) -> list[JSONObject]:
        """The turn's content, and the contents with its calls' results and what could not stand inside them."""
        calls = [call for call in turn.calls if call.result is not None]
        parts: list[JSON] = []
        for part in turn.parts:
            if not isinstance(part, _Call):
                parts.append(part)
            elif part.result is not None:
                parts.append(part.part)
        if not calls:
            return [{"role": turn.role, "parts": parts}] if parts else []
        if self._sign_calls:
            calls[0].part.setdefault("thoughtSignature", SKIP_SIGNATURE)
        results: list[JSON] = [call.result for call in calls]
        beside: list[JSON] = [part for call in calls for part in call.beside]
        said: list[JSONObject] = [{"role": turn.role, "parts": parts}, {"role": USER, "parts": results}]
        return [*said, {"role": USER, "parts": beside}] if beside else said
