"""The monitor: the content of its reports, who can connect, and that no client can block the engine."""

import json
import math
import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import manystream as ms
from manystream.engine import monitor
from manystream.engine.monitor import Monitor, MonitorError, runtime_folder, sockets
from tests.support.charged import Charged, ask, open_charged
from tests.support.peers import (
    STREAM_HEAD,
    Line,
    answer,
    chat_answer,
    chat_chunk,
    chunked,
    error_body,
    hello,
    open_peer,
    replies,
    stream_of,
    until,
)

CANARY_PROMPT = "canary prompt, which nobody else may read"
CANARY_ANSWER = "canary answer, which nobody else may read"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the default folder of monitors."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "manystream"


class Client:
    """A client of the monitor."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream

    async def look(self, question: bytes = b"look\n") -> dict[str, Any]:
        await self.stream.send_all(question)
        return await self.read()

    async def read(self) -> dict[str, Any]:
        received = b""
        while not received.endswith(b"\n"):
            data = await self.stream.receive_some(65536)
            assert data, "the monitor has closed"
            received += data
        found: dict[str, Any] = json.loads(received)
        return found


@asynccontextmanager
async def open_client(path: Path) -> AsyncGenerator[Client, None]:
    async with await trio.open_unix_socket(str(path)) as stream:
        yield Client(stream)


async def stall_after_one_event(line: Line) -> None:
    """Begin each stream and never end it; refuse unstreamed requests."""
    while request := await line.request():
        if b'"stream":true' not in request:
            await line.send(answer(error_body("no such model"), status="404 Not Found"))
            continue
        await line.send(STREAM_HEAD.replace("\r\n\r\n", "\r\nx-request-id: req_1\r\n\r\n"))
        await line.send(chunked(chat_chunk(CANARY_ANSWER), end=False))
        await trio.sleep_forever()


async def test_a_report_has_calls_and_connections_but_no_content(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    async with open_peer(stall_after_one_event) as peer, ms.open_engine([peer.chat], monitor=path) as engine:
        request = ms.Request("m", [ms.Message.user(CANARY_PROMPT)], system=CANARY_PROMPT, metadata={"k": CANARY_PROMPT})
        for _ in range(3):
            engine.start_stream(request)
        await engine.start_request(request).wait()
        await until(lambda: engine.statistics().events == 6)  # Start and a piece of text each
        async with open_client(path) as client:
            await client.stream.send_all(b"anything\n")
            received = await client.stream.receive_some(1 << 20)
    for secret in ("canary", "sk-"):
        assert secret not in received.decode()
    look = json.loads(received)
    assert look["format"] == 1
    assert look["manystream"] == ms.__version__
    assert look["pid"] == os.getpid()
    assert look["streams"] == 3
    assert look["statistics"]["calls"] == {"reading": 3}
    assert look["statistics"]["providers"] == {
        "peer": {"running": 3, "completed": 1, "events": 6, "failures": {"not_found": 1}}
    }
    assert look["statistics"]["connections"][peer.origin]["active"] == 3
    (call, *_), (quiet, *_) = look["oldest"], look["quietest"]
    assert (call["number"], call["provider"], call["model"]) == (1, "peer", "m")
    assert (call["state"], call["stream"], call["attempts"], call["request_id"]) == ("reading", True, 1, "req_1")
    assert call["age"] > call["quiet"] > 0
    assert quiet["quiet"] == max(other["quiet"] for other in look["quietest"])


async def test_a_sent_request_is_waiting_and_an_unsent_one_is_not(tmp_path: Path) -> None:
    async def say_nothing(line: Line) -> None:
        await line.request()
        await trio.sleep_forever()

    from manystream.transport.pool import PoolLimits

    limits = ms.EngineLimits(pool=PoolLimits(max_connections=1))
    path = tmp_path / "engine.sock"
    async with open_peer(say_nothing) as peer, ms.open_engine([peer.chat], limits=limits, monitor=path) as engine:
        engine.start_stream(hello())
        engine.start_request(hello())
        await until(lambda: engine.statistics().calls == {"waiting": 1, "queued": 1})
        async with open_client(path) as client:
            look = await client.look()
        assert {call["number"]: call["state"] for call in look["oldest"]} == {1: "waiting", 2: "queued"}
        assert look["streams"] == 1


async def test_the_socket_is_private_and_removed_with_the_engine(folder: Path) -> None:
    async with ms.open_engine([ms.OpenAIChat("k", "http://127.0.0.1:1/v1")], monitor=True):
        (path,) = sockets()
        assert path == folder / f"{os.getpid()}.sock"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert [entry.name for entry in folder.iterdir()] == [path.name]
        async with open_client(path) as client:
            await client.look()
            held = client.stream
    assert not list(folder.iterdir())
    assert held.socket.fileno() == -1


async def test_two_engines_of_one_process_have_two_names(folder: Path) -> None:
    providers = [ms.OpenAIChat("k", "http://127.0.0.1:1/v1")]
    async with ms.open_engine(providers, monitor=True), ms.open_engine(providers, monitor=True):
        assert [path.name for path in sockets()] == [f"{os.getpid()}-2.sock", f"{os.getpid()}.sock"]
    assert sockets() == []


async def test_lines_that_arrive_together_get_one_response(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "engine.sock"
    async with ms.open_engine([ms.OpenAIChat("k", "http://127.0.0.1:1/v1")], monitor=path), open_client(path) as client:
        first = await client.look(b"\n\n\n\n")
        started = trio.current_time()
        second = await client.look(b"{}\n")
        assert second["uptime"] > first["uptime"]
        assert trio.current_time() - started > monitor.LEAST_SECONDS / 2, "frequent requests get reports at intervals"


async def test_a_client_that_never_reads_blocks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(monitor, "PATIENCE", 0.3)
    monkeypatch.setattr(monitor, "_version", lambda: "x" * 3_000_000)  # larger than a socket's buffer

    path = tmp_path / "engine.sock"
    async with (
        open_peer(replies(answer(chat_answer("well")))) as peer,
        ms.open_engine([peer.chat], monitor=path) as engine,
        open_client(path) as slow,
        open_client(path) as other,
    ):
        await slow.stream.send_all(b"look\n")
        for _ in range(3):
            assert (await engine.request(hello())).text == "well"
            assert (await other.look())["format"] == 1
        await trio.sleep(2 * monitor.PATIENCE)
        with pytest.raises(AssertionError, match="has closed"):
            await slow.read()  # the engine has closed the connection


async def test_clients_beyond_the_limit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "CLIENTS", 1)
    path = tmp_path / "engine.sock"
    async with ms.open_engine([ms.OpenAIChat("k", "http://127.0.0.1:1/v1")], monitor=path):
        async with open_client(path) as first:
            await first.look()
            async with open_client(path) as second:
                assert await second.stream.receive_some(1) == b""
            await first.look()
        async with open_client(path) as third:
            await until(lambda: True)
            await third.look()


async def test_a_report_of_many_calls_is_built_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "SLICE", 10)
    path = tmp_path / "engine.sock"
    async with ms.open_engine([ms.OpenAIChat("k", "http://127.0.0.1:1/v1")], monitor=path) as engine:
        for _ in range(100):
            engine.start_stream(hello(retry=ms.Retry(base=60)))
        await until(lambda: engine.statistics().calls == {"backoff": 100})
        async with open_client(path) as client:
            look = await client.look()
    assert look["streams"] == 100
    assert [call["number"] for call in look["oldest"]] == list(range(1, 51))
    assert [call["number"] for call in look["quietest"]] == list(range(1, 51))


# --- where the socket may be ---


def left_behind(path: Path) -> None:
    """Leave a socket file as a killed process does."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))


async def test_the_socket_of_a_dead_process_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    left_behind(path)
    async with (
        ms.open_engine([ms.OpenAIChat("k", "http://127.0.0.1:1/v1")], monitor=str(path)),
        open_client(path) as client,
    ):
        await client.look()
    assert not path.exists()


async def test_a_path_that_is_in_use_is_refused(tmp_path: Path) -> None:
    providers = [ms.OpenAIChat("k", "http://127.0.0.1:1/v1")]
    path, file = tmp_path / "engine.sock", tmp_path / "notes.txt"
    file.write_text("notes")
    async with ms.open_engine(providers, monitor=path):
        for taken, words in ((path, "another engine"), (file, "is no socket")):
            with pytest.raises(MonitorError, match=words):
                async with ms.open_engine(providers, monitor=taken):
                    pass
        async with open_client(path) as client:
            await client.look()
    assert file.read_text() == "notes"


@pytest.mark.parametrize(("name", "words"), [("none/engine.sock", "No such file"), ("x" * 200, "too long")])
async def test_an_unusable_path_is_named_with_the_reason(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(MonitorError, match=words) as raised:
        async with ms.open_engine([ms.OpenAIChat("k", "http://127.0.0.1:1/v1")], monitor=tmp_path / name):
            pass
    assert str(tmp_path) in str(raised.value)


async def test_a_folder_that_other_users_can_enter_is_not_used(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o755)
    with pytest.raises(MonitorError, match="not this user's alone"):
        async with ms.open_engine([ms.OpenAIChat("k", "http://127.0.0.1:1/v1")], monitor=True):
            pass


async def test_without_a_runtime_folder_a_temporary_one_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    assert runtime_folder().name == f"manystream-{os.getuid()}"


async def test_a_newer_socket_at_the_path_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    async with ms.open_engine([ms.OpenAIChat("k", "http://127.0.0.1:1/v1")], monitor=path):
        path.unlink()
        left_behind(path)
    assert path.is_socket()


async def test_an_engine_without_monitor_does_not_load_the_module() -> None:
    program = (
        "import sys, trio, manystream as ms\n"
        "async def main():\n"
        "    async with ms.open_engine([ms.OpenAIChat('k', 'http://127.0.0.1:1/v1')]): pass\n"
        "trio.run(main)\n"
        "assert 'manystream.engine.frontends.engine' in sys.modules\n"
        "assert 'manystream.engine.monitor' not in sys.modules\n"
    )
    await trio.run_process([sys.executable, "-c", program], check=True, stderr=subprocess.STDOUT)


async def test_the_repr_names_the_path(tmp_path: Path) -> None:
    async with ms.open_engine([ms.OpenAIChat("k", "http://127.0.0.1:1/v1")]) as engine:
        one = Monitor(engine._calls, tmp_path / "engine.sock")
        assert repr(one) == f"<Monitor {tmp_path / 'engine.sock'}, 0 clients>"
        with trio.move_on_after(0):
            await one.run()
    assert not one.path.exists()


async def test_a_report_has_routes_and_budgets(tmp_path: Path) -> None:
    """A budget may hold functions, and have no limit for an amount: JSON has neither."""

    def price(provider: ms.Provider, model: str, usage: ms.Usage) -> float:
        return 0.001

    say_hello = replies(answer(chat_answer("hello")))
    path = tmp_path / "engine.sock"
    unlimited = ms.Budget(usd=lambda tenant: 5.0, calls=lambda tenant: math.inf)
    per_tenant = ms.Budget(calls=3, per="tenant", every=60)
    route = ms.Route("fast", ["peer/m"])
    traffic = ms.Traffic(routes=[route], budgets=[unlimited, per_tenant], price=price)
    async with open_peer(say_hello) as peer, ms.open_engine([peer.chat], monitor=path, traffic=traffic) as engine:
        request = ms.Request("fast", [ms.Message.user("hi")], max_output_tokens=9, tenant="half \ud800")
        assert (await engine.start_request(request).wait()).success
        async with open_client(path) as client:
            look = await client.look()
    figures = look["statistics"]["traffic"]
    assert list(figures["limiters"]) == ["peer/m"]
    assert figures["routes"]["fast"]["targets"][0]["target"] == "peer/m"
    whole, tenant = sorted(figures["budgets"], key=lambda budget: budget["per"])
    assert whole["limit"] == {"usd": 5.0, "calls": None}
    assert whole["spent"] == {"usd": 0.001, "calls": 1.0}
    assert (whole["reserved"], whole["waiting"], whole["ends_in"]) == ({"usd": 0.0, "calls": 0.0}, 0, -1.0)
    assert (tenant["tenant"], tenant["every"], tenant["limit"]) == ("half ?", 60, {"calls": 3.0})
    assert 0 < tenant["ends_in"] <= 60


async def test_a_report_lists_the_budgets_of_which_the_least_is_left(tmp_path: Path) -> None:
    say_hello = replies(answer(chat_answer("hello")))
    path = tmp_path / "engine.sock"
    traffic = ms.Traffic(budgets=[ms.Budget(calls=100, per="tenant")])
    async with open_peer(say_hello) as peer, ms.open_engine([peer.chat], monitor=path, traffic=traffic) as engine:
        names = [*(str(number) for number in range(60)), "busy", "busy"]
        calls = [engine.start_request(ms.Request("peer/m", hello().messages, tenant=name)) for name in names]
        for call in calls:
            assert (await call.wait()).success
        async with open_client(path) as client:
            look = await client.look()
    budgets = look["statistics"]["traffic"]["budgets"]
    assert (len(budgets), budgets[0]["tenant"]) == (50, "busy")


# --- the monitor's bounds on clients and time, and where its socket may be; with literal numbers ---


CLOSED = ms.OpenAIChat("k", "http://127.0.0.1:1/v1")


@asynccontextmanager
async def open_monitored(path: Path) -> AsyncGenerator[ms.Engine, None]:
    async with ms.open_engine([CLOSED], monitor=path) as engine:
        yield engine


async def line(stream: trio.SocketStream) -> bytes:
    received = b""
    while not received.endswith(b"\n"):
        data = await stream.receive_some(1 << 20)
        if not data:
            return received
        received += data
    return received


async def test_an_idle_client_is_disconnected_after_two_minutes(tmp_path: Path, autojump_clock: MockClock) -> None:
    path = tmp_path / "m.sock"
    async with open_monitored(path), await trio.open_unix_socket(str(path)) as stream:
        began = trio.current_time()
        await stream.send_all(b"half a line")
        await trio.sleep(100)
        await stream.send_all(b"\n")
        assert await line(stream)
        assert await stream.receive_some(1) == b""
        assert trio.current_time() - began == pytest.approx(220, abs=1)


async def test_a_report_is_made_ten_times_a_second(tmp_path: Path, autojump_clock: MockClock) -> None:
    path = tmp_path / "m.sock"
    async with open_monitored(path), await trio.open_unix_socket(str(path)) as stream:
        times: list[float] = []
        began = trio.current_time()
        for _ in range(4):
            await stream.send_all(b"\n")
            await line(stream)
            times.append(round(trio.current_time() - began, 2))
        assert times == [0.0, 0.1, 0.2, 0.3]
        await trio.sleep(5)
        began = trio.current_time()
        await stream.send_all(b"\n")
        await line(stream)
        assert trio.current_time() == began


@pytest.mark.parametrize(("seconds", "is_whole"), [(9.0, True), (11.0, False)])
async def test_a_client_has_ten_seconds_to_read(
    tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, seconds: float, is_whole: bool
) -> None:
    monkeypatch.setattr(monitor, "_version", lambda: "x" * 3_000_000)  # larger than a socket's buffer
    path = tmp_path / "m.sock"
    async with open_monitored(path), await trio.open_unix_socket(str(path)) as stream:
        await stream.send_all(b"\n")
        await trio.sleep(seconds)
        assert (await line(stream)).endswith(b"\n") == is_whole


async def test_eight_clients_are_served(tmp_path: Path, autojump_clock: MockClock) -> None:
    path = tmp_path / "m.sock"
    async with open_monitored(path):
        clients = [await trio.open_unix_socket(str(path)) for _ in range(8)]
        for client in clients:
            await client.send_all(b"\n")
            assert await line(client)
        ninth = await trio.open_unix_socket(str(path))
        assert await ninth.receive_some(1) == b""
        for client in (*clients, ninth):
            await client.aclose()


async def test_the_repr_counts_clients(tmp_path: Path) -> None:
    async with ms.open_engine([CLOSED]) as engine:
        one = Monitor(engine._calls, tmp_path / "m.sock")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.run)
            async with await trio.open_unix_socket(str(one.path)) as stream:
                await stream.send_all(b"\n")
                await line(stream)
                assert repr(one) == f"<Monitor {tmp_path / 'm.sock'}, 1 clients>"
            await until(lambda: repr(one).endswith(" 0 clients>"))
            nursery.cancel_scope.cancel()


async def test_calls_are_listed_by_age_and_by_silence(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Fifty of each; a report has the number of all."""

    async def script(peer_line: Line) -> None:
        request = await peer_line.request()
        await peer_line.send(stream_of(chat_chunk("a"), end=False))
        if b"lively" in request:
            while True:
                await trio.sleep(1)
                await peer_line.send(chunked(": ping\n\n", end=False))
        await peer_line.closed_by_peer()

    path = tmp_path / "m.sock"
    async with open_peer(script) as peer, ms.open_engine([peer.chat], monitor=path) as engine:
        engine.start_stream(ms.Request("m", "lively"))
        await trio.sleep(10)
        for _ in range(60):
            engine.start_stream(hello())
        await until(lambda: engine.statistics().events == 122)
        await trio.sleep(10.5)
        async with await trio.open_unix_socket(str(path)) as stream:
            await stream.send_all(b"\n")
            look: dict[str, Any] = json.loads(await line(stream))
    assert (look["streams"], look["statistics"]["calls"]) == (61, {"reading": 61})
    assert [call["number"] for call in look["oldest"]] == list(range(1, 51))
    assert [call["number"] for call in look["quietest"]].count(1) == 0
    assert len(look["quietest"]) == 50
    silences = [call["quiet"] for call in look["quietest"]]
    assert silences == sorted(silences, reverse=True)
    assert look["oldest"][0]["quiet"] < 2


async def test_budgets_are_listed_by_what_is_left(tmp_path: Path) -> None:
    """The share of the amount of which the least is left decides; nothing at all is the least."""
    path = tmp_path / "m.sock"
    limits = {"a": 10.0, "b": 2.0, "c": 100.0}
    budgets = (
        ms.Budget(calls=lambda tenant: limits[tenant or "a"], output_tokens=100_000, per="tenant"),
        ms.Budget(output_tokens=120, per="tenant"),
    )
    async with open_charged(Charged(), *budgets, monitor=path) as engine:
        for tenant in ("a", "c", "b"):
            assert (await engine.start_request(ask(tenant=tenant)).wait()).success
        async with await trio.open_unix_socket(str(path)) as stream:
            await stream.send_all(b"\n")
            look: dict[str, Any] = json.loads(await line(stream))
    found = look["statistics"]["traffic"]["budgets"]
    assert [(each["tenant"], *each["limit"]) for each in found] == [
        ("b", "output_tokens", "calls"),  # half of its calls; the others are those of the second budget
        *[(tenant, "output_tokens") for tenant in "acb"],
        ("a", "output_tokens", "calls"),
        ("c", "output_tokens", "calls"),
    ]


# --- where sockets are ---


@pytest.fixture
def report_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "manystream"


async def test_a_path_of_103_bytes_is_the_longest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with open_monitored(Path("x" * 103)), await trio.open_unix_socket("x" * 103) as stream:
        await stream.send_all(b"\n")
        assert await line(stream)
    with pytest.raises(MonitorError) as raised:
        async with open_monitored(Path("x" * 104)):
            pass
    assert str(raised.value) == (f"{'x' * 104} is too long for a socket (103 bytes): give monitor= a shorter path")
    assert list(tmp_path.iterdir()) == []


async def test_each_engine_of_a_process_has_a_number(report_folder: Path) -> None:
    async with (
        ms.open_engine([CLOSED], monitor=True),
        ms.open_engine([CLOSED], monitor=True),
        ms.open_engine([CLOSED], monitor=True),
    ):
        process = os.getpid()
        assert [path.name for path in sockets()] == [f"{process}{end}.sock" for end in ("-2", "-3", "")]
        assert sockets(report_folder) == sockets()


async def test_only_served_sockets_are_listed(tmp_path: Path) -> None:
    assert sockets(tmp_path / "none") == []
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "dead.sock"))
    async with open_monitored(tmp_path / "b.sock"), open_monitored(tmp_path / "a.sock"), open_monitored(tmp_path / "c"):
        assert sockets(tmp_path) == [tmp_path / "a.sock", tmp_path / "b.sock"]


async def test_the_folder_is_the_user_s_own(report_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert runtime_folder() == report_folder
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert runtime_folder() == Path(tempfile.gettempdir()) / f"manystream-{os.getuid()}"


@pytest.mark.parametrize("mode", [0o750, 0o701, 0o770, 0o702])
async def test_a_folder_that_others_may_use_is_refused(report_folder: Path, mode: int) -> None:
    report_folder.mkdir()
    report_folder.chmod(mode)
    with pytest.raises(MonitorError) as raised:
        async with ms.open_engine([CLOSED], monitor=True):
            pass
    assert str(raised.value) == (
        f"{report_folder} is not this user's alone: delete it, set XDG_RUNTIME_DIR, or give monitor= a path"
    )


async def test_a_file_in_place_of_the_folder_is_refused(report_folder: Path) -> None:
    report_folder.write_text("notes")
    with pytest.raises(MonitorError) as raised:
        async with ms.open_engine([CLOSED], monitor=True):
            pass
    assert str(raised.value) == f"cannot make {report_folder}: File exists; give monitor= a path"


async def test_an_unusable_place_is_named_with_its_reason(tmp_path: Path) -> None:
    missing, file = tmp_path / "none" / "m.sock", tmp_path / "notes"
    file.write_text("notes")
    async with open_monitored(tmp_path / "m.sock"):
        for path, why in (
            (missing, f"cannot listen at {missing}: No such file or directory; give monitor= another path"),
            (file, f"{file} is no socket: give monitor= another path, or delete it"),
            (Path("a\0b"), "'a\\x00b' cannot be a path: give monitor= another one"),
            (Path("\ud800"), "'\\ud800' cannot be a path: give monitor= another one"),
            (
                tmp_path / "m.sock",
                f"another engine's monitor listens at {tmp_path / 'm.sock'}: give monitor= another path",
            ),
        ):
            with pytest.raises(MonitorError) as raised:
                async with open_monitored(path):
                    pass
            assert str(raised.value) == why
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes"]


async def test_a_file_made_with_the_socket_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path is looked up again when the socket gets its name: what has come there meanwhile is not replaced."""
    path, target = tmp_path / "m.sock", tmp_path / "target"
    target.write_text("notes")
    link = os.link
    for appears in (path.touch, lambda: path.symlink_to(target), lambda: path.symlink_to(tmp_path / "none")):

        def link_later(fresh: Path, to: Path, appears: Callable[[], None] = appears) -> None:
            if not os.path.lexists(to):
                appears()
            link(fresh, to)

        monkeypatch.setattr(os, "link", link_later)
        with pytest.raises(MonitorError, match="is no socket"):
            async with open_monitored(path):
                pass
        assert not path.is_socket()
        assert sorted(found.name for found in tmp_path.iterdir()) == ["m.sock", "target"]
        path.unlink()
    assert target.read_text() == "notes"
