"""Writes a conversation as Gemini's `contents`: turns in order, each call followed by its result.

The rules, all Gemini's own (documentation, "Function calling" and "Thought signatures"):
- Roles are `user` and `model`. Results of functions belong to the user.
- All calls of one turn are in one content, in order, and all their results in the next one, wherever the history has
  them. There must be as many results as calls. So a call without a result, and a result without a call, are left out
  with a warning.
- The first content is the user's. If it is the model's, `OPENING` is inserted before it, with a warning.
- There are no system messages in a conversation. One is an error: to leave it out would change the meaning.
- From Gemini 3 on, the first call of a turn needs a thought signature. A call of another provider has none, so the
  documented value that skips the check is sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..errors import InvalidRequestError
from ..json.json_values import JSON, JSONObject
from ..model.messages import ASSISTANT, SYSTEM, Message, Text, ToolCall, ToolResult
from ..model.prefix_cache import Segment
from ..wire.call_ids import field_of
from ..wire.omission_warnings import ELSEWHERE, OPENING, opening_added, unanswered_call, unasked_result
from ..wire.tool_names import named_call
from .block_writer import BlockWriter

USER = "user"
MODEL = "model"

SKIP_SIGNATURE = "skip_thought_signature_validator"
"""The documented value in place of the signature of a call that Gemini did not make."""


@dataclass(slots=True, eq=False, repr=False)
class Call:
    """One of the model's calls."""

    block: ToolCall  # the call
    part: JSONObject  # its wire form
    result: JSONObject | None = field(default=None, init=False)  # the wire form of its result; None until it is found
    # parts with files that the result cannot contain
    beside: Sequence[JSONObject] = field(default=(), init=False)


@dataclass(slots=True, eq=False, repr=False)
class Turn:
    """One content under construction."""

    role: str  # `user` or `model`
    parts: list[JSONObject | Call] = field(default_factory=lambda: [], init=False)  # its parts in order
    # whether a call has its result. Then the model's next message is another turn.
    answered: bool = field(default=False, init=False)


@dataclass(slots=True, frozen=True)
class WriterState:
    """What the writer of the next segment must know.

    open_calls: the ids of calls that have no result yet.
    taken: the ids of all calls that were sent; empty where ids need not be unique.
    """

    open_calls: tuple[str, ...]
    taken: frozenset[str] = frozenset()


class MessageWriter:
    """Writes the contents of one request, or of a segment of it."""

    __slots__ = ("_parts", "_sign_calls", "_turns", "_waiting", "_warnings")

    def __init__(self, parts: BlockWriter, warnings: list[str], *, sign_calls: bool) -> None:
        self._parts = parts
        self._warnings = warnings
        self._sign_calls = sign_calls
        self._turns: list[Turn] = []
        self._waiting: dict[str, deque[tuple[Turn, Call] | None]] = {}  # None: a call of an earlier segment

    def write(self, messages: Sequence[Message], first: int, state: WriterState | None) -> Segment[WriterState] | None:
        """Return the contents, or None if they cannot be written apart from earlier ones: `prefix_cache.Write`."""
        if state is not None:
            for id in state.open_calls:
                self._waiting.setdefault(id, deque()).append(None)
        for number, message in enumerate(messages, first):
            if message.role is SYSTEM:
                where = f"messages[{number}].role"
                raise InvalidRequestError(where, f"Gemini has no system message after the first turn: {ELSEWHERE}")
            turn: Turn | None = None
            for place, block in enumerate(message.content):
                if type(block) is ToolResult:
                    if not self._result(block, number, place):
                        return None
                    continue
                if turn is None:
                    turn = self._model_turn() if message.role is ASSISTANT else self._new_turn(USER)
                if type(block) is ToolCall:
                    self._call(turn, block, field_of(number, place))
                elif type(block) is Text and block.state is None and block.cache_control is None:
                    if block.text:
                        turn.parts.append(self._parts.text(block.text))
                else:
                    part = self._parts.content(block, field_of(number, place))
                    if part is not None:
                        self._add(turn, part)
        written = [(turn, items) for turn in self._turns if (items := self._contents(turn))]
        if not first and written and written[0][0].role == MODEL:
            opening = Turn(USER)
            opening.parts.append(self._parts.text(OPENING))
            written.insert(0, (opening, self._contents(opening)))
            self._warnings.append(opening_added("Gemini"))
        items = [item for _, items in written for item in items]
        open_calls = [id for id, calls in self._waiting.items() for _ in calls]
        # If nothing was written so far, the next message is the first content: it is written together with these.
        left = self._state_after(open_calls) if items or state is not None else None
        return Segment(items, left, self._warnings, [*map(unanswered_call, open_calls)])

    def _state_after(self, open_calls: Iterable[str]) -> WriterState | None:
        """Return the state for the next segment, or None if that one may continue a turn of the model in this one."""
        last = self._turns[-1] if self._turns else None
        may_go_on = last is not None and last.role == MODEL and not last.answered
        return None if may_go_on else WriterState(tuple(open_calls))

    def _new_turn(self, role: str) -> Turn:
        turn = Turn(role)
        self._turns.append(turn)
        return turn

    def _model_turn(self) -> Turn:
        """Return the turn of the model's next message. Adjacent messages are one turn until a result comes."""
        last = self._turns[-1] if self._turns else None
        return last if last is not None and last.role == MODEL and not last.answered else self._new_turn(MODEL)

    def _add(self, turn: Turn, part: JSONObject) -> None:
        """Add the wire form of a block that is no call and no result of the caller's to a turn."""
        turn.parts.append(part)

    def _call(self, turn: Turn, block: ToolCall, where: str) -> None:
        """Add a call to a turn. Unanswered calls of earlier turns with its id get no result."""
        written = self._named(block)
        call = Call(written, self._parts.call(written, where))
        turn.parts.append(call)
        waiting = self._waiting.setdefault(block.id, deque())
        while waiting and (waiting[0] is None or waiting[0][0] is not turn):
            waiting.popleft()
            self._warnings.append(unanswered_call(block.id))
        waiting.append((turn, call))

    def _named(self, block: ToolCall) -> ToolCall:
        """Return a call with a name, and an id, that Gemini accepts."""
        return named_call(block, "gemini", self._warnings)

    def _result(self, block: ToolResult, number: int, place: int) -> bool:
        """Pair a result with its call. Calls of one turn that share an id are answered in order.

        Returns False if the call is in an earlier segment.
        """
        waiting = self._waiting.get(block.tool_call_id)
        if not waiting:
            self._warnings.append(unasked_result(block.tool_call_id))
            return True
        found = waiting.popleft()
        if found is None:
            return False
        turn, call = found
        turn.answered = True
        where = field_of(number, place)
        call.result, call.beside = self._parts.result(block, call.block, where)
        return True

    def _contents(self, turn: Turn) -> list[JSONObject]:
        """Return the turn's content, then its calls' results, then the files that these cannot contain."""
        parts: list[JSON] = []
        results: list[JSON] = []
        beside: list[JSON] = []
        for part in turn.parts:
            if not isinstance(part, Call):
                parts.append(part)
            elif part.result is not None:
                if self._sign_calls and not results:
                    part.part.setdefault("thoughtSignature", SKIP_SIGNATURE)
                parts.append(part.part)
                results.append(part.result)
                beside += part.beside
        contents: list[JSONObject] = [{"role": turn.role, "parts": parts}] if parts else []
        if results:
            contents.append({"role": USER, "parts": results})
        if beside:
            contents.append({"role": USER, "parts": beside})
        return contents
