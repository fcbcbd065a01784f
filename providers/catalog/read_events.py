"""Which events of an answer that the server keeps were read: what to ask for after a cut, and what comes again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..json.json_values import JSON, JSONObject, MalformedJSONError, loads
from ..model.provider_error import malformed
from ..wire.error_bodies import ERROR
from .dialect import BARE_LINES, StoredAnswers

ENTRY_BYTES, ID_BYTES = 40, 160
"""The memory of one event that is remembered: a number and its place in a list; and of its id, if it has one."""


class ReadEvents:
    """The events of one answer that were read, over all of its connections.

    A server sends the events after the one that was asked for. It may send events again: those without a position that
    follow the last one with a position, the first ones, or all. `new` leaves out what was read.

    Positions that are numbers grow. Those that are ids have no order, and some events may have none. So the events are
    remembered: an event without a position was read if it is the one that followed then.

    answer_id: the answer's id, once an event or a body has named it.
    after: the position of the last event that has one; None before the first.
    advanced: a new event was read since this was set to False.
    is_report: the latest event is an error report of the server, which says nothing of the state of the answer.
    size: the bytes of the events that were read.
    """

    __slots__ = (
        "_asked_for", "_entries", "_expected", "_index", "_next", "_stored",
        "advanced", "after", "answer_id", "is_report", "size",
    )  # fmt: skip

    def __init__(self, stored: StoredAnswers, answer_id: str | None = None) -> None:
        self._stored = stored
        self._entries: list[str | int] = []  # the id, or the hash of the data, of each event without a number
        self._index: dict[str, int] = {}  # id → its index in the entries
        self._next = 0  # the index of the event that follows the last one with an id, and what was read after it
        self._expected = 0  # the index of the event that follows the latest one
        self._asked_for = answer_id  # the id in the latest request; None for the one that creates the answer
        self.answer_id: str | None = answer_id
        self.after: int | str | None = None
        self.advanced: bool = False
        self.is_report: bool = False
        self.size: int = 0

    @property
    def kept_bytes(self) -> int:
        """The bytes of memory that it takes to remember the events."""
        return ENTRY_BYTES * len(self._entries) + ID_BYTES * len(self._index)

    def connected_again(self) -> None:
        """Expect what follows the last event with a position, from a new connection."""
        self._asked_for = self.answer_id
        self._next = self._expected = self._index.get(self.after, -1) + 1 if isinstance(self.after, str) else 0

    def identify(self, value: JSONObject) -> None:
        """Read the id of the answer from an event or a body. Raises `ProviderError` for another answer's."""
        found = self._stored.answer_id(value)
        if self._asked_for is not None and found not in (None, self._asked_for):
            raise malformed(f"the server sent another answer, {found!r}")
        self.answer_id = self.answer_id or found

    def new(self, events: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
        """Yield the events, as names and data, that were not read before. What is no JSON object is passed on.

        Raises `ProviderError` for an event of another answer than the one that was asked for.
        """
        for name, data in events:
            if not data:
                continue
            value = _parsed(data)
            self.is_report = name in (ERROR, BARE_LINES)
            if type(value) is not dict:
                yield name, data
                continue
            described = self._stored.describes(value)
            self.identify(value)
            if not described and (value.get("error") or ERROR in (value.get("type"), value.get("event_type"))):
                self.is_report = True
            if self._is_new(value, data, described=described):
                self.size += len(data)
                yield name, data

    def _is_new(self, value: JSONObject, data: bytes, *, described: bool) -> bool:
        """Record an event. Returns False if it was read before."""
        position = self._stored.position_of(value)
        if type(position) is int:
            if type(self.after) is int and position <= self.after:
                return False
            self.after, self.advanced = position, self.advanced or not self.is_report
            return True
        if position is None and (described or self.is_report):
            return True
        if type(position) is str:
            known = self._index.get(position)
            if known is not None:
                self._expected = known + 1
                return False
            self._index[position], self.after = len(self._entries), position
            self._entries.append(position)
        else:
            digest = hash(data)
            for index in (self._expected, self._next):
                if index < len(self._entries) and self._entries[index] == digest:
                    self._next += index == self._next
                    self._expected = index + 1
                    return False
            self._entries.append(digest)
        self._next = self._expected = len(self._entries)
        self.advanced = self.advanced or not self.is_report
        return True


def _parsed(data: bytes) -> JSON:
    try:
        return loads(data)
    except MalformedJSONError:
        return None
