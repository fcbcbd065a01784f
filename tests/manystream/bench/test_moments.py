"""When the bytes of a call were sent and received, as its socket notes it."""

import socket
import sys
import time

import pytest
import trio

from manystream.bench import moments
from manystream.bench.histogram import percentile
from manystream.bench.moments import CallRecord, NotingSocket, Wire
from tests.manystream.bench.test_figures import Call, measured, text

# Sockets that note their moments.


async def connected(wire: Wire) -> tuple[NotingSocket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        sock = await wire.connect("127.0.0.1", server.getsockname()[1])
        assert isinstance(sock, NotingSocket)
        sock.setblocking(False)
        return sock, server.accept()[0]


async def test_a_socket_notes_when_it_sent_and_when_bytes_arrived() -> None:
    wire = Wire()
    sock, peer = await connected(wire)
    with sock, peer:
        before = time.perf_counter_ns()
        sock.send(b"question")
        peer.send(b"answer")
        await trio.lowlevel.wait_readable(sock)
        assert sock.recv(100) == b"answer"
        first = sock.first
        assert before <= sock.sent <= first == sock.arrived == wire.arrived <= time.perf_counter_ns()
        assert wire.socket is sock
        peer.send(b"more")
        await trio.lowlevel.wait_readable(sock)
        assert sock.recv(100) == b"more"
        assert sock.first == first < sock.arrived
        sock.send(b"again")
        assert sock.first == 0
    assert wire.all_retransmits() == 0


@pytest.mark.skipif(moments.STAMPS is None, reason="the kernel stamps no arrivals")
async def test_bytes_that_are_read_late_have_their_time_of_arrival() -> None:
    wire = Wire()
    sock, peer = await connected(wire)
    with sock, peer:
        for _ in range(2000):  # the kernel begins to stamp a while after a first socket has asked for it
            peer.send(b"answer")
            await trio.lowlevel.wait_readable(sock)
            read = time.perf_counter_ns()
            sock.recv(100)
            if wire.delays:
                break
        assert sock.arrived < read
        assert percentile(wire.delays, 0.5) is not None


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not report segments")
async def test_segments_that_one_read_returned_together_are_counted() -> None:
    wire = Wire()
    sock, peer = await connected(wire)
    with sock, peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found: list[int] = []
        for sends in (["a"], ["a", "b", "c"], ["abc"], ["a", "b"]):
            for data in sends:
                peer.send(data.encode())
            await trio.lowlevel.wait_readable(sock)
            assert sock.recv(100).decode() == "".join(sends)
            found.append(sock.more_segments())
        assert found == [0, 2, 0, 1]
        for _ in range(3):
            peer.send(b"a")
            await trio.lowlevel.wait_readable(sock)
            sock.recv(100)
        assert sock.more_segments() == 0, "one for each read"


async def test_without_stamps_the_moment_of_reading_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moments, "STAMPS", None)
    wire = Wire()
    sock, peer = await connected(wire)
    with sock, peer:
        peer.send(b"answer")
        await trio.lowlevel.wait_readable(sock)
        before = time.perf_counter_ns()
        assert sock.recv(100) == b"answer"
        assert before <= sock.arrived <= time.perf_counter_ns()
        peer.close()
        await trio.lowlevel.wait_readable(sock)
        assert sock.recv(100) == b""
    assert not wire.delays


MS = 1_000_000
"""Nanoseconds of a millisecond."""


@pytest.mark.parametrize(
    ("reads", "together", "merged", "merged_first"),
    [
        ([(20, 1, 1, 0.0), (20, 1, 1, 30.0), (20, 1, 1, 30.0)], 0, 0, 0),  # late, each alone
        ([(20, 3, 1, 30.0), (20, 2, 1, 30.0)], 0, 0, 0),  # the server sent them together
        ([(20, 1, 1, 0.0), (20, 5, 3, 19.0)], 2, 2, 0),  # in groups
        ([(20, 1, 1, 0.0), (20, 2, 5, 19.0)], 1, 1, 0),  # in pieces
        ([(20, 1, 1, 0.0), (20, 4, 4, 1.9)], 3, 0, 0),  # a burst
        ([(20, 1, 1, 0.0), (2, 3, 3, 0.0)], 2, 0, 0),  # a fast stream, within 2 ms of what was there before
        ([(20, 1, 1, 0.0), (2.1, 3, 3, 0.0)], 2, 2, 0),
        ([(20, 3, 3, 2.0)], 1, 0, 0),  # the head had a segment of its own
        ([(20, 3, 3, 2.1)], 2, 2, 1),
        ([(20, 1, 1, 0.0), (20, 2, 2, 19.0), (20, 1, 1, 0.0)], 1, 1, 0),
    ],
)
def test_contents_that_one_read_returned_together(
    reads: list[tuple[float, int, int, float]], together: int, merged: int, merged_first: int
) -> None:
    """Each read: milliseconds since the one before, contents, segments, milliseconds from the arrival to the read."""
    call, at = Call(measured()), 1000.0
    for gap, count, segments, late in reads:
        at += gap
        call.receive(at, *text(count), late=late, segments=segments)
    assert (call.wire.together, call.wire.merged, call.wire.merged_first) == (together, merged, merged_first)


@pytest.mark.parametrize(("contents", "apart", "together"), [(2, True, 0), (1, True, 0), (2, False, 1), (1, False, 0)])
def test_a_head_may_have_a_segment_of_its_own(contents: int, *, apart: bool, together: int) -> None:
    """Whether it has is known of calls whose head was read alone, or whose first read was not late."""
    figures, call = measured(), Call(measured())
    call.receive(1010, *text(0 if apart else 1))
    call.receive(1020, *text(1))
    known = call.wire
    call = Call(figures)
    call.wire = known
    call.record = CallRecord(figures, known, 998 * MS)
    call.receive(1020, *text(contents), late=30.0, segments=2)
    assert (known.together, known.merged, known.merged_first) == (together,) * 3
