"""A turn over the WebSocket that a conversation keeps: `response.create` with the whole input, or with what is new.

The server knows the latest answer and all before it (`Chain`), in the memory of the socket. A turn is sent as an
addition only if that is proven: the messages begin with those that were sent and the answer, value by value, every
other member of the body has the same bytes, and the answer's items are those that this dialect would send for it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ...catalog.dialect import StreamMachine, TurnError
from ...json.json_values import (
    JSON,
    JSONObject,
    MalformedJSONError,
    dumps,
    integer,
    loads,
    mapping,
    string,
)
from ...model.events import FinishReason
from ...model.message_rules import validate_messages
from ...model.messages import ASSISTANT, Message
from ...model.prefix_cache import CachedPrefix, Segment, Write, elements, serialised
from ...model.response import Response
from ...model.snapshot import Snapshot
from .message_writer import WriterState
from .stream import ResponsesStream

Mark: TypeAlias = tuple[str | None, str | None, str | None, str | None]
"""What identifies an item: its type, its role, the id of its call and its name."""

STREAM_END = b',"stream":true}'
"""The end of a streamed request's body. A turn has no such member."""

NOT_IN_A_TURN = frozenset({"input", "prompt", "previous_response_id", "conversation", "stream", "background"})
"""Members of `extra_body` with which a request is sent over HTTP."""

USUAL = b'{"type":"response.'
"""The beginning of nearly every event, and of no error."""

CREATE = b'{"type":"response.create",'

FINISHED = frozenset({FinishReason.STOP, FinishReason.TOOL_USE})
"""How an answer ends that the next one may continue."""

NEW, OPTIONS, MESSAGES, ANSWER = "new", "options", "messages", "answer"
"""Why a turn is sent whole: the socket knows no answer; another member was changed; so was a message; the answer is not
what would be sent of it."""


@dataclass(slots=True)
class Chain:
    """What the server knows after an answer.

    response_id: the answer's.
    shape: the body's members, without the input.
    snapshot: the messages that were sent, and the answer.
    sent: the number of messages before the answer.
    state: what the writer of the answer must know of them.
    items: the answer's items.
    warnings: about the messages before it.
    """

    response_id: str
    shape: bytes
    snapshot: Snapshot
    sent: int
    state: WriterState
    items: list[Mark]
    warnings: tuple[str, ...]


class ResponsesTurn:
    """One turn, as it is sent.

    why: the reason for which it is sent whole.
    warnings: about the messages of a turn that is not sent whole.
    """

    __slots__ = ("_chain", "_is_cut", "_new", "_sent", "_settled", "_shape", "_snapshot", "_state", "warnings", "why")

    def __init__(self, messages: Sequence[Message], body: JSONObject, write: Write[WriterState], chain: object) -> None:
        """Write what is new. body: the members, without the input. chain: what the server knows; None: nothing."""
        self._shape = kept_once(serialised(body))
        self._sent = len(messages)
        self._is_cut = bool(messages) and messages[-1].role is ASSISTANT  # its calls and those after are one run
        self._chain = chain if isinstance(chain, Chain) else None
        self._new: bytes | None = None
        self._snapshot: Snapshot | None = None
        self._state: WriterState | None = None
        self._settled: tuple[str, ...] = ()
        self.warnings: list[str] = []
        self.why: str = NEW if self._chain is None else self._continue(self._chain, messages, write)

    def _continue(self, chain: Chain, messages: Sequence[Message], write: Write[WriterState]) -> str:
        """Write what is new since an answer. Returns why that is not possible; empty if it is."""
        known, count = len(chain.snapshot), len(chain.items)
        if chain.shape != self._shape:
            return OPTIONS
        if len(messages) <= known or not chain.snapshot.matches(messages[:known]):
            return MESSAGES
        validate_messages(messages[known:], known)
        segment = write(messages[chain.sent :], chain.sent, chain.state)
        if segment is None or len(segment.items) <= count or [*map(mark, segment.items[:count])] != chain.items:
            return ANSWER
        self._new = elements(segment.items[count:])
        self._take(segment, chain.warnings, chain.snapshot.extended(messages[known:]))
        self.warnings += (*self._settled, *segment.unanswered)
        return ""

    def send_whole(
        self, messages: Sequence[Message], write: Write[WriterState], prefix: CachedPrefix[WriterState] | None
    ) -> None:
        """Take the messages of a turn that is sent whole. prefix: the first ones as the conversation's cache has
        them; None if it has none."""
        known = Snapshot() if prefix is None else prefix.snapshot
        segment = write(messages[len(known) :], len(known), None if prefix is None else prefix.state)
        if segment is not None:
            self._take(segment, () if prefix is None else prefix.warnings, known.extended(messages[len(known) :]))

    def _take(self, segment: Segment[WriterState], before: tuple[str, ...], snapshot: Snapshot | None) -> None:
        self._state, self._snapshot, self._settled = segment.state, snapshot, (*before, *segment.warnings)

    def message(self, body: Callable[[], bytes], chain: object) -> tuple[bytes, bool]:
        """Return the text that is sent, and whether it is only what is new.

        body: returns the body of the same request over HTTP.
        chain: what the server knows.
        """
        if self._new is not None and self._chain is not None and chain is self._chain:
            head = (CREATE, b'"previous_response_id":', dumps(self._chain.response_id), b",", self._shape[1:-1])
            return b"".join((*head, b',"input":[', self._new, b"]}")), True
        whole = body()
        end = -len(STREAM_END) if whole.endswith(STREAM_END) else -1
        return b"".join((CREATE, memoryview(whole)[1:end], b"}")), False

    def answered(self, machine: StreamMachine, response: Response) -> Chain | None:
        """Return what the server knows after an answer; None if the next turn cannot continue it."""
        if self._state is None or self._snapshot is None or response.id is None or self._is_cut:
            return None
        if response.finish_reason not in FINISHED or not isinstance(machine, ResponsesStream) or machine.is_steered:
            return None
        items = machine.output.marks()
        snapshot = self._snapshot.extended([response.to_message()])
        if items is None or snapshot is None:
            return None
        return Chain(response.id, self._shape, snapshot, self._sent, self._state, items, self._settled)

    def steer(self, machine: StreamMachine, text: str) -> bytes | None:
        """Return the message that adds a user's text to an answer under way; None if there is none."""
        return steer_message(machine, text)

    def error(self, text: bytes) -> TurnError | None:
        """Return the error with which the server refuses the turn; None if the text is another event."""
        return turn_error(text)


def steer_message(machine: StreamMachine, given: JSON) -> bytes | None:
    """Return the message that adds a user's input to an answer under way; None if there is none."""
    if not isinstance(machine, ResponsesStream) or machine.answer.id is None or machine.ended or machine.held:
        return None
    machine.steers += 1
    return dumps({"type": "response.steer", "previous_response_id": machine.answer.id, "input": given})


def turn_error(text: bytes) -> TurnError | None:
    """Return the error with which a server refuses a turn; None if the text is another event."""
    if text.startswith(USUAL):
        return None
    try:
        value = loads(text)
    except MalformedJSONError:
        return None
    if type(value) is not dict or string(value, "type") != "error":
        return None
    error = mapping(value, "error")
    found = (integer(each, name) for each in (value, error) for name in ("status", "status_code"))
    given = {**mapping(value, "headers"), **mapping(error, "headers")}
    headers = {name.lower(): text for name, text in given.items() if type(text) is str}
    return TurnError(next(filter(None, found), 0), headers, string(error, "code") or string(value, "code") or "")


@functools.lru_cache(maxsize=16)
def kept_once(shape: bytes) -> bytes:
    """Return equal bytes as one object for all conversations, without the unused end of the serializer's buffer."""
    return b"".join((shape, b""))


def mark(item: Mapping[str, JSON]) -> Mark:
    """Return what identifies an item."""
    kind, role, call_id, name = (item.get(member) for member in ("type", "role", "call_id", "name"))
    return (
        kind if type(kind) is str else None,
        role if type(role) is str else None,
        call_id if type(call_id) is str else None,
        name if type(name) is str else None,
    )
