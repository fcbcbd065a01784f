"""The command `manystream top` with a running engine, and its errors without one."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from manystream.cli import main
from tests.support.waiting import LONGEST

ENGINE = """
import sys, trio
import manystream as ms
from manystream.simulator import open_simulator_thread

async def main():
    with open_simulator_thread("rate=50,events=4000") as simulator:
        urls = simulator.base_urls
        providers = [ms.OpenAIChat("k", urls["openai-chat"]), ms.Anthropic("k", urls["anthropic"], name="anthropic")]
        async with ms.open_engine(providers, proxy="", monitor=True) as engine:
            counts, both_running = [0, 0], trio.Event()

            def on_event(number):
                counts[number % 2] += 1
                if min(counts) > 15:  # so that there are rates to show
                    both_running.set()

            for number in range(6):
                model = ("gpt-5-mini", "claude-\\x1b[31mred")[number % 2]
                knobs = {"x-simulate": "fail=400"} if number == 5 else {}
                request = ms.Request(model, [ms.Message.user("canary")], extra_headers=knobs)
                engine.start_stream(request, lambda _, number=number: on_event(number))
            await both_running.wait()
            print("ready", flush=True)
            await trio.to_thread.run_sync(sys.stdin.read)

trio.run(main)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run")


@pytest.fixture
def home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    return folder / "manystream"


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a process that has an engine with a monitor, and six calls."""
    with start_engine(folder) as process:
        yield process
        process.kill()


def start_engine(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", ENGINE], env=os.environ | {"XDG_RUNTIME_DIR": str(folder)}, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    return process


def start_top(folder: Path, *arguments: str, **options: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "manystream", "top", *arguments],
        env=os.environ | {"XDG_RUNTIME_DIR": str(folder), "TERM": "xterm", "COLUMNS": "140", "LINES": "50"},
        stdin=subprocess.DEVNULL,
        **({"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options),  # type: ignore[call-overload]
    )


@pytest.mark.parametrize("how", ["alone", "pid", "path"])
def test_once_finds_the_engine_by_default_process_or_path(
    engine: subprocess.Popen[str], home: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    target = {"alone": [], "pid": [str(engine.pid)], "path": [str(home / f"{engine.pid}.sock")]}[how]
    assert main(["top", "--once", "--interval", "0.2", *target]) == 0
    out, err = capsys.readouterr()
    assert not err
    assert f"process {engine.pid}" in out
    assert "5 running, 5 of them streams: reading 5" in out
    (row,) = [line.split() for line in out.splitlines() if line.startswith("anthropic ") and "invalid_arg" in line]
    assert row[1] == "2"
    assert float(row[2]) > 10, "events per second"
    assert row[4:] == ["1", "1", "invalid_arg", "1"]
    assert "\x1b" not in out, "a model's name cannot control the terminal"
    assert "claude-\ufffd[31mred" in out
    assert "canary" not in out


def test_json_is_snapshot_and_rates(
    engine: subprocess.Popen[str], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["top", "--once", "--json", "--interval", "0.2"]) == 0
    look = json.loads(capsys.readouterr().out)
    assert look["pid"] == engine.pid
    assert look["rates"]["events"] > 50
    assert look["rates"]["providers"]["anthropic"]["events"] > 20
    assert len(look["quietest"]) == 5


def test_on_a_terminal_the_last_view_stays_at_the_end(engine: subprocess.Popen[str], folder: Path) -> None:
    pty = pytest.importorskip("pty")
    pytest.importorskip("rich")
    ours, theirs = pty.openpty()
    with start_top(folder, "--interval", "0.1", stdout=theirs, text=False) as process:
        os.close(theirs)
        shown = b""
        while shown.count(b"silent for longest") < 3:
            shown += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        while data := read_terminal(ours):
            shown += data
        os.close(ours)
        _, err = process.communicate(timeout=LONGEST)
    assert process.returncode == 130
    assert not err
    assert b"\x1b[?1049h" in shown
    _, _, last = shown.rpartition(b"\x1b[?1049l")
    assert b"silent for longest" in last
    assert b"anthropic" in last


def read_terminal(descriptor: int) -> bytes:
    """Return what a program wrote to a terminal; empty at the end, which Linux reports as an error."""
    try:
        return os.read(descriptor, 65536)
    except OSError:
        return b""


def test_it_ends_with_the_engine(folder: Path, tmp_path: Path) -> None:
    with start_engine(tmp_path) as engine, start_top(tmp_path, "--interval", "0.1") as process:
        process.stdout.readline()
        engine.communicate("", timeout=LONGEST)
        _, err = process.communicate(timeout=LONGEST)
    assert process.returncode == 0
    assert err == "The engine has ended.\n"


# Errors.


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 1) -> str:
    assert main(["top", *arguments]) == status
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("manystream top: ")
    return err


def test_a_missing_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert "monitor=True" in complaint(capsys)
    assert "process 1 has no engine" in complaint(capsys, "1")
    assert "does not exist" in complaint(capsys, str(tmp_path / "none.sock"))
    assert "is not a socket" in complaint(capsys, __file__)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "dead.sock"))
    assert "nothing listens" in complaint(capsys, str(tmp_path / "dead.sock"))


def test_a_server_that_does_not_answer_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("manystream.cli.top.command.ANSWER_SECONDS", 0.1)
    path = tmp_path / "other.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        assert "has not answered" in complaint(capsys, "--once", str(path))
