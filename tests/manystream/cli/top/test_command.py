"""The command `manystream top` with a monitor that the test plays: what it prints, how it ends, and its complaints."""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TypeAlias

import pytest

from manystream.cli import main
from manystream.cli.output.errors import CommandError
from manystream.cli.output.terminal import Part
from manystream.cli.top import command as top_command
from manystream.cli.top.command import find_socket
from tests.support.commands import Pipe, Terminal
from tests.support.waiting import LONGEST

Serve: TypeAlias = "Callable[..., Path]"


def snapshot(uptime: float, events: int, **members: object) -> bytes:
    known = {"format": 1, "pid": 7, "uptime": uptime, "time": 0, "statistics": {"events": events}}
    return json.dumps(known | members).encode() + b"\n"


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Return a function that serves the given answers, one for each request, and then closes the connection."""
    threads: list[threading.Thread] = []

    def serve(*answers: Sequence[bytes]) -> Path:
        path = tmp_path / "monitor.sock"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen()

        def run() -> None:
            with listener, listener.accept()[0] as connection:
                for pieces in answers:
                    assert connection.recv(100) == b"look\n"
                    for piece in pieces:
                        connection.sendall(piece)

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        return path

    yield serve
    for thread in threads:
        thread.join(LONGEST)


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the list of the intervals that the command waited; it waits none of them."""
    naps: list[float] = []
    monkeypatch.setattr(top_command, "time", SimpleNamespace(sleep=naps.append))
    return naps


def test_each_snapshot_is_a_line(serve: Serve, naps: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    second = snapshot(3.0, 500)
    path = serve([snapshot(1.0, 100)], [second[:20], second[20:]], [snapshot(5.0, 501)])
    assert main(["top", str(path)]) == 0
    out, err = capsys.readouterr()
    lines = [line.split("  ") for line in out.splitlines()]
    assert [line[1:] for line in lines] == [
        ["0 calls (0 streams)", "200 events/s", "0.0 ended/s", "0 failed", "lag 0 µs"],
        ["0 calls (0 streams)", "0 events/s", "0.0 ended/s", "0 failed", "lag 0 µs"],
    ]
    assert err == "The engine has ended.\n"
    assert naps == [1.0, 1.0, 1.0]


def test_once_prints_the_second_snapshot(serve: Serve, naps: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    calls = [{"number": number} for number in range(1, 4)]
    path = serve([snapshot(1.0, 100)], [snapshot(3.0, 500, oldest=calls)])
    assert main(["top", "--once", "--interval", "0.1", "--sort", "age", "--calls", "2", str(path)]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0] == "manystream ?, process 7, up 0:03"
    assert lines[2].startswith("rates    200 events/s")
    assert lines[-4] == "calls, oldest first"
    assert [line.split()[0] for line in lines[-2:]] == ["1", "2"]
    assert (err, naps) == ("", [0.1])


def test_a_snapshot_of_no_process_is_shown(serve: Serve, naps: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    bare = b'{"format": 1}\n'
    assert main(["top", "--once", str(serve([bare], [bare]))]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "manystream ?, process ?, up 0:00"


def test_json_prints_snapshots_with_rates(serve: Serve, naps: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    path = serve([snapshot(1.0, 100)], [snapshot(3.0, 500)], [snapshot(4.0, 600)])
    assert main(["top", "--json", str(path)]) == 0
    out, err = capsys.readouterr()
    first, second = (json.loads(line) for line in out.splitlines())
    none = {"completed": 0.0, "failed": 0.0, "bytes_received": 0.0, "bytes_sent": 0.0, "providers": {}}
    assert first == json.loads(snapshot(3.0, 500)) | {"rates": {"events": 200.0} | none}
    assert second["rates"] == {"events": 100.0} | none
    assert err == "The engine has ended.\n"


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_each_line_is_in_a_pipe_at_once(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    pipe = Pipe()
    received: list[int] = []
    monkeypatch.setattr(
        top_command, "time", SimpleNamespace(sleep=lambda _: received.append(pipe.received.count("\n")))
    )
    monkeypatch.setattr("sys.stdout", pipe)
    path = serve([snapshot(1.0, 100)], [snapshot(3.0, 500)], [snapshot(4.0, 600)])
    assert main(["top", *options, str(path)]) == 0
    assert received == [0, 1, 2]


@pytest.mark.parametrize(
    ("options", "plain"), [((), False), (("--plain",), True), (("--json",), True), (("--once",), True)]
)
def test_a_terminal_shows_views_unless_lines_are_asked_for(
    serve: Serve, naps: list[float], monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], plain: bool
) -> None:
    shown: list[Sequence[Part]] = []
    closed: list[bool] = []

    class Screen:
        def __init__(self, stream: object, *, screen: bool) -> None:
            assert screen

        def draw(self, parts: Sequence[Part]) -> None:
            shown.append(parts)

        def close(self) -> None:
            closed.append(True)

    pytest.importorskip("rich")
    monkeypatch.setattr(top_command, "Display", Screen)
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    path = serve([snapshot(1.0, 100)], [snapshot(3.0, 500)])
    assert main(["top", "--calls", "0", *options, str(path)]) == 0
    assert closed == ([] if plain else [True])
    assert len(shown) == (0 if plain else 1)
    assert bool(terminal.getvalue()) is plain
    assert "\x1b" not in terminal.getvalue()


# Complaints.


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 1) -> str:
    assert main(["top", *arguments]) == status
    out, err = capsys.readouterr()
    assert not out
    return err.removeprefix("manystream top: ").removesuffix("\n")


def test_an_engine_ends_between_snapshots(serve: Serve, naps: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    path = serve([snapshot(1.0, 100)])
    assert complaint(capsys, "--once", str(path)) == f"the engine at {path} ended before the second snapshot"


def test_a_cut_answer_is_the_engine_s_end(serve: Serve, naps: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    path = serve([snapshot(1.0, 100)], [snapshot(3.0, 500)[:-1]])
    assert main(["top", str(path)]) == 0
    assert capsys.readouterr() == ("", "The engine has ended.\n")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"hello\n", "the server at {} is not an engine's monitor"),
        (b"[]\n", "the server at {} is not an engine's monitor"),
        (
            b'{"format": 2}\n',
            "the engine at {} sends format 2, and this command reads format 1: use the command of the engine's version",
        ),
        (b"{}\n",
            "the engine at {} sends format None, and this command reads format 1: use the command of the engine's"
            " version"),
    ],
)  # fmt: skip
def test_an_answer_that_is_no_snapshot(
    serve: Serve, answer: bytes, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = serve([answer])
    assert complaint(capsys, str(path)) == words.format(path)


class Connection:
    """A connection that fails at one step, in place of `socket.socket`."""

    failure: dict[str, BaseException] = {}  # noqa: RUF012
    timeouts: list[float] = []  # noqa: RUF012
    pieces: list[bytes] = []  # noqa: RUF012
    peer = os.getuid()

    def __init__(self, family: int, kind: int) -> None:
        assert (family, kind) == (socket.AF_UNIX, socket.SOCK_STREAM)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def settimeout(self, seconds: float) -> None:
        self.timeouts.append(seconds)

    def connect(self, path: str) -> None:
        self._fail("connect")

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        return struct.pack("3i", 1, self.peer, 0)

    def sendall(self, data: bytes) -> None:
        self._fail("sendall")

    def recv(self, size: int) -> bytes:
        assert size == 65536
        self._fail("recv")
        return self.pieces.pop(0) if self.pieces else b""

    def _fail(self, step: str) -> None:
        if step in self.failure:
            raise self.failure[step]


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> type[Connection]:
    monkeypatch.setattr(socket, "socket", Connection)
    monkeypatch.setattr(Connection, "failure", {})
    monkeypatch.setattr(Connection, "timeouts", [])
    monkeypatch.setattr(Connection, "pieces", [])
    monkeypatch.setattr(Path, "stat", lambda _: SimpleNamespace(st_uid=os.getuid(), st_mode=0))
    return Connection


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(), "/x/a.sock is not a socket: name the path that monitor= was given"),
        (FileNotFoundError(), "/x/a.sock does not exist: open the engine with monitor='/x/a.sock'"),
        (PermissionError(), "/x/a.sock belongs to another user: run this command as the engine's user"),
        (OSError(errno.EIO, "Input/output error"), "cannot reach /x/a.sock: Input/output error"),
        (OSError("AF_UNIX path too long"), "cannot reach /x/a.sock: AF_UNIX path too long"),
    ],
)
def test_a_socket_that_cannot_be_reached(
    connection: type[Connection], error: OSError, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    connection.failure["connect"] = error
    assert complaint(capsys, "/x/a.sock") == words


def test_a_socket_without_its_engine(
    connection: type[Connection], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    connection.failure["connect"] = ConnectionRefusedError()
    monkeypatch.setattr(Path, "is_socket", lambda _: True)
    words = "nothing listens at /x/a.sock: its engine has ended, or was killed"
    assert complaint(capsys, "/x/a.sock") == words


def test_an_answer_may_come_in_pieces(connection: type[Connection], capsys: pytest.CaptureFixture[str]) -> None:
    connection.pieces += [b'{"form', b'at": 2', b"}\n"]
    assert complaint(capsys, "/x/a.sock").startswith("the engine at /x/a.sock sends format 2, and this command reads")
    assert not connection.pieces


def test_an_engine_that_does_not_answer(connection: type[Connection], capsys: pytest.CaptureFixture[str]) -> None:
    connection.failure["recv"] = TimeoutError()
    assert complaint(capsys, "/x/a.sock") == (
        "the engine at /x/a.sock has not answered for 10 s: its thread is blocked, for example by a callback that does"
        " not return"
    )
    assert connection.timeouts[0] == max(connection.timeouts) == 10.0


def test_an_answer_without_an_end(
    connection: type[Connection], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(top_command, "ANSWER_BYTES", 1000)
    connection.pieces += [b"x" * 400] * 9
    assert complaint(capsys, "/x/a.sock") == "the server at /x/a.sock is not an engine's monitor: its answer has no end"
    assert len(connection.pieces) == 6


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_a_number_that_json_does_not_have(
    number: str, connection: type[Connection], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    connection.pieces += [b'{"format": 1, "uptime": %b}\n' % number.encode()] * 2
    words = f"the server at /x/a.sock is not an engine's monitor: uptime is {number}, which JSON or Python cannot hold"
    assert complaint(capsys, "/x/a.sock", "--once", "--json") == words


def test_an_answer_that_comes_too_slowly(
    connection: type[Connection], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = iter(range(0, 100, 2))
    monkeypatch.setattr(top_command, "monotonic", lambda: float(next(times)))
    connection.pieces += [b"x"] * 99
    assert complaint(capsys, "/x/a.sock").startswith("the engine at /x/a.sock has not answered for 10 s")
    assert connection.timeouts == [10.0, 8.0, 6.0, 4.0, 2.0]


def test_a_socket_of_another_user_is_not_read(
    connection: type[Connection], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "/x/a.sock belongs to another user: run this command as the engine's user"
    monkeypatch.setattr(Connection, "peer", os.getuid() + 1)
    assert complaint(capsys, "/x/a.sock") == words
    monkeypatch.setattr(Connection, "peer", os.getuid())
    monkeypatch.setattr(Path, "stat", lambda _: SimpleNamespace(st_uid=os.getuid() + 1, st_mode=0))
    assert complaint(capsys, "/x/a.sock") == words
    assert not connection.failure


@pytest.mark.parametrize("error", [BrokenPipeError(), ConnectionResetError()])
def test_a_connection_that_breaks_is_the_end_of_the_engine(
    connection: type[Connection], error: OSError, capsys: pytest.CaptureFixture[str]
) -> None:
    connection.failure["sendall"] = error
    assert main(["top", "/x/a.sock"]) == 0
    assert capsys.readouterr().err == "The engine has ended.\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--interval", "0.099"), "--interval must be at least 0.1 s, not 0.099"),
        (("--interval", "inf"), "--interval must be at least 0.1 s, not inf"),
        (("--interval", "0"), "--interval must be at least 0.1 s, not 0"),
        (("--interval", "nan"), "--interval must be at least 0.1 s, not nan"),
        (("--calls", "-1"), "--calls must not be below 0: -1"),
    ],
)
def test_a_wrong_option(arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert complaint(capsys, *arguments, "/x/a.sock", status=2) == words


def test_a_system_without_unix_sockets(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delattr(socket, "AF_UNIX")
    assert complaint(capsys, "/x/a.sock") == "this system has no Unix sockets, which the monitor needs"


# The search for a monitor.


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder = tmp_path / "manystream"
    folder.mkdir()
    return folder


@pytest.fixture
def listening(folder: Path) -> Iterator[Callable[[str], Path]]:
    listeners: list[socket.socket] = []

    def listen(name: str) -> Path:
        listeners.append(socket.socket(socket.AF_UNIX))
        listeners[-1].bind(os.fspath(folder / name))
        listeners[-1].listen()
        return folder / name

    yield listen
    for listener in listeners:
        listener.close()


def refused(engine: str | None) -> tuple[str, int]:
    with pytest.raises(CommandError) as caught:
        find_socket(engine)
    return str(caught.value), caught.value.status


def test_an_engine_is_found_by_its_process(folder: Path, listening: Callable[[str], Path]) -> None:
    first, second, third = listening("71.sock"), listening("7-2.sock"), listening("7-3.sock")
    assert (find_socket("71"), find_socket("7")) == (first, second)
    assert find_socket("7.sock") == Path("7.sock")
    assert refused("1") == (
        f"process 1 has no engine with a monitor (searched {folder}): open the engine with monitor=True, and run this"
        " command as the same user",
        1,
    )
    paths = "".join(f"\n  manystream top {path}" for path in (second, third, first))
    assert refused(None) == (f"3 engines have a monitor; name one of them:{paths}", 2)


def test_the_only_engine_is_found(folder: Path, listening: Callable[[str], Path]) -> None:
    assert refused(None) == (
        f"no engine with a monitor was found (searched {folder}): open one with monitor=True, or name a socket",
        1,
    )
    only = listening("7.sock")
    assert find_socket(None) == only


@pytest.mark.parametrize("change", ["owner", "writable", "link"])
def test_a_folder_of_another_user_is_not_searched(
    folder: Path, listening: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    only = listening("7.sock")
    if change == "owner":
        uid = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    elif change == "writable":
        folder.chmod(0o777)
    else:
        folder.rename(folder.with_name("theirs"))
        folder.symlink_to("theirs")
    words = f"{folder} is not this user's alone, so its sockets are not used: delete it, or name a socket"
    assert refused(None) == refused("7") == (words, 1)
    assert find_socket(str(only)) == only, "a path that is named"


def test_a_link_and_another_user_s_socket_are_not_used(folder: Path, listening: Callable[[str], Path]) -> None:
    only = listening("7.sock")
    (folder / "8.sock").symlink_to(only)
    (folder / "9.sock").write_text("no socket")
    assert find_socket(None) == only
    if os.getuid() == 0:
        os.chown(listening("10.sock"), 12345, 12345)
        assert find_socket(None) == only
