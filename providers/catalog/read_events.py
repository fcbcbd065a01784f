"""Which events of an answer that the server keeps were read: what to ask for after a cut, and what comes again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ..json.json_values import JSON, JSONObject, MalformedJSONError, dumps, loads, string
from ..model.provider_error import malformed, truncated
from ..wire.error_bodies import ERROR
from .dialect import BARE_LINES, StoredAnswers
from .json_stream import frames_in

ENTRY_BYTES, ID_BYTES = 40, 160
"""The memory of one event that is remembered: a number and its place in a list; and of its id, if it has one."""


@dataclass(slots=True, eq=False, repr=False)
class ReadEvents:
    """The events of one answer that were read, over all of its connections.

    A server sends the events after the one that was asked for. It may send events again: those without a position that
    follow the last one with a position, the first ones, or all. `new` leaves out what was read.

    Positions that are numbers count the events: none is left out, and all events have one. Those that are ids have no
    order, and some events may have none. So the events are remembered: an event without a position was read if it is
    the one that followed then, and an event with a known position must be the one that had it.
    """

    _stored: StoredAnswers
    answer_id: str | None = None  # the answer's id, once an event or a body has named it
    # the hash of each event; 0 for one that may be another when it comes again
    _entries: list[int] = field(default_factory=lambda: [], init=False)
    _first: int = field(default=0, init=False)  # the number of the event of the first entry
    # place in the answer → the id of the item there; "" if its events differ
    _items: dict[int, str] = field(default_factory=lambda: {}, init=False)
    # id → the index of the entry after its event
    _index: dict[str, int] = field(default_factory=lambda: {}, init=False)
    # the index of the event that follows the last one with an id, and what was read after it
    _next: int = field(default=0, init=False)
    _expected: int = field(default=0, init=False)  # the index of the event that follows the latest one
    # the id in the latest request; None for the one that creates the answer
    _asked_for: str | None = field(init=False)
    # the position of the last event that has one; None before the first
    after: int | str | None = field(default=None, init=False)
    is_found: bool = field(default=False, init=False)  # a read has found the answer
    advanced: bool = field(default=False, init=False)  # a new event was read since this was set to False
    # the latest event is an error report of the server, which says nothing of the state of the answer
    is_report: bool = field(default=False, init=False)
    size: int = field(default=0, init=False)  # the bytes of the events that were read

    def __post_init__(self) -> None:
        self._asked_for = self.answer_id

    @property
    def kept_bytes(self) -> int:
        """The bytes of memory that it takes to remember the events."""
        return ENTRY_BYTES * len(self._entries) + ID_BYTES * (len(self._index) + len(self._items))

    def connected_again(self) -> None:
        """Expect what follows the last event with a position, from a new connection."""
        self._asked_for = self.answer_id
        self._next = self._expected = self._index.get(self.after, 0) if isinstance(self.after, str) else 0

    def identify(self, value: JSONObject) -> None:
        """Read the id of the answer from an event or a body. Raises `ProviderError` for another answer's."""
        found = self._stored.answer_id(value)
        if self._asked_for is not None and found not in (None, self._asked_for):
            raise malformed(f"the server sent another answer, {found!r}")
        self.is_found = self.is_found or (found is not None and found == self._asked_for)
        self.answer_id = self.answer_id or found

    def new(self, events: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
        """Yield the events, as names and data, that were not read before. What is no JSON object is passed on.

        Raises `ProviderError` for an event of another answer than the one that was asked for, and for one that is not
        the next: events are missing, or others have come under their positions.
        """
        for name, data in events:
            if not data:
                continue
            value = _parsed(data)
            frames = frames_in(name, data) if value is None and name != BARE_LINES else None
            if frames:
                yield from self.new(frames)
                continue
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
        if type(position) is int or type(self.after) is int:
            return self._is_next_number(position, value, data, described=described)
        if position is None and (described or self.is_report):
            if described:
                self._expected = 0  # the events may come again from the first one on
            return True
        self._check_item(value)
        digest = 0 if described else self._digest(value, data)
        if type(position) is str:
            following = self._index.get(position)
            if following is not None:
                self._check_same(following - 1, digest)
                self._expected = following
                return False
            self.after, self._index[position] = position, len(self._entries) + (not described)
        else:
            for index in (self._expected, self._next):
                if index < len(self._entries) and self._entries[index] == digest:
                    self._next += index == self._next
                    self._expected = index + 1
                    return False
        self._record(() if described else (digest,))
        return True

    def _is_next_number(self, position: int | str | None, value: JSONObject, data: bytes, *, described: bool) -> bool:
        """Record an event of an answer whose events have numbers. Returns False if it was read before."""
        if type(self.after) is not int and not self._entries:
            self._first = position if type(position) is int and (self._asked_for is None or position == 1) else 0
        index = position - self._first if type(position) is int else -1
        if self.is_report and index != len(self._entries):
            return True
        self._check_item(value)
        digest = 0 if described or self.is_report else self._digest(value, data)
        if 0 <= index < len(self._entries):
            self._check_same(index, digest)
            return False
        if index != len(self._entries):
            what = "no number" if position is None else f"number {position}"
            raise truncated(f"the events of the answer are not in order: {what} follows {self.after}")
        self.after = position
        self._record((digest,))
        return True

    def _record(self, entries: tuple[int, ...]) -> None:
        self._entries += entries
        self._next = self._expected = len(self._entries)
        self.advanced = self.advanced or not self.is_report

    def _check_same(self, index: int, digest: int) -> None:
        """Check that an event which has the position of a known one is that one."""
        if digest and (index < 0 or self._entries[index] not in (0, digest)):
            raise truncated(
                "the server numbers the events of the answer again: another one has come at a known position"
            )

    def _check_item(self, value: JSONObject) -> None:
        """Check that a new connection goes on with the same item at a place."""
        place, id = value.get(self._stored.place), string(value, self._stored.item)
        if type(place) is int and id and self._items.setdefault(place, id) not in ("", id):
            if self._asked_for is not None:
                raise truncated(f"the server sent the events of another item, {id!r}")
            self._items[place] = ""

    def _digest(self, value: JSONObject, data: bytes) -> int:
        """Return the hash of an event without its position and its padding, which may differ when it comes again."""
        noise = (self._stored.position, self._stored.padding)
        try:
            return hash(dumps({name: member for name, member in value.items() if name not in noise})) or 1
        except TypeError:  # a number or a text that JSON cannot hold
            return hash(data) or 1


def _parsed(data: bytes) -> JSON:
    try:
        return loads(data)
    except MalformedJSONError:
        return None
