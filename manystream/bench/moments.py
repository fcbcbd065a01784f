"""When the bytes of a call were sent and received: sockets that note it, and the record of one call.

Linux stamps each received segment, so the arrival of an event is known even if this process read it later. Elsewhere an
arrival is the time at which the socket was read. A callback's own time is never used: other calls may have run first.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

from .. import Completion, ErrorEvent, Event, TextDelta, ThinkingDelta, ToolCallDelta
from ..engine.request.credentials import is_loopback
from ..transport.dial import dial
from ..transport.errors import TransportError
from ..transport.proxy import choose_proxy
from ..transport.url import Origin
from .figures import Figures
from .histogram import Counts, new_counts

CONTENT = frozenset({TextDelta, ThinkingDelta, ToolCallDelta})
"""The events between which gaps are measured: those with content that a reader waits for."""

STAMPS: int | None = getattr(socket, "SO_TIMESTAMPNS", 35) if sys.platform == "linux" else None
"""The socket option with which the kernel reports the time at which it received the bytes (socket(7)); None: there is
none for TCP."""
_STAMP = struct.Struct("@ll")
_STAMP_SPACE = socket.CMSG_SPACE(_STAMP.size) if hasattr(socket, "CMSG_SPACE") else 0

_TCP_INFO_BYTES, _TOTAL_RETRANSMITS, _DATA_SEGMENTS = 156, 100, 152
"""The part of `struct tcp_info` that is read, and the places of `tcpi_total_retrans` and `tcpi_data_segs_in` in it
(linux/tcp.h)."""
_UNKNOWN_SEGMENTS = 1 << 30

LATE_MICROSECONDS = 2000
"""A time that is unknown by more than this is wrong."""


class Wire:
    """What the sockets of one engine have in common.

    socket: the socket that was read last; None before the first.
    arrived: when the latest bytes arrived, in nanoseconds of `time.perf_counter_ns`.
    delay: the time between the arrival of the latest bytes and their reading, in microseconds; 0 without stamps.
    delays: its histogram; empty without the kernel's stamps.
    together: the number of contents that one read returned together with the one before, and that came in another
        segment, so that only the time of the last one is known. What came in one segment was sent together.
    merged: the number of those whose times may be wrong by more than `LATE_MICROSECONDS`.
    merged_first: the number of those that were the second of their stream, and were read late.
    left: the segments of the latest read, after the first, that no content was counted for; None: not asked for yet.
    """

    def __init__(self, scheme: str = "http") -> None:
        self._scheme = scheme
        self.socket: NotingSocket | None = None
        self.arrived: int = 0
        self.delay: int = 0
        self.delays: Counts = new_counts()
        self.together: int = 0
        self.merged: int = 0
        self.merged_first: int = 0
        self.left: int | None = None
        self._heads_apart = 0  # responses whose head came in a segment of its own, less the others
        self._open: weakref.WeakSet[NotingSocket] = weakref.WeakSet()
        self._closed_retransmits = 0

    async def connect(self, host: str, port: int) -> socket.socket:
        """Open a socket that notes its times. The engine calls this as its `dial`."""
        origin = Origin(self._scheme, host, port)
        proxy = None if is_loopback(str(origin)) else choose_proxy(origin, os.environ)
        try:
            plain = await dial(Origin("http", host, port), proxy=proxy)
        except TransportError as error:
            # The engine puts the origin before the reason, so the reason alone is raised.
            raise _reason(error) from None
        assert isinstance(plain, socket.socket), "without TLS a dial returns the standard library's socket"
        noting = NotingSocket(plain.family, plain.type, plain.proto, plain.detach())
        noting.wire = self
        self._open.add(noting)
        _let_stamp(noting)
        return noting

    def read_first(self, sock: NotingSocket) -> None:
        """Note whether the head of a response came in a segment of its own. Called at the first content."""
        self.left = more = sock.more_segments()
        if sock.first < sock.arrived:
            self._heads_apart += 1
            return
        if self.delay <= LATE_MICROSECONDS:
            self._heads_apart += 1 if more else -1
        self.left -= self._heads_apart > 0

    def read_together(self, gap: int, mean: int, *, second: bool) -> None:
        """Count a content that the latest read returned after another one.

        gap: microseconds between the contents of this read and those before; 0 if these are the first ones.
        mean: the mean gap of the stream. If it is short, the last segment of a late read is never old.
        second: it is the second content of its stream.
        """
        if self.left is None and self.socket is not None:
            self.left = self.socket.more_segments()
        if self.left is not None and self.left > 0:
            self.left -= 1
            is_late = self.delay > LATE_MICROSECONDS
            self.together += 1
            self.merged += is_late if not gap or mean > LATE_MICROSECONDS else gap > LATE_MICROSECONDS
            self.merged_first += second and is_late

    def all_retransmits(self) -> int:
        """Return the number of segments that the kernel had to send again, on all sockets."""
        return self._closed_retransmits + sum(sock.retransmits() for sock in self._open)

    def closes(self, sock: NotingSocket) -> None:
        """Count the retransmits of a socket, which is being closed."""
        self._open.discard(sock)
        self._closed_retransmits += sock.retransmits()


@contextmanager
def stamping() -> Generator[None, None, None]:
    """Let the kernel stamp for the length of the block: to begin delays this process by milliseconds."""
    with socket.socket() as sock:
        _let_stamp(sock)
        yield


def _let_stamp(sock: socket.socket) -> None:
    if STAMPS is not None:
        sock.setsockopt(socket.SOL_SOCKET, STAMPS, 1)


def _reason(error: TransportError) -> OSError:
    """Return the error of the first address, or the whole error of another step."""
    cause: BaseException | None = error.__cause__
    first = cast("ExceptionGroup[Exception]", cause).exceptions[0] if isinstance(cause, ExceptionGroup) else cause
    return first if isinstance(first, OSError) else OSError(str(error))


class NotingSocket(socket.socket):
    """A socket that notes when it sent a request and when bytes of the response arrived, in nanoseconds of
    `time.perf_counter_ns`.

    wire: what it has in common with the other sockets.
    sent: when the latest bytes of the request were given to the kernel.
    first: when the response's first byte arrived; 0 before.
    arrived: when the latest bytes arrived.
    """

    __slots__ = ("_reads", "_segments", "arrived", "first", "sent", "wire")

    wire: Wire

    def __init__(self, family: int, type: int, proto: int, fileno: int) -> None:
        super().__init__(family, type, proto, fileno)
        self.sent: int = 0
        self.first: int = 0
        self.arrived: int = 0
        self._reads = self._segments = 0

    def send(self, data: bytes | memoryview, flags: int = 0) -> int:  # type: ignore[override]
        self.sent = time.perf_counter_ns()
        self.first = 0
        return super().send(data, flags)

    def recv(self, size: int, flags: int = 0) -> bytes:
        if STAMPS is None:
            data = super().recv(size, flags)
            stamps: list[tuple[int, int, bytes]] = []
        else:
            data, stamps, _, _ = self.recvmsg(size, _STAMP_SPACE, flags)
        arrived = time.perf_counter_ns()
        wire, delay = self.wire, 0
        if stamps:
            # The stamp is of another clock, which may be set. So its age is used, if it can be one.
            seconds, rest = _STAMP.unpack(stamps[0][2])
            age = time.time_ns() - seconds * 1_000_000_000 - rest
            if 0 <= age < 60_000_000_000:
                arrived -= age
                delay = age // 1000
                shift = delay.bit_length() - 11
                wire.delays[delay if shift <= 0 else (shift << 10) + (delay >> shift)] += 1
        if not self.first:
            self.first = arrived
        self.arrived = wire.arrived = arrived
        wire.delay, wire.socket, wire.left = delay, self, None
        self._reads += 1
        return data

    def more_segments(self) -> int:
        """Return how many segments arrived in addition to one for each read, since this was asked for last."""
        segments = self._number(_DATA_SEGMENTS)
        more = segments - self._segments - self._reads
        self._segments, self._reads = segments, 0
        return max(0, more) if segments or sys.platform != "linux" else _UNKNOWN_SEGMENTS

    def retransmits(self) -> int:
        """Return the number of segments that the kernel had to send again; 0 where it does not report it."""
        return self._number(_TOTAL_RETRANSMITS)

    def _number(self, place: int) -> int:
        """Return a number of `struct tcp_info`; 0 where the kernel does not report it."""
        if sys.platform != "linux":
            return 0
        try:
            info = self.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        except OSError:
            return 0
        return int.from_bytes(info[place : place + 4], sys.byteorder)

    def close(self) -> None:
        if self.fileno() >= 0:
            self.wire.closes(self)
        super().close()


@dataclass(slots=True, eq=False, repr=False)
class CallRecord:
    """The moments of one call, which are added to the figures of all calls.

    Times are nanoseconds of `time.perf_counter_ns`. In an open loop the spans of a call begin when it was due, else
    when its request was given to the kernel.
    """

    _figures: Figures  # the figures of all calls
    _wire: Wire  # where the arrival of the latest bytes is noted
    begun: int  # when the call was started
    _due: int | None = None  # when it was to begin; None in a closed loop
    _socket: NotingSocket | None = field(default=None, init=False)
    _first: int = field(default=0, init=False)
    _pieces: int = field(default=0, init=False)
    _gap: int = field(default=0, init=False)
    _longest_gap: int = field(default=0, init=False)
    _thinking: bool = field(default=False, init=False)
    last: int = field(default=0, init=False)  # when the latest content arrived; 0 before
    events: int = field(default=0, init=False)  # the number of events so far

    @property
    def origin(self) -> int:
        """When the spans of this call begin."""
        if self._due is not None:
            return self._due
        return self.begun if self._socket is None else self._socket.sent

    def on_event(self, event: Event) -> None:
        """Count an event, and measure its gap to the content before it."""
        figures = self._figures
        self.events += 1
        kind = type(event)
        if kind not in CONTENT:
            figures.events += kind is not ErrorEvent
            return
        figures.events += 1
        self._pieces += 1
        now = self._wire.arrived
        if self.last:
            gap = (now - self.last) // 1000
            shift = gap.bit_length() - 11
            figures.itl[gap if shift <= 0 else (shift << 10) + (gap >> shift)] += 1
            if now != self.last:
                self._gap = gap
                if gap > self._longest_gap:
                    self._longest_gap = gap
            else:
                mean = (now - self._first) // (1000 * self._pieces)
                self._wire.read_together(self._gap, mean, second=self._pieces == 2)
            if self._thinking and kind is not ThinkingDelta:
                self._thinking = False
                figures.count("ttfo", now - self.origin)
        else:
            self._first, sock = now, self._wire.socket
            self._socket = sock
            self._thinking = kind is ThinkingDelta
            origin = self.origin
            figures.count("ttft", now - origin)
            if sock is not None:
                figures.count("ttfb", sock.first - origin)
                self._wire.read_first(sock)
        self.last = now

    def on_completion(self, completion: Completion) -> None:
        """Count the call, which has ended."""
        if completion.error is not None:
            self._figures.failed(completion.error)
            return
        sock = self._socket = self._socket or self._wire.socket
        origin, arrived = self.origin, self._wire.arrived if sock is None else sock.arrived
        spans = {"e2el": arrived - origin}
        if sock is not None:
            spans["ttfb"] = sock.first - origin
            if not self.last:
                self._figures.count("ttfb", spans["ttfb"])
        tokens, reported = self._pieces, None
        if completion.response is not None:
            usage = completion.response.usage
            if usage.output_tokens is not None:
                tokens = reported = usage.output_tokens + (usage.thinking_tokens or 0)
        if self.last:
            spans["ttft"], spans["itl"] = self._first - origin, self._longest_gap * 1000
            if tokens > 1 and self._pieces > 1:
                spans["tpot"] = (self.last - self._first) // (tokens - 1)
            elif tokens > 1 or reported is None:
                self._figures.at_once += 1
        self._figures.succeeded(spans, arrived, self.events or 1, reported, self._pieces)
