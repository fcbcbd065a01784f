"""The fast path of a stream: reads events that match the machine's delta template.

Nearly all events of a stream are of this kind. On the usual path, the SSE parser and the stream machine each process an
event. The fast path compares the bytes of the whole event once. There are two ways:

- `read` reads chunks of the chunked transfer coding that each hold one event, or events that are each cut across two
  chunks. The connection calls it in place of the chunk decoder. Most servers send the first form, some proxies the
  second. It saves a fifth of the instructions from socket to callback (`benchmarks/instructions.py`), and more if one
  read returns several chunks, as under load.
- `read_events` reads body bytes, however they were framed: several events in a chunk, an event that is cut across
  chunks or reads, or a body without chunks. The connection calls it for a body that ends with the connection; else the
  reader of the body does. If the bytes end inside an event, it keeps the event's beginning, and joins it with the next
  bytes once.

Combines the size line and end of a chunk (`transport/chunked.py`), the framing of a server-sent event
(`transport/sse.py`), and the bytes that two deltas have in common (`providers/wire/delta_template.py`). The usual path
reads every event that does not match byte for byte, and everything while the SSE parser holds buffered bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from ...providers.catalog.dialect import DeltaTarget, StreamMachine
from ...providers.wire.delta_template import LARGEST_DELTA, Match, Template, shared_bytes
from ...transport.chunked import CHUNK_END, SIZES, size_line_length
from ...transport.sse import ServerSentEvent, usual_framing
from ...transport.websocket import WHOLE_TEXT

if TYPE_CHECKING:
    from .body import Body

size_of: Callable[[bytes], int | None] = SIZES.get


class FastReceiver(Protocol):
    """Receives the events of a fast path."""

    def deliver_matches(self, target: DeltaTarget, matches: Iterable[Match]) -> None:
        """Deliver the events of deltas that matched, none of them terminal.

        target: makes the event of each delta. The receiver calls it after it has delivered the previous event, and not
            at all after the call has ended.
        """


class FastPath:
    """The fast path of one stream.

    one_event: the latest bytes of the body, which `read_events` has read or `follow` was called with, were one event.
    cut: the events that `read` gets are each cut across two chunks.
    """

    __slots__ = (
        "_alone",
        "_beginning",
        "_body",
        "_chunk_end",
        "_closing",
        "_largest_beginning",
        "_line",
        "_line_inside",
        "_machine",
        "_receiver",
        "_start",
        "_template",
        "cut",
        "one_event",
    )

    def __init__(self, machine: StreamMachine, body: Body, max_event_bytes: int = LARGEST_DELTA) -> None:
        self._machine = machine
        self._body = body
        self._beginning = b""  # the beginning of an incomplete event; `body` has not counted it
        self._largest_beginning = min(max_event_bytes, LARGEST_DELTA)
        self._template: Template | None = None  # the machine's template, while its framing is known
        self._closing = b""  # the bytes after an event's data
        self._start = b""  # the template's first bytes, behind those before an event's data
        self._chunk_end = b""  # its last bytes, before those up to the end of a chunk
        self._line = 0  # bytes of the latest size line; the next size line mostly has the same length
        self._line_inside = 0  # the same, for the size line inside an event that is cut across two chunks
        self._alone = True  # the latest bytes were at most one event, so it is tried first whether the next ones are
        self.one_event: bool = False
        self.cut: bool = False

    _receiver: FastReceiver
    """Receives the events. Set by `follow`."""

    def follow(self, events: Sequence[ServerSentEvent], wire: bytes, receiver: FastReceiver) -> FastPath | None:
        """Find the framing of the machine's template. Return this object if the framing is known; else None.

        events: the server-sent events parsed from `wire`.
        wire: the latest bytes of the body.
        receiver: receives the events that this object finds.
        """
        template = self._machine.template
        if template is None or template is not self._template:
            framing = usual_framing(*events[-1], wire) if template is not None and events else None
            if template is None or framing is None:
                self._template = None
                return None
            opening, self._closing = framing
            self._template, self._start = template, opening + template.start
            self._chunk_end = shared_bytes(template.end + self._closing + CHUNK_END, template.shared)
        self._receiver, self.one_event = receiver, len(events) == 1
        return self

    def read(self, data: bytes) -> int:
        """Read the chunks at the start of `data` as long as they match. Return the number of bytes read.

        data: received bytes that begin with a chunk's size line.
        """
        template, body = self._template, self._body
        if template is None:
            return 0
        if self.cut:
            return self._read_cut(template, data)
        before, after = self._start, self._chunk_end
        bytes_left, line = body.bytes_left, self._line
        matches: list[Match] = []
        position, length = 0, len(data)
        if length > bytes_left:
            return 0
        while position < length:
            start = position + line
            chunk_size = size_of(data[position:start])
            if not chunk_size:
                self._line = line = size_line_length(data, position)
                start = position + line
                chunk_size = size_of(data[position:start])
                if not chunk_size:
                    break
            end = start + chunk_size + 2  # the framing holds the chunk's end
            match = template.match(data[start:end], before, after) if end <= length else None
            if not match:
                break
            matches.append(match)
            bytes_left -= chunk_size
            position = end
        if matches:
            body.bytes_left = bytes_left
            self._receiver.deliver_matches(self._machine.target, matches)
        return position

    def _read_cut(self, template: Template, data: bytes) -> int:
        """Read the events at the start of `data`, each in two chunks, as long as they match, as `read` does."""
        before, after = self._start, self._chunk_end
        line, line_inside, read = self._line, self._line_inside, 0
        matches: list[Match] = []
        position, length = 0, len(data)
        if length > self._body.bytes_left:
            return 0
        while position < length:
            start = position + line
            first = size_of(data[position:start])
            if not first:
                self._line = line = size_line_length(data, position)
                start = position + line
                first = size_of(data[position:start])
                if not first:
                    break
            middle = start + first
            rest = middle + 2 + line_inside
            second = size_of(data[middle + 2 : rest])
            if not second:
                self._line_inside = line_inside = size_line_length(data, middle + 2)
                rest = middle + 2 + line_inside
                second = size_of(data[middle + 2 : rest])
                if not second:
                    break
            end = rest + second + 2
            if end > length or data[middle] != 13 or data[middle + 1] != 10:
                break
            match = template.match(data[start:middle] + data[rest:end], before, after)
            if not match:
                break
            matches.append(match)
            read += first + second
            position = end
        if matches:
            self._body.bytes_left -= read
            self._receiver.deliver_matches(self._machine.target, matches)
        return position

    def read_frames(self, data: bytes) -> int:
        """Read the WebSocket frames at the start of `data`, each of them one event, as long as they match. Return the
        number of bytes read."""
        template, body = self._template, self._body
        if template is None or template is not self._machine.template or len(data) > body.bytes_left:
            return 0
        before, after = template.start, template.end
        matches: list[Match] = []
        position, length = 0, len(data)
        while length - position > 4 and data[position] == WHOLE_TEXT:
            size, start = data[position + 1], position + 2
            if size == 126:
                size, start = data[start] << 8 | data[start + 1], position + 4
            end = start + size
            match = template.match(data[start:end], before, after) if end <= length and size != 127 else None
            if not match:
                break
            matches.append(match)
            position = end
        if matches:
            body.bytes_left -= position
            self._receiver.deliver_matches(self._machine.target, matches)
        return position

    def read_events(self, data: bytes) -> int:
        """Read the events at the start of `data` as long as they match. Return the number of bytes read.

        Keeps the beginning of an event at the end of `data`, which then counts as read. If the event that continues it
        does not match, 0 is returned, and `take_beginning` returns the bytes before `data`.

        data: bytes of the body that begin with an event, or that continue the beginning which the last call kept.
        """
        template, closing, body, beginning = self._template, self._closing, self._body, self._beginning
        if template is None or template is not self._machine.template:
            return 0
        if beginning:
            data = beginning + data
        if len(data) > body.bytes_left:
            return 0
        if self._alone:
            # To search for the closing takes longer than to compare the whole event.
            event = data.removesuffix(closing)
            match = template.match(event, self._start, template.end) if len(event) != len(data) else None
            if match:
                self._beginning, self.one_event = b"", not beginning
                body.bytes_left -= len(data)
                self._receiver.deliver_matches(self._machine.target, (match,))
                return len(data) - len(beginning)
        return self._read_several(template, data)

    def _read_several(self, template: Template, data: bytes) -> int:
        """Read any number of events, as `read_events` does. `data`: begins with the beginning that was kept."""
        beginning, closing, before, after = self._beginning, self._closing, self._start, template.end
        matches: list[Match] = []
        position = 0
        pieces = data.split(closing)
        rest = pieces.pop()
        for piece in pieces:
            match = template.match(piece, before, after)
            if not match:
                rest = b""
                break
            matches.append(match)
            position += len(piece) + len(closing)
        if not matches and (beginning or not rest):
            return 0  # a beginning is joined once only, so that an event in many pieces takes linear time
        if rest and not self._may_keep(template, rest):
            rest = b""
        self._alone = len(matches) < 2
        self._beginning, self.one_event = rest, len(matches) == 1 and not beginning and not rest
        if matches:
            self._body.bytes_left -= position
            self._receiver.deliver_matches(self._machine.target, matches)
        return position + len(rest) - len(beginning)

    @property
    def beginning_bytes(self) -> int:
        """The size of the beginning of an event that is kept."""
        return len(self._beginning)

    def take_beginning(self) -> bytes:
        """Return the beginning of an event that was kept, and keep it no longer."""
        beginning, self._beginning = self._beginning, b""
        return beginning

    def _may_keep(self, template: Template, rest: bytes) -> bool:
        """Return whether `rest` is the beginning of an event in the usual form, up to a place in its data.

        The SSE parser gets every other beginning: it may contain an event, because a CR alone ends a line as well.
        """
        opening = self._start[: len(self._start) - len(template.start)]
        if len(rest) > self._largest_beginning:
            return False
        data = rest.removeprefix(opening)
        if len(data) == len(rest):
            return opening.startswith(rest)
        return 10 not in data and 13 not in data
