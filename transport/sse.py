"""Server-sent events: bytes in, `(event, data)` out, cut anywhere.

Knows the WHATWG rules for lines and fields (HTML standard, "Server-sent events", 9.2.6). Must not know what the
data means: no JSON, no dialect. Sans-IO.

Lines end at CR, LF or CRLF *bytes*; nothing is decoded before the split, so U+2028, U+2029 and U+0085 inside the
data are no line ends. A CR ends its line at once and the LF that may follow in a later chunk is swallowed, so no
event waits for the chunk after it. What is left of a chunk is kept as a list of fragments that is joined when its
line ends: feeding one byte at a time costs linear time. (One buffer that grows would take 10 MB less for a line of
10 MB in a new process; in one whose heap has holes, it took 8 MB for a line of 2 MB.)

Three things go beyond the standard, each because servers need it: an event that the body's end left without its
blank line is handed over by `end` (the standard drops it); a field name that a colon follows may be preceded by
spaces; and lines that are no field at all are kept, bounded, in `stray`, because some servers report their errors
there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

ServerSentEvent: TypeAlias = "tuple[str, bytes]"
"""Event name (empty where there is none) and data."""

MAX_EVENT_BYTES = 32 * 1024 * 1024
STRAY_BYTES = 64 * 1024

_BOM = b"\xef\xbb\xbf"
_LF, _CR = 10, 13  # as numbers, which `in` finds in bytes several times faster than as bytes

_LONGEST_KEPT = 64
"""Bytes of an `event:` line that a parser remembers; no dialect has names as long."""


CLOSINGS = (b"\n\n", b"\r\n\r\n")
"""The bytes after the data of an event's only data line, as servers write them."""


class SSEOverflowError(ValueError):
    """One event is larger than the cap. The parser takes no more input."""


class SSEParser:
    """An incremental parser for one stream.

    max_event_bytes: the most that one event may hold before it ends. `feed` raises `SSEOverflowError` beyond it,
    but hands over first what was whole.
    at_boundary: nothing is held: the next byte begins an event.
    """

    __slots__ = (
        "_data",
        "_data_bytes",
        "_event",
        "_fragments",
        "_limit",
        "_name",
        "_opening",
        "_pending",
        "_prefix",
        "_stray",
        "_stray_size",
        "_swallow",
        "at_boundary",
    )

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._limit = max_event_bytes
        self._data: list[bytes] = []  # of the event that is being read: the data lines of each chunk, joined
        self._data_bytes = 0  # their size, with a line end each
        self._event = b""  # its name, as bytes
        self._fragments: list[bytes] = []  # the beginning of a line whose end has not come yet
        self._pending = 0  # bytes held in `_fragments` and `_data`
        # What stood before the latest event's `data:` line, and the event's name. Most events have the name of the one
        # before. Each parser has its own: what one stream sends must not cost another one anything.
        self._opening = b""
        self._name = ""
        self._prefix: bytes | None = b""  # the stream's first bytes, while they may still become a BOM; then None
        self.at_boundary: bool = False
        self._swallow = False  # the last chunk ended in CR: an LF that comes first now belongs to it
        self._stray: list[bytes] = []
        self._stray_size = 0

    @property
    def stray(self) -> bytes:
        """The lines that were no SSE field, joined with LF, at most `STRAY_BYTES` of them."""
        return b"\n".join(self._stray)

    @property
    def pending(self) -> int:
        """Bytes held of an event that has not ended."""
        return self._pending

    def feed(self, chunk: bytes) -> Sequence[ServerSentEvent]:
        """Take the next bytes; returns the events that they completed, in order."""
        if self.at_boundary:
            # Servers send one event per segment. Told apart first, and with no more than a few scans of the chunk,
            # that case takes less than half of the time of what follows (`benchmarks/decode.py`).
            opening, _, rest = chunk.partition(b"data: ")
            if opening == self._opening:
                payload = rest.removesuffix(b"\n\n")
                if len(payload) == len(rest):
                    payload = rest.removesuffix(b"\r\n\r\n")
                if len(payload) != len(rest) and _LF not in payload and _CR not in payload:
                    return [(self._name, payload)]
            if chunk.endswith(b"\n\n") and _CR not in chunk:
                events = self._common_events(chunk)
                if events:
                    return events
        return self._take(chunk)

    def _take(self, chunk: bytes) -> Sequence[ServerSentEvent]:
        """Take bytes that may be cut anywhere."""
        if self._prefix is not None:
            chunk = self._without_bom(chunk)
        if self._swallow and chunk:
            self._swallow = False
            if chunk[0] == 0x0A:
                chunk = chunk[1:]
        if b"\r" in chunk:
            self._swallow = chunk[-1] == 0x0D
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = chunk.split(b"\n")
        rest = lines.pop()
        events: list[ServerSentEvent] = []
        if lines:
            data = self._data
            counted, size = len(data), self._data_bytes
            if self._fragments:
                self._end_line(lines)
            for line in lines:
                if line[:6] == b"data: ":
                    data.append(line[6:])
                elif not line:
                    if data:
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
                    self._field(line)
            if len(data) > counted:
                # What came now, as one: an event may have a million lines, and a list of them is larger than they are.
                data[counted:] = [b"\n".join(data[counted:])]
                size += len(data[counted]) + 1
            self._pending = self._data_bytes = size
        if rest:
            self._fragments.append(rest)
            self._pending += len(rest)
        if self._pending > self._limit and not events:
            raise SSEOverflowError(f"one event is larger than {self._limit} bytes")
        self.at_boundary = not (rest or self._data or self._event or self._swallow) and self._prefix is None
        return events

    def _end_line(self, lines: list[bytes]) -> None:
        """The line that the fragments began ends with the first of `lines`: join it, once."""
        fragments = self._fragments
        fragments.append(lines[0])
        if fragments[0].startswith(b"data: "):
            # Without the field's name before the join, not after: a line may have megabytes, and a copy of them.
            fragments[0] = fragments[0][6:]
            self._data.append(b"".join(fragments))
            del lines[0]
        else:
            lines[0] = b"".join(fragments)
        fragments.clear()

    def end(self) -> Sequence[ServerSentEvent]:
        """The body has ended: the event that was left without its blank line, where there is one."""
        self.at_boundary = False
        if self._prefix:
            self._fragments.append(self._prefix)
        self._prefix = None
        self._swallow = False
        return self.feed(b"\n\n") if self._fragments or self._data else ()

    def _field(self, line: bytes) -> None:
        """A line that is neither of the two common fields in their common form."""
        name, colon, value = line.partition(b":")
        if not name:
            return  # a comment: it has restarted the idle clock by arriving, and does nothing else
        if value[:1] == b" ":
            value = value[1:]
        if colon:
            name = name.lstrip(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._event = value
        elif name not in (b"id", b"retry") and self._stray_size < STRAY_BYTES:
            kept = line[: STRAY_BYTES - self._stray_size]
            self._stray.append(kept)
            self._stray_size += len(kept) + 1

    def _without_bom(self, chunk: bytes) -> bytes:
        assert self._prefix is not None
        chunk = self._prefix + chunk
        if len(chunk) < len(_BOM) and _BOM.startswith(chunk):
            self._prefix = chunk
            return b""
        self._prefix = None
        return chunk.removeprefix(_BOM)

    def _common_events(self, chunk: bytes) -> list[ServerSentEvent]:
        """Whole events without CR, each of one `data:` line, some after an `event:` line; empty if any is not."""
        events: list[ServerSentEvent] = []
        for lines in chunk[:-2].split(b"\n\n"):
            opening, found, payload = lines.partition(b"data: ")
            if not found or _LF in payload:
                return []
            if opening != self._opening and not self._learn_name(opening):
                return []
            events.append((self._name, payload))
        return events

    def _learn_name(self, opening: bytes) -> bool:
        """Remember what stands before a `data:` line, if that is nothing or an `event:` line."""
        line = opening.removesuffix(b"\n")
        if opening and (len(line) == len(opening) or not line.startswith(b"event: ") or _LF in line):
            return False
        if len(opening) > _LONGEST_KEPT:
            return False
        self._opening, self._name = opening, line[7:].decode("utf-8", "replace")
        return True


def usual_framing(name: str, payload: bytes, wire: bytes) -> tuple[bytes, bytes] | None:
    """The bytes before and after the data of one event; None unless `wire` is that event, whole, in the form that most
    servers write: an `event:` line if it has a name, one `data:` line, a blank line."""
    if not payload:
        return None  # an event without data says nothing about the ones that have some
    opening, found, closing = wire.partition(payload)
    written = b"event: %b\ndata: " % name.encode() if name else b"data: "
    return (opening, closing) if found and opening == written and closing in CLOSINGS else None
