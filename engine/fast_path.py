"""The fast path of a stream: reads chunks that each hold one event that matches the machine's delta template.

Nearly all chunks of a stream are of this kind. On the usual path, the chunk decoder, the SSE parser and the stream
machine each process a chunk. The fast path compares the bytes of the whole chunk once. That saves a fifth of the
instructions from socket to callback (`benchmarks/instructions.py`), and more if one read returns several chunks, as
under load.

Combines the size line and end of a chunk (`transport/chunked.py`), the framing of a server-sent event
(`transport/sse.py`), and the bytes that two deltas have in common (`providers/delta_template.py`). Must not know HTTP,
the rules of server-sent events, or any dialect. The usual path reads every chunk that does not match byte for byte, and
everything while the chunk decoder or the SSE parser holds buffered bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from ..providers.delta_template import DeltaTemplate
from ..providers.dialect import StreamMachine
from ..providers.events import Event
from ..transport.chunked import CHUNK_END, SIZES, size_line_length
from ..transport.sse import ServerSentEvent, usual_framing
from .answer_size import AnswerSize

DeliverEach: TypeAlias = "Callable[[Iterable[Event]], None]"
"""Delivers the events of a lazy iterable. It takes each event after it delivered the previous one, and takes none after
the call has ended."""


UNUSED = DeltaTemplate("", b"", b"", b"", b"", None, shared=False)
"""The placeholder for a template until `follow` sets the first one. `read` is not called before that."""

size_of: Callable[[bytes], int | None] = SIZES.get


def _deliver_nothing(events: Iterable[Event]) -> None:
    """Do nothing: the placeholder for the delivering function until `follow` sets it."""


class FastPath:
    """The fast path of one stream. The connection calls `read` after `follow` has returned this object."""

    __slots__ = ("_closing_size", "_deliver", "_framed", "_line", "_machine", "_opening_size", "_size", "_template")

    def __init__(self, machine: StreamMachine, size: AnswerSize) -> None:
        self._machine = machine
        self._size = size
        self._template: DeltaTemplate | None = None  # the machine's template, while its framing is known
        self._framed = UNUSED  # the template with the framing's bytes around it
        self._opening_size = self._closing_size = 0  # bytes of the framing
        self._line = 0  # bytes of the latest size line; the next size line mostly has the same length
        self._deliver: DeliverEach = _deliver_nothing

    def follow(self, events: Sequence[ServerSentEvent], wire: bytes, deliver: DeliverEach) -> FastPath | None:
        """Return this object if it can read the chunks that follow `wire`; else None.

        It can if the framing of the machine's template is known, or if `wire` is exactly the one event from which the
        machine made its template.

        events: the server-sent events parsed from `wire`.
        wire: the bytes of the latest chunk or chunks.
        deliver: the function that delivers the events that `read` finds.
        """
        template = self._machine.template
        if template is None or template is not self._template:
            framing = usual_framing(*events[0], wire) if template is not None and len(events) == 1 else None
            if template is None or framing is None:
                self._template = None
                return None
            opening, closing = framing[0], framing[1] + CHUNK_END
            self._template, self._framed = template, template.framed(opening, closing)
            self._opening_size, self._closing_size = len(opening), len(closing)
        self._deliver = deliver
        return self

    def read(self, data: bytes) -> int:
        """Read the chunks at the start of `data` as long as they match. Return the number of bytes read.

        data: received bytes that begin with a chunk's size line.
        """
        template, deliver, size = self._framed, self._deliver, self._size
        bytes_left, line = size.bytes_left, self._line
        texts: list[str] = []
        position, last, length = 0, 0, len(data)
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
            text = template.text_in(data[start:end]) if end <= length else None
            if not text:
                break
            texts.append(text)
            bytes_left -= chunk_size
            position, last = end, start
        if texts:
            size.bytes_left = bytes_left
            machine = self._machine
            if template.counts is not None:
                machine.latest_match = data[last + self._opening_size : position - self._closing_size]
            deliver(map(machine.accept, texts))
        return position
