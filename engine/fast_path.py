"""The fast path of a stream: reads events that match the machine's delta template.

Nearly all events of a stream are of this kind. On the usual path, the SSE parser and the stream machine each process an
event. The fast path compares the bytes of the whole event once. There are two ways:

- `read` reads chunks of the chunked transfer coding that each hold one event. The connection calls it in place of the
  chunk decoder. Most servers send this form. It saves a fifth of the instructions from socket to callback
  (`benchmarks/instructions.py`), and more if one read returns several chunks, as under load.
- `read_events` reads body bytes, however they were framed: several events in a chunk, an event that is cut across
  chunks, or a body without chunks. The connection calls it for a body that ends with the connection; else the reader
  of the body does.

Combines the size line and end of a chunk (`transport/chunked.py`), the framing of a server-sent event
(`transport/sse.py`), and the bytes that two deltas have in common (`providers/delta_template.py`). Must not know HTTP,
the rules of server-sent events, or any dialect. The usual path reads every event that does not match byte for byte, and
everything while the chunk decoder or the SSE parser holds buffered bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..providers.delta_template import Match, Template, shared_bytes
from ..providers.dialect import StreamMachine
from ..transport.chunked import CHUNK_END, SIZES, size_line_length
from ..transport.sse import ServerSentEvent, usual_framing
from .answer_size import AnswerSize
from .delivery import FastReceiver

size_of: Callable[[bytes], int | None] = SIZES.get


class FastPath:
    """The fast path of one stream.

    one_event: the latest bytes of the body, which `read_events` has read or `follow` was called with, were one event.
    """

    __slots__ = (
        "_chunk_end",
        "_closing",
        "_line",
        "_machine",
        "_receiver",
        "_size",
        "_start",
        "_template",
        "one_event",
    )

    def __init__(self, machine: StreamMachine, size: AnswerSize) -> None:
        self._machine = machine
        self._size = size
        self._template: Template | None = None  # the machine's template, while its framing is known
        self._closing = b""  # the bytes after an event's data
        self._start = b""  # the template's first bytes, behind those before an event's data
        self._chunk_end = b""  # its last bytes, before those up to the end of a chunk
        self._line = 0  # bytes of the latest size line; the next size line mostly has the same length
        self.one_event: bool = False

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
        template, size = self._template, self._size
        if template is None:
            return 0
        before, after = self._start, self._chunk_end
        bytes_left, line = size.bytes_left, self._line
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
            size.bytes_left = bytes_left
            self._receiver.deliver(map(self._machine.accept, matches))
        return position

    def read_events(self, data: bytes) -> int:
        """Read the events at the start of `data` as long as they match. Return the number of bytes read.

        data: bytes of the body that begin with an event.
        """
        template, closing, size = self._template, self._closing, self._size
        if template is None or template is not self._machine.template or len(data) > size.bytes_left:
            return 0
        before, after = self._start, template.end
        matches: list[Match] = []
        position = 0
        pieces = data.split(closing)
        pieces.pop()  # the beginning of an incomplete event
        for piece in pieces:
            match = template.match(piece, before, after)
            if not match:
                break
            matches.append(match)
            position += len(piece) + len(closing)
        self.one_event = len(matches) == 1
        if matches:
            size.bytes_left -= position
            self._receiver.deliver(map(self._machine.accept, matches))
        return position
