"""Parse server-sent events: bytes, cut anywhere, to `(event, data)`.

Sans-IO.

Lines end at CR, LF or CRLF *bytes*. The lines are split before anything is decoded, so U+2028, U+2029 and U+0085 inside
the data are not line ends. A CR ends its line at once, and the LF that may follow in a later chunk is dropped, so no
event is delayed until the next chunk. The rest of a chunk is kept in a list of fragments, which is joined when its line
ends: to feed one byte at a time takes linear time. (One growing buffer needed 8 MB for a line of 2 MB in a process with
a fragmented heap.)

The parser departs from the standard in three ways that servers make necessary:
- `end` returns an event that the end of the body left without its blank line. The standard drops it.
- Spaces may precede a field name that is followed by a colon.
- Lines that are no field are returned as events named `BARE_LINES`, in their place among the others, because servers
  leave out `data:` before errors and whole answers. So is an `error:` field. Any other unknown field is ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from .pieces import keep

ServerSentEvent: TypeAlias = tuple[str, bytes]
"""The event's name (empty if it has none) and its data."""

MAX_EVENT_BYTES = 32 * 1024 * 1024
"""The default cap on the size of one event, in bytes."""
BARE_LINES = "\n"
"""The name of an event that consists of lines that are no field. No field can give an event this name."""
BARE_BYTES = 64 * 1024
"""The maximum number of bytes of adjacent lines that are no field. The parser drops what exceeds it."""

_DATA = b"data: "
_BOM = b"\xef\xbb\xbf"
_LF, _CR = 10, 13  # integers: `in` finds them in bytes several times faster than bytes of length one

_LONGEST_KEPT = 64
"""The size of the longest `event:` line that a parser caches, in bytes. No dialect has such long names."""


CLOSINGS = (b"\n\n", b"\r\n\r\n")
"""The bytes that servers write after the data of an event with one data line."""


class SSEOverflowError(ValueError):
    """One event is larger than the cap. Do not call the parser's `feed` again."""


@dataclass(slots=True, eq=False, repr=False)
class SSEParser:
    """An incremental parser for one stream."""

    # the maximum number of buffered bytes of one incomplete event. Beyond it `feed` raises `SSEOverflowError`, except
    # in a call that completes other events: that call returns them.
    max_event_bytes: int = MAX_EVENT_BYTES
    # The current event's data: one item per chunk, its data lines joined. None if empty, as for the other lists:
    # between two events, thousands of parsers hold nothing.
    _data: list[bytes] | None = field(default=None, init=False)
    _data_bytes: int = field(default=0, init=False)  # the size of `_data`, counting one line end per item
    _event: bytes = field(default=b"", init=False)  # the current event's name
    _fragments: list[bytes] | None = field(default=None, init=False)  # the beginning of an incomplete line
    _pending: int = field(default=0, init=False)  # the size of `_fragments` and `_data`
    # The bytes before the latest event's data, and that event's name: most events have the name of the previous
    # one. Each parser has its own copy, so that one stream cannot slow down another.
    _opening: bytes = field(default=_DATA, init=False)
    _name: str = field(default="", init=False)
    # the stream's first bytes while they may be part of a BOM; then None
    _prefix: bytes | None = field(default=b"", init=False)
    at_boundary: bool = field(default=False, init=False)  # no byte is buffered, and the next byte begins an event
    # the last chunk ended in CR: an LF at the start of the next one belongs to it
    _swallow: bool = field(default=False, init=False)
    # adjacent lines that are no field, until a blank line or a field
    _bare: list[bytes] | None = field(default=None, init=False)
    _bare_bytes: int = field(default=0, init=False)  # their size, counting their line ends
    _bare_is_first: bool = field(default=False, init=False)  # they began before the event's data

    @property
    def pending(self) -> int:
        """The number of buffered bytes of an incomplete event."""
        return self._pending

    def feed(self, chunk: bytes) -> Sequence[ServerSentEvent]:
        """Parse the next bytes, cut anywhere. Returns the events that they complete, in order.

        Raises `SSEOverflowError` if the current event is larger than the cap.
        """
        if self.at_boundary:
            # Most servers send one event per segment. To detect this case first, with a few scans of the chunk, takes
            # less than half of the time of the general case (`benchmarks/decode.py`).
            rest = chunk.removeprefix(self._opening)
            if len(rest) != len(chunk):
                payload, _, blank_line = rest.partition(b"\n")
                if blank_line == b"\r\n":
                    payload, blank_line = payload.removesuffix(b"\r"), b"\n"
                if blank_line == b"\n" and _CR not in payload:
                    return [(self._name, payload)]
            if chunk.endswith(b"\n\n") and _CR not in chunk:
                events = self._common_events(chunk)
                if events:
                    return events
        return self._parse(chunk)

    def _parse(self, chunk: bytes) -> Sequence[ServerSentEvent]:
        """Parse bytes that may be cut anywhere: the general case."""
        if self._prefix is not None:
            chunk = self._without_bom(chunk)
        if self._swallow and chunk:
            self._swallow = False
            if chunk[0] == 0x0A:
                chunk = chunk[1:]
        if _CR in chunk:
            self._swallow = chunk[-1] == 0x0D
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = chunk.split(b"\n")
        rest = lines.pop()
        events: list[ServerSentEvent] = []
        if lines:
            data = self._data = self._data or []
            counted, size = len(data), self._data_bytes
            if self._fragments:
                self._end_line(lines, self._fragments, data)
                self._fragments = None
            for line in lines:
                if line[:6] == b"data: ":
                    data.append(line[6:])
                elif not line:
                    if self._bare is not None:
                        self._end_bare_lines(data, events)
                        counted = size = 0
                    elif data:
                        events.append(
                            (
                                self._event.decode("utf-8", "replace") if self._event else "",
                                data[0] if len(data) == 1 else b"\n".join(data),
                            )
                        )
                        data.clear()
                        counted = size = 0
                    self._event = b""
                elif line[:7] == b"event: ":
                    self._event = line[7:]
                else:
                    self._field(line, data)
            if len(data) > counted:
                # Join this chunk's lines: an event may have a million lines, and a list of them is larger than their
                # bytes.
                data[counted:] = [b"\n".join(data[counted:])]
                size += len(data[counted]) + 1
            self._pending = self._data_bytes = size
            self._data = data or None
        if rest:
            if self._fragments is None:
                self._fragments = []
            keep(self._fragments, rest)
            self._pending += len(rest)
        if self._pending > self.max_event_bytes and not events:
            raise SSEOverflowError(f"one event is larger than {self.max_event_bytes} bytes")
        open = rest or self._data or self._event or self._swallow or self._bare
        self.at_boundary = not open and self._prefix is None
        return events

    def _end_bare_lines(self, data: list[bytes], events: list[ServerSentEvent]) -> None:
        """Append the lines that are no field to `events`, before or after the event with the data around them, if there
        is any. Clears the data."""
        ended = [(self._event.decode("utf-8", "replace"), b"\n".join(data))] if data else []
        ended.insert(0 if self._bare_is_first else 1, (BARE_LINES, b"\n".join(self._bare or ())))
        events += ended
        data.clear()
        self._bare, self._bare_bytes = None, 0

    @staticmethod
    def _end_line(lines: list[bytes], fragments: list[bytes], data: list[bytes]) -> None:
        """Join the fragments and the first of `lines`, which completes their line. A `data:` line is added to `data`
        and removed from `lines`."""
        fragments.append(lines[0])
        if fragments[0].startswith(b"data: "):
            # Remove the field's name before the join: after it, a copy of a line of megabytes would be needed.
            fragments[0] = fragments[0][6:]
            data.append(b"".join(fragments))
            del lines[0]
        else:
            lines[0] = b"".join(fragments)

    def end(self) -> Sequence[ServerSentEvent]:
        """Parse the end of the body. Returns the event that has no blank line after it, if there is one."""
        self.at_boundary = False
        if self._prefix:
            self._fragments = [*(self._fragments or ()), self._prefix]
        self._prefix = None
        self._swallow = False
        return self.feed(b"\n\n") if self._fragments or self._data or self._bare else ()

    def _field(self, line: bytes, data: list[bytes]) -> None:
        """Process a line that is not a `data: ` or `event: ` field in the usual form. `data`: the event's data."""
        name, colon, value = line.partition(b":")
        if not name:
            return  # a comment: its arrival has restarted the idle timeout; it has no other effect
        if value[:1] == b" ":
            value = value[1:]
        if colon:
            name = name.lstrip(b" ")
        if name == b"data":
            data.append(value)
        elif name == b"event":
            self._event = value
        elif name in (b"id", b"retry") or not line.strip():
            return
        elif not (colon and name.translate(None, b"-_").isalnum()) or name.lower() == b"error":
            self._keep_bare(line, is_first=not data)

    def _keep_bare(self, line: bytes, *, is_first: bool) -> None:
        """Keep a line that is no field, or as much of it as the bound allows. `is_first`: no data came before it."""
        if self._bare is None:
            self._bare, self._bare_is_first = [], is_first
        room = BARE_BYTES - self._bare_bytes
        if room > 0:
            self._bare.append(line[:room])
            self._bare_bytes += len(self._bare[-1]) + 1

    def _without_bom(self, chunk: bytes) -> bytes:
        assert self._prefix is not None
        chunk = self._prefix + chunk
        if len(chunk) < len(_BOM) and _BOM.startswith(chunk):
            self._prefix = chunk
            return b""
        self._prefix = None
        return chunk.removeprefix(_BOM)

    def _common_events(self, chunk: bytes) -> list[ServerSentEvent]:
        """Parse a chunk of whole events in the common form; returns an empty list if any event has another form.

        The common form: no CR, at most one `event:` line, then one `data:` line.
        """
        events: list[ServerSentEvent] = []
        for lines in chunk[:-2].split(b"\n\n"):
            payload = lines.removeprefix(self._opening)
            if len(payload) == len(lines):
                opening, found, payload = lines.partition(_DATA)
                if not found or not self._learn_name(opening):
                    return []
            if _LF in payload:
                return []
            events.append((self._name, payload))
        return events

    def _learn_name(self, opening: bytes) -> bool:
        """Cache the bytes before a `data:` line and the name in them. Returns False unless they are an `event:` line
        or empty.
        """
        line = opening.removesuffix(b"\n")
        if opening and (len(line) == len(opening) or not line.startswith(b"event: ") or _LF in line):
            return False
        if len(opening) > _LONGEST_KEPT:
            return False
        self._opening, self._name = opening + _DATA, line[7:].decode("utf-8", "replace")
        return True


def usual_framing(name: str, payload: bytes, wire: bytes) -> tuple[bytes, bytes] | None:
    """Return the bytes before and after the data of the last event of `wire`, or None if it has an unusual form.

    The usual form: an `event:` line if the event has a name, one `data:` line, a blank line. If `wire` has only the end
    of the event, the bytes before its data are not known; then they are those of the usual form.

    name: the event's name.
    payload: the event's data.
    wire: bytes that end with the event, or with its end.
    """
    if not payload:
        return None  # the framing of an event without data does not apply to events with data
    opening = b"event: %b\ndata: " % name.encode() if name else b"data: "
    for closing in CLOSINGS:
        event = opening + payload + closing
        before = wire.removesuffix(event)
        if len(before) != len(wire):
            return (opening, closing) if not before or before.endswith(CLOSINGS) else None
        if event.endswith(wire) and len(wire) >= len(closing):
            return opening, closing
    return None
