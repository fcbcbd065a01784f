"""The monitor's bounds on clients and time, and where its socket may be; with literal numbers."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

import manystream as ms
from manystream.engine.observe import monitor
from manystream.engine.observe.monitor import Monitor, MonitorError, runtime_folder, sockets
from tests.engine.traffic.charged import Charged, ask, open_charged
from tests.support.peers import STREAM_HEAD, Line, chat_chunk, chunked, hello, open_peer, until

pytestmark = pytest.mark.trio

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


async def test_an_idle_client_is_disconnected_after_two_minutes(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    path = tmp_path / "m.sock"
    async with open_monitored(path), await trio.open_unix_socket(str(path)) as stream:
        began = trio.current_time()
        await stream.send_all(b"half a line")
        await trio.sleep(100)
        await stream.send_all(b"\n")
        assert await line(stream)
        assert await stream.receive_some(1) == b""
        assert trio.current_time() - began == pytest.approx(220, abs=1)


async def test_a_report_is_made_ten_times_a_second(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
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
    tmp_path: Path,
    autojump_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    is_whole: bool,
) -> None:
    monkeypatch.setattr(monitor, "_version", lambda: "x" * 3_000_000)  # larger than a socket's buffer
    path = tmp_path / "m.sock"
    async with open_monitored(path), await trio.open_unix_socket(str(path)) as stream:
        await stream.send_all(b"\n")
        await trio.sleep(seconds)
        assert (await line(stream)).endswith(b"\n") == is_whole


async def test_eight_clients_are_served(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
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


async def test_calls_are_listed_by_age_and_by_silence(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """Fifty of each; a report has the number of all."""

    async def script(peer_line: Line) -> None:
        request = await peer_line.request()
        await peer_line.send(STREAM_HEAD + chunked(chat_chunk("a"), end=False).decode())
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
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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


async def test_each_engine_of_a_process_has_a_number(folder: Path) -> None:
    async with (
        ms.open_engine([CLOSED], monitor=True),
        ms.open_engine([CLOSED], monitor=True),
        ms.open_engine([CLOSED], monitor=True),
    ):
        process = os.getpid()
        assert [path.name for path in sockets()] == [f"{process}{end}.sock" for end in ("-2", "-3", "")]
        assert sockets(folder) == sockets()


async def test_only_served_sockets_are_listed(tmp_path: Path) -> None:
    assert sockets(tmp_path / "none") == []
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "dead.sock"))
    async with open_monitored(tmp_path / "b.sock"), open_monitored(tmp_path / "a.sock"), open_monitored(tmp_path / "c"):
        assert sockets(tmp_path) == [tmp_path / "a.sock", tmp_path / "b.sock"]


async def test_the_folder_is_the_user_s_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert runtime_folder() == folder
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert runtime_folder() == Path(tempfile.gettempdir()) / f"manystream-{os.getuid()}"


@pytest.mark.parametrize("mode", [0o750, 0o701, 0o770, 0o702])
async def test_a_folder_that_others_may_use_is_refused(folder: Path, mode: int) -> None:
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(MonitorError) as raised:
        async with ms.open_engine([CLOSED], monitor=True):
            pass
    assert str(raised.value) == (
        f"{folder} is not this user's alone: delete it, set XDG_RUNTIME_DIR, or give monitor= a path"
    )


async def test_a_file_in_place_of_the_folder_is_refused(folder: Path) -> None:
    folder.write_text("notes")
    with pytest.raises(MonitorError) as raised:
        async with ms.open_engine([CLOSED], monitor=True):
            pass
    assert str(raised.value) == f"cannot make {folder}: File exists; give monitor= a path"


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


async def test_a_file_that_appears_while_the_socket_is_made_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
