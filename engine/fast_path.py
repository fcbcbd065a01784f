"""The fast path of a stream: chunks that each hold one event, which matches the machine's delta template.

Nearly all of a stream is such chunks. In the ordinary way, chunk decoder, SSE parser and machine look at each of them
in turn; here the bytes of a whole chunk are compared once. That takes a fifth off the instructions from socket to
callback (`benchmarks/instructions.py`), and more where one read brings several chunks, as under load.

Joins three things that others know: a chunk's size line and end (`transport/chunked.py`), the framing of a server-sent
event (`transport/sse.py`), and what two deltas have in common (`providers/delta_template.py`). Must not know HTTP, the
rules of server-sent events, or any dialect. Chunks that do not match, byte for byte, are left to the ordinary way; so
is everything while the chunk decoder or the SSE parser holds back bytes.
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
"""Delivers events that are made as they are asked for: the next one after the one before was delivered, and none after
the call has ended."""


UNUSED = DeltaTemplate("", b"", b"", b"", b"", None, shared=False)
"""In the place of a template until the first one is followed; `read` is not called before."""

size_of: Callable[[bytes], int | None] = SIZES.get


def _deliver_nothing(events: Iterable[Event]) -> None:
    """In the place of the callback until a template is followed."""


class FastPath:
    """The fast path of one stream. It is used by the connection (`read`) after `follow` has returned it."""

    __slots__ = ("_closing_size", "_deliver", "_framed", "_line", "_machine", "_opening_size", "_size", "_template")

    def __init__(self, machine: StreamMachine, size: AnswerSize) -> None:
        self._machine = machine
        self._size = size
        self._template: DeltaTemplate | None = None  # the machine's, while its framing is known
        self._framed = UNUSED  # the same between the framing's bytes
        self._opening_size = self._closing_size = 0  # bytes of the framing
        self._line = 0  # length of the latest size line: the next one is seldom longer or shorter
        self._deliver: DeliverEach = _deliver_nothing

    def follow(self, events: Sequence[ServerSentEvent], wire: bytes, deliver: DeliverEach) -> FastPath | None:
        """This, if it can read the chunks after `wire`, which held `events`; else None.

        It can while the machine has the template whose framing is known already; or if `wire` is the one event that
        the machine made its template of.
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
        """Read the chunks at the front of `data`, where a chunk begins, while they match. Returns how many bytes that
        were."""
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
