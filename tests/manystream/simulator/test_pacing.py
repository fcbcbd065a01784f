"""When the server sends what: each event of paced, stalled, slow and replayed responses, in virtual time."""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Callable
from dataclasses import asdict

import pytest

from manystream.simulator import Knobs, Replay, Settings, combine
from manystream.simulator import server as server_module
from manystream.simulator.inference import read_batch
from manystream.simulator.limit import read_limit
from manystream.simulator.program import Ending
from manystream.simulator.replay import Exchange
from manystream.simulator.service import ServiceSettings

from .raw_client import body_of, path_of, request_bytes
from .virtual_server import Client, VirtualServer

Open = Callable[..., VirtualServer]
STAMP = re.compile(rb'"content":"([0-9]{20}) ')


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Open:
    def open_server(directive: str = "events=4", *, batch: str = "", replay: Replay | None = None) -> VirtualServer:
        service = ServiceSettings(
            knobs=combine(Knobs(), directive), batch=read_batch(batch) if batch else None, replay=replay
        )
        return VirtualServer(monkeypatch, Settings(service=service))

    return open_server


def chat(directive: str = "", *, text: str = "Hello.", stream: bool = True) -> bytes:
    return request_bytes(path_of("openai-chat"), body_of("openai-chat", text, stream=stream), directive=directive)


def events_of(client: Client) -> list[tuple[int, int]]:
    """The milliseconds at which bytes came, and how many events came then."""
    return [(at, data.count(b"data: ")) for at, data in client.received]


def counts(world: VirtualServer) -> dict[str, float]:
    """The statistics that are not 0, without the processor's time."""
    return {name: value for name, value in asdict(world.server.statistics).items() if value and name != "cpu_seconds"}


def test_each_event_is_sent_when_it_is_due(opened: Open) -> None:
    world = opened()
    client = world.connect()
    client.send(chat("rate=8,delay=0.5"))
    world.run()
    assert events_of(client) == [(501, 1), (626, 1), (751, 1), (876, 1), (1001, 1), (1126, 1), (1251, 1)]
    assert client.closed_at == 1251
    assert counts(world) == {
        "started": 1, "completed": 1, "events": 7, "bytes_sent": len(client.data), "accepted": 1, "most_live": 1,
    }  # fmt: skip


def test_without_a_rate_all_events_are_sent_at_once(opened: Open) -> None:
    world = opened("events=200")
    client = world.connect()
    client.send(chat())
    world.run()
    assert [at for at, _ in events_of(client)] == [0] * len(client.received)
    assert sum(count for _, count in events_of(client)) == 203
    assert max(count for _, count in events_of(client)) == 64
    assert counts(world)["events"] == 203


def test_a_server_that_was_late_sends_all_that_is_due(opened: Open) -> None:
    world = opened()
    client = world.connect()
    client.send(chat("rate=8"))

    def sleep() -> None:
        world.now += 0.25

    world.at(0.15, sleep)
    world.run()
    assert events_of(client) == [(0, 1), (126, 1), (400, 2), (501, 1), (626, 1), (751, 1)]
    assert world.server.statistics.late_ms == 149.0


def test_a_delay_holds_an_unstreamed_answer_and_an_error(opened: Open) -> None:
    world = opened()
    first, second, third = world.connect(), world.connect(), world.connect()
    first.send(chat("delay=2", stream=False))
    second.send(chat("delay=1,fail=503"))
    third.send(chat("delay=3,drop=1"))
    world.run()
    assert (first.times, second.times, third.times) == ([2001], [1001], [])
    assert (first.closed_at, second.closed_at, third.closed_at) == (3001, 3001, 3001)
    assert {name: counts(world)[name] for name in ("started", "completed", "refused", "most_live")} == {
        "started": 2, "completed": 2, "refused": 1, "most_live": 2,
    }  # fmt: skip


def test_a_stalled_stream_pings_until_its_client_leaves(opened: Open) -> None:
    world = opened()
    client = world.connect()
    client.send(chat("stall=2,rate=8,ping=0.3"))
    world.at(1.2, client.close)
    world.run()
    assert [at for at, _ in client.received] == [0, 126, 427, 728, 1029]
    assert [data for _, data in client.received][2:] == [b"e\r\n: keep-alive\n\n\r\n"] * 3
    assert counts(world) == {
        "started": 1, "aborted": 1, "events": 2 + 3, "bytes_sent": len(client.data), "accepted": 1, "most_live": 1,
    }  # fmt: skip


def test_a_stalled_stream_without_pings_is_silent(opened: Open) -> None:
    world = opened()
    first, second = world.connect(), world.connect()
    first.send(chat("stall=2"))
    second.send(chat("stall=2,ping=1", stream=False))
    world.at(5.0, lambda: None)
    world.run()
    assert (first.times, second.times) == ([0], [0])
    assert (first.closed_at, second.closed_at) == (5000, 5000)
    assert counts(world)["live"] == 2


def test_a_reset_comes_after_a_pause(opened: Open) -> None:
    world = opened()
    client = world.connect()
    client.send(chat("reset=2"))
    world.run()
    assert (client.times, client.closed_at) == ([0], 51)
    linger = (socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert client.pipe.options == [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), linger]
    assert counts(world) == {
        "started": 1, "completed": 1, "events": 2, "bytes_sent": len(client.data), "accepted": 1, "most_live": 1,
    }  # fmt: skip
    assert server_module.RESET_NOW.ending is Ending.RESET_NOW


def test_a_cut_closes_without_a_reset(opened: Open) -> None:
    world = opened()
    client = world.connect()
    client.send(chat("cut=2,rate=8"))
    world.run()
    assert (client.times, client.closed_at) == ([0, 126], 126)
    assert client.pipe.options == [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]


def test_a_recording_is_sent_when_it_was_received(opened: Open) -> None:
    body = b'{"a":1}'
    recorded = Exchange("x", body, 200, (), 0.5, ((0.75, b"one"), (2.0, b"two")), 9.0, Ending.KEEP)
    broken = Exchange("y", body, 200, (), 0.5, ((0.75, b"one"),), 3.0, Ending.CLOSE)
    world = opened(replay=Replay([recorded, broken]))
    first, second = world.connect(), world.connect()
    first.send(request_bytes("/x", body) * 2)
    second.send(request_bytes("/y", body))
    world.run()
    assert [data.rpartition(b"\r\n\r\n")[2] or data for _, data in second.received[1:]] == [b"3\r\none\r\n"]
    assert (second.times, second.closed_at) == ([501, 751], 3001)
    assert first.times == [501, 751, 2001, 2502, 2752, 4002]
    assert counts(world)["completed"] == 3


def test_calls_in_a_batch_slow_each_other_down(opened: Open) -> None:
    world = opened("events=2", batch="step=0.125 per-call=0.0625 prefill=0.015625 kv=1000")
    first, second = world.connect(), world.connect()
    first.send(chat())
    world.at(0.3125, lambda: second.send(chat(text="Another one.")))
    world.run()
    # Alone, a step takes 187.5 ms, and two input tokens 31.25 ms. While there are two calls, a step takes 250 ms.
    assert first.times == [219, 407, 657, 907, 1157]
    assert second.times == [626, 876, 1126, 1376, 1563]


def test_a_call_that_does_not_fit_waits_inside(opened: Open) -> None:
    world = opened("events=3", batch="step=0.125 per-call=0 prefill=0 kv=6")
    clients = [world.connect() for _ in range(3)]
    queued: list[int] = []
    for number, client in enumerate(clients):
        client.send(chat(text=f"Say {number}", stream=number < 2))
    world.at(0.3, lambda: queued.append(world.server.statistics.queued))
    world.at(0.8, lambda: queued.append(world.server.statistics.queued))
    world.run()
    assert queued == [2, 1]
    assert clients[0].times == [126, 251, 376, 501, 626, 751]
    assert clients[1].times == [877, 1002, 1127, 1252, 1377, 1502]
    assert clients[2].times == [1878], "an unstreamed answer of three tokens takes three steps"
    assert world.server.statistics.queued == 0


def test_a_call_whose_client_leaves_makes_room(opened: Open) -> None:
    world = opened("events=3", batch="step=0.125 per-call=0 prefill=0 kv=6 queue=1")
    clients = [world.connect() for _ in range(3)]
    for number, client in enumerate(clients[:2]):
        client.send(chat(text=f"Say {number}"))
    world.at(0.15, lambda: clients[2].send(chat()))
    world.at(0.25, clients[0].close)
    world.run()
    assert clients[2].data.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert clients[2].times == [150]
    assert clients[1].times == [376, 501, 626, 751, 876, 1001]
    assert counts(world)["limited"] == 1


def test_delays_count_in_a_batch_too(opened: Open) -> None:
    world = opened("events=1", batch="step=0.125 per-call=0 prefill=0")
    client = world.connect()
    client.send(chat("delay=2"))
    world.run()
    assert client.times[0] == 2126


# --- connections ---


def test_requests_in_one_segment_are_answered_in_turn(opened: Open) -> None:
    world = opened()
    client = world.connect()
    client.send(chat("rate=8,events=1") + chat("rate=16,events=0") + chat("fail=500"))
    world.run()
    assert client.times == [0, 126, 251, 376, 376, 439, 502, 502]
    assert world.server.statistics.completed == 2


def test_a_request_in_pieces_is_answered_when_it_is_whole(opened: Open) -> None:
    world = opened()
    client = world.connect()
    data = chat("fail=500")
    client.send(data[:10])
    world.at(1.0, lambda: client.send(data[10:-1]))
    world.at(2.0, lambda: client.send(data[-1:]))
    world.run()
    assert client.times == [2000]


def test_bytes_that_are_no_request_end_the_connection(opened: Open) -> None:
    world = opened()
    client = world.connect()
    client.send(b"nonsense\r\n\r\n" + chat())
    world.run()
    assert client.data.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"200 OK" not in client.data
    assert counts(world) == {"refused": 1, "bytes_sent": len(client.data), "accepted": 1}


def test_100_continue_is_sent_once(opened: Open) -> None:
    world = opened()
    client = world.connect()
    data = chat("fail=500").replace(b"\r\n", b"\r\nexpect: 100-continue\r\n", 1)
    head = data.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    client.send(head)
    world.at(1.0, lambda: client.send(data[len(head) : -1]))
    world.at(2.0, lambda: client.send(data[-1:]))
    world.run()
    assert client.received[0] == (0, b"HTTP/1.1 100 Continue\r\n\r\n")
    assert client.times == [0, 2000]


def test_a_client_that_is_gone_before_continue_is_dropped(opened: Open) -> None:
    world = opened()
    client = world.connect()
    client.pipe.error = BrokenPipeError()
    client.send(b"POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 1\r\n\r\n")
    world.run()
    assert counts(world) == {"accepted": 1}


def test_a_client_that_leaves_is_counted_once(opened: Open) -> None:
    world = opened()
    first, second, third = world.connect(), world.connect(), world.connect()
    first.send(chat("rate=1"))
    second.send(chat("rate=1"))
    third.send(chat("fail=500,delay=9"))

    def break_line() -> None:
        second.pipe.error = BrokenPipeError()

    world.at(1.5, first.close)
    world.at(1.6, break_line)
    world.at(1.7, third.close)
    world.run()
    assert (first.times, second.times, second.closed_at) == ([0, 1001], [0, 1001], 2001)
    found = counts(world)
    assert {name: found.get(name, 0) for name in ("started", "aborted", "completed", "live", "connections")} == {
        "started": 2, "aborted": 2, "completed": 0, "live": 0, "connections": 0,
    }  # fmt: skip


def test_a_socket_that_takes_little_gets_the_rest_later(opened: Open) -> None:
    world = opened()
    whole, slow = world.connect(), world.connect()
    slow.pipe.shortest = 50
    for client in (whole, slow):
        client.send(chat("rate=800,events=20"))
    world.run()
    assert slow.data == whole.data
    assert counts(world)["bytes_sent"] == 2 * len(whole.data)
    assert (counts(world)["completed"], counts(world)["events"]) == (2, 46)


def test_a_full_socket_holds_its_stream_up(opened: Open) -> None:
    world = opened("events=4000")
    client = world.connect()
    client.reads = False
    client.send(chat() + chat("fail=500"))

    def read() -> None:
        client.reads = True

    world.at(5.0, read)
    world.run()
    assert {at for at, _ in client.received} == {5000}
    assert client.data.count(b"data: ") == 4003
    assert client.data.count(b"HTTP/1.1 ") == 2
    assert counts(world)["bytes_sent"] == len(client.data)


@pytest.mark.parametrize(("size", "closed"), [(1 << 20, False), ((1 << 20) + 1, True)])
def test_a_client_that_sends_too_much_is_closed(opened: Open, size: int, closed: bool) -> None:
    world = opened()
    client = world.connect()
    client.send(chat("rate=1,events=50"))

    def send() -> None:
        client.socket.setblocking(True)
        left = size
        while left:
            client.send(b"x" * min(left, 65_536))
            left -= min(left, 65_536)
            world.server.loop.serve(0)
        client.socket.setblocking(False)

    world.at(0.5, send)
    world.at(1.5, lambda: None)
    world.run()
    assert counts(world).get("aborted", 0) == int(closed)
    assert client.times[:2] == ([0] if closed else [0, 1001])


def test_connections_are_accepted_in_groups(opened: Open) -> None:
    world = opened()
    for _ in range(260):
        world.connect()
    world.run()
    assert world.accepted_at_once == [256, 4]
    assert world.server.statistics.accepted == 260
    assert world.server.statistics.connections == 0


def test_without_a_free_descriptor_the_server_pauses(opened: Open) -> None:
    world = opened()
    world.waiting.append(OSError(24, "Too many open files"))
    client = world.connect()
    client.send(chat("fail=500"))
    world.run()
    assert client.times == [100]
    assert client.data.startswith(b"HTTP/1.1 500 ")


def test_stamps_are_the_times_of_their_events(opened: Open) -> None:
    world = opened("events=3,stamp=1,rate=8")
    client = world.connect()
    client.send(chat())
    world.run()
    shown = [(at, data.partition(b'"content":"')[2][:21]) for at, data in client.received[1:4]]
    assert shown == [(126, b"00000000128126000000 "), (251, b"00000000128251000000 "), (376, b"00000000128376000000 ")]


def test_each_response_has_stamps_of_its_own(opened: Open) -> None:
    world = opened("events=2,stamp=1")
    client = world.connect()
    client.send(chat())
    world.at(1.0, lambda: client.send(chat("rate=8")))

    def sleep() -> None:
        world.now += 0.5

    world.at(1.01, sleep)
    world.run()
    assert [(at, stamp) for at, data in client.received for stamp in STAMP.findall(data)] == [
        (0, b"00000000128000000000"), (0, b"00000000128000000000"), (1510, b"00000000129510000000"),
        (1510, b"00000000129510000000"),
    ]  # fmt: skip


def test_only_a_whole_answer_is_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = read_limit("server=groq tokens-per-minute=60000 concurrent=9")
    world = VirtualServer(
        monkeypatch, Settings(service=ServiceSettings(knobs=Knobs(events=4, rate=8.0), limits=(limit,)))
    )
    whole, broken = world.connect(), world.connect()
    for client in (whole, broken):
        client.send(request_bytes(path_of("openai-chat"), {**body_of("openai-chat", stream=True), "max_tokens": 400}))
    charged: list[float] = []

    def note() -> None:
        [(_, counts)] = world.server.service.limiter.counts()
        charged.append(counts.charged["output_tokens"])

    world.at(0.1, note)
    world.at(0.3, broken.close)
    world.at(0.5, note)
    world.at(2.0, note)
    world.run()
    assert charged == [800.0, 800.0, 404.0]
    [state] = world.server.service.limiter._states.values()  # pyright: ignore[reportPrivateUsage]
    assert [scope.running for scope in state.scopes.values()] == [0]
