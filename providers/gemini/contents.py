"""A conversation → Gemini's `contents`: who spoke, in which order, with every call answered right after it.

The rules, all of them Gemini's own (documentation, "Function calling" and "Thought signatures"):
- Roles are `user` and `model`; results of functions are the user's.
- All calls of one turn stand in one content, in order, and all their results in the content right after it,
  wherever the history has them. As many results as calls: a call without a result, or a result without a call,
  cannot be sent and is left out, with a warning.
- From Gemini 3 on the first call of a turn needs a thought signature. A call that another provider made has none;
  the documented value that tells the server so takes its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..errors import InvalidRequestError
from ..json_values import JSON, JSONObject
from ..messages import Message, Role, ToolCall, ToolResult
from .parts import PartWriter

USER = "user"
MODEL = "model"

SKIP_SIGNATURE = "skip_thought_signature_validator"
"""The documented stand-in for the signature of a call that Gemini did not make itself."""


@dataclass(slots=True)
class _Call:
    """A call of the model's, and its result once that has been found."""

    block: ToolCall
    part: JSONObject
    result: JSONObject | None = None
    beside: list[JSONObject] = field(default_factory=list[JSONObject])


@dataclass(slots=True)
class _Turn:
    """One content under construction."""

    role: str
    parts: list[JSONObject | _Call] = field(default_factory=list["JSONObject | _Call"])
    answered: bool = False  # a result has come: the model's next words are another turn


class ContentsWriter:
    """Writes the contents of one request."""

    __slots__ = ("_parts", "_sign_calls", "_turns", "_waiting", "_warnings")

    def __init__(self, parts: PartWriter, warnings: list[str], *, sign_calls: bool) -> None:
        self._parts = parts
        self._warnings = warnings
        self._sign_calls = sign_calls
        self._turns: list[_Turn] = []
        self._waiting: dict[str, tuple[_Turn, _Call]] = {}

    def write(self, messages: Sequence[Message]) -> list[JSON]:
        """The contents. Raises `InvalidRequestError` where nothing is left to send."""
        for number, message in enumerate(messages):
            turn: _Turn | None = None
            for place, block in enumerate(message.content):
                where = f"messages[{number}].content[{place}]"
                if isinstance(block, ToolResult):
                    self._result(block, where)
                    continue
                if turn is None:
                    turn = self._model_turn() if message.role is Role.ASSISTANT else self._new_turn(USER)
                if isinstance(block, ToolCall):
                    self._call(turn, block, where)
                    continue
                part = self._parts.content(block, where)
                if part is not None:
                    turn.parts.append(part)
        self._warnings.extend(map(_unpaired_call, self._waiting))
        contents: list[JSON] = [content for turn in self._turns for content in self._contents(turn)]
        if not contents:
            raise InvalidRequestError("messages", "hold nothing that can be sent to Gemini: no text, no call, no file")
        return contents

    def _new_turn(self, role: str) -> _Turn:
        turn = _Turn(role)
        self._turns.append(turn)
        return turn

    def _model_turn(self) -> _Turn:
        """The turn that the model's next words belong to: messages in a row are one, until a result has come."""
        last = self._turns[-1] if self._turns else None
        return last if last is not None and last.role == MODEL and not last.answered else self._new_turn(MODEL)

    def _call(self, turn: _Turn, block: ToolCall, where: str) -> None:
        call = _Call(block, self._parts.call(block, where))
        turn.parts.append(call)
        if block.id in self._waiting:
            self._warnings.append(_unpaired_call(block.id))
        self._waiting[block.id] = (turn, call)

    def _result(self, block: ToolResult, where: str) -> None:
        turn, call = self._waiting.pop(block.tool_call_id, (None, None))
        if turn is None or call is None:
            self._warnings.append(f"messages: result {block.tool_call_id!r} has no call and is not sent")
            return
        turn.answered = True
        call.result, call.beside = self._parts.result(block, call.block, where)

    def _contents(self, turn: _Turn) -> list[JSONObject]:
        """The turn's content, and the contents with its calls' results and what could not stand inside them."""
        if turn.role == USER:  # holds no calls
            said = [part for part in turn.parts if not isinstance(part, _Call)]
            return [_content(USER, said)] if said else []
        calls = [part for part in turn.parts if isinstance(part, _Call) and part.result is not None]
        parts = [part.part if isinstance(part, _Call) else part for part in turn.parts if _goes_out(part)]
        if calls and self._sign_calls:
            calls[0].part.setdefault("thoughtSignature", SKIP_SIGNATURE)
        results = [call.result for call in calls if call.result is not None]
        beside = [part for call in calls for part in call.beside]
        spoken = ((turn.role, parts), (USER, results), (USER, beside))
        return [_content(role, members) for role, members in spoken if members]


def _goes_out(part: JSONObject | _Call) -> bool:
    return not isinstance(part, _Call) or part.result is not None


def _content(role: str, parts: list[JSONObject]) -> JSONObject:
    return {"role": role, "parts": [*parts]}


def _unpaired_call(call_id: str) -> str:
    return f"messages: call {call_id!r} has no result and is not sent"
