"""The simulator's settings, and the process that runs it: what is started, read and ended."""

from __future__ import annotations

import contextlib
import gc
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from manystream.simulator import (
    KnobError,
    Knobs,
    Limit,
    LimitCounts,
    Replay,
    Settings,
    Simulator,
    SimulatorError,
    open_simulator,
    open_simulator_thread,
    settings_of,
)
from manystream.simulator import process as process_module
from manystream.simulator.batches import BatchTime
from manystream.simulator.inference import BatchModel
from manystream.simulator.prompt_caches import CacheModel
from manystream.simulator.replica import Outage, Replica
from manystream.simulator.service import ServiceSettings

from .raw_client import ask, get, statistics

EXCHANGE = (
    '{"version": 1, "request": {"target": "/x", "body": ""}, "response": {"status": 200}, "chunks": [], "ended": 0,'
    ' "end": "whole"}'
)


class Started:
    """What `serve` was called with."""

    def __init__(self) -> None:
        self.settings: Sequence[Settings] = ()
        self.announce: Callable[[Simulator], None] | None = None
        self.watch: int | None = None
        self.error: OSError | None = None
        self.frozen = False

    def serve(
        self, settings: Sequence[Settings], announce: Callable[[Simulator], None], *, watch: int | None = None
    ) -> None:
        self.settings, self.announce, self.watch = settings, announce, watch
        if self.error:
            raise self.error


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    before = signal.getsignal(signal.SIGINT)
    started = Started()
    monkeypatch.setattr(process_module, "serve", started.serve)
    monkeypatch.setattr(gc, "freeze", lambda: setattr(started, "frozen", True))
    yield started
    signal.signal(signal.SIGINT, before)


DEFAULTS = Settings(host="127.0.0.1", port=0, service=ServiceSettings(knobs=Knobs(), journal=256))


def test_without_options_a_simulator_takes_a_free_port() -> None:
    assert settings_of() == [DEFAULTS] == [Settings()]


def test_every_option_reaches_the_settings(tmp_path: Path) -> None:
    service = ServiceSettings(
        knobs=Knobs(events=5), journal=3, limits=(Limit(requests_per_minute=6), Limit(concurrent=2)),
        batch=BatchModel(step=0.5), batch_time=BatchTime(median=7), caches=CacheModel(lag=2),
    )  # fmt: skip
    assert settings_of(
        "events=5", host="localhost", port=81, journal=3, limits=["requests-per-minute=6", "concurrent=2"],
        batch="step=0.5", batch_time="7", caches="lag=2",
    ) == [Settings(host="localhost", port=81, service=service)]  # fmt: skip


def test_a_replay_and_its_pace_reach_the_settings(tmp_path: Path) -> None:
    recording = tmp_path / "recording.jsonl"
    recording.write_text(EXCHANGE)
    for found, pace in (
        (settings_of(replay=str(recording), pace=2.5), 2.5),
        (settings_of(replay=str(recording)), 1.0),
    ):
        replay = found[0].service.replay
        assert isinstance(replay, Replay)
        assert replay._pace == pace  # pyright: ignore[reportPrivateUsage]


def test_each_replica_has_settings_of_its_own() -> None:
    assert settings_of("events=5", replicas=["port=81 speed=0.5", "outage=1-2"]) == [
        Settings(port=81, service=ServiceSettings(knobs=Knobs(events=5), replica=Replica(port=81, speed=0.5))),
        Settings(service=ServiceSettings(knobs=Knobs(events=5), replica=Replica(outages=(Outage(1, 2),)))),
    ]


def test_a_child_prints_its_ports_and_leaves_ctrl_c(started: Started, capsys: pytest.CaptureFixture[str]) -> None:
    process_module.run_child('{"directive": "", "port": 81}')
    assert (list(started.settings), started.watch, started.frozen) == ([replace(DEFAULTS, port=81)], 0, True)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert started.announce is not None
    first, second = Simulator("h", 81, 5), Simulator("h", 82, 5)
    started.announce(Simulator("h", 81, 5, (first, second)))
    assert capsys.readouterr().out == '["h", [81, 82]]\n'


def test_a_port_that_cannot_be_used_is_named(started: Started) -> None:
    started.error = OSError(98, "Address already in use")
    with pytest.raises(SystemExit) as caught:
        process_module.run_child('{"port": 81}')
    assert caught.value.code == "cannot listen on 127.0.0.1:81: Address already in use"


# --- the process ---


@pytest.mark.parametrize(("watch", "watched"), [(None, []), (0, ["watch 0"]), (7, ["watch 7"])])
def test_servers_run_until_ctrl_c(monkeypatch: pytest.MonkeyPatch, watch: int | None, watched: list[str]) -> None:
    seen: list[str] = []
    simulator = Simulator("h", 81, 5)

    class FirstServer:
        def watch(self, descriptor: int) -> None:
            seen.append(f"watch {descriptor}")

        def run(self) -> None:
            seen.append("run")
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def servers(settings: Sequence[Settings]) -> Iterator[tuple[list[FirstServer], Simulator]]:
        assert settings == [DEFAULTS]
        yield [FirstServer()], simulator
        seen.append("end")

    monkeypatch.setattr(process_module, "_servers", servers)
    monkeypatch.setattr(process_module, "allow_many_sockets", lambda: seen.append("sockets"))
    process_module.serve([DEFAULTS], lambda given: seen.append(given.origin), watch=watch)
    assert seen == ["sockets", *watched, "http://h:81", "run", "end"]


def test_a_page_is_read_over_a_connection_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    class Connection:
        def __init__(self, host: str, port: int, *, timeout: float) -> None:
            seen.append((host, port, timeout))

        def request(self, method: str, path: str, body: str) -> None:
            seen.append((method, path, body))

        def getresponse(self) -> object:
            raise Stop

        def close(self) -> None:
            seen.append("close")

    monkeypatch.setattr(http.client, "HTTPConnection", Connection)
    simulator = Simulator("h", 81, 5)
    with pytest.raises(Stop):
        simulator.limit_counts()
    with pytest.raises(Stop):
        simulator.change_limits(["concurrent=2", Limit(key="k", tokens_per_minute=5)])
    limits = '["concurrent=2", "key=k tokens-per-minute=5"]'
    start = ("h", 81, 20.0)
    assert seen == [start, ("GET", "/sim/limits", ""), "close", start, ("PUT", "/sim/limits", limits), "close"]


class Stop(Exception):
    pass


def test_the_child_gets_every_option(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    recording = tmp_path / "recording.jsonl"
    recording.write_text(EXCHANGE)
    commands: list[tuple[list[str], dict[str, Any]]] = []

    def popen(command: list[str], **options: Any) -> None:
        commands.append((command, options))
        raise Stop

    monkeypatch.setattr(subprocess, "Popen", popen)
    with pytest.raises(Stop), open_simulator():
        pass
    with (
        pytest.raises(Stop),
        open_simulator(
            "events=5", host="h", port=81, journal=3, replay=str(recording), pace=2.5,
            limits=[Limit(concurrent=2), "requests-per-minute=6"], batch="step=0.5",
            batch_time="7", caches="lag=2",
        ),
    ):  # fmt: skip
        pass
    with pytest.raises(Stop), open_simulator(replicas=["speed=2", "fail=1"]):
        pass
    path: Any = recording
    with pytest.raises(Stop), open_simulator(replay=path):
        pass
    folder = os.path.dirname(os.path.realpath(process_module.__file__))
    start = [sys.executable, "-P", "-c", process_module._BOOT, folder]  # pyright: ignore[reportPrivateUsage]
    piped = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "start_new_session": True}
    full = {
        "directive": "events=5", "host": "h", "port": 81, "journal": 3, "replay": str(recording), "pace": 2.5,
        "limits": ["concurrent=2", "requests-per-minute=6"], "batch": "step=0.5", "batch_time": "7", "caches": "lag=2",
    }  # fmt: skip
    assert [(command[:-1], json.loads(command[-1]), options) for command, options in commands] == [
        (start, {"directive": ""}, piped),
        (start, full, piped),
        (start, {"directive": "", "replicas": ["speed=2", "fail=1"]}, piped),
        (start, {"directive": "", "replay": str(recording)}, piped),
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"replay": "/nowhere"},
        {"limits": ["x"]},
        {"batch": "x"},
        {"caches": "x"},
        {"replicas": ["x"]},
        {"port": 1, "replicas": [""]},
        {"port": 65_536},
        {"port": -1},
        {"replicas": ["port=65536"]},
        {"journal": -1},
    ],
)
def test_wrong_options_start_no_process(monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)
    with (
        pytest.raises(ValueError, match=r"nowhere|limit|batch|caches|replica|^port: |^journal: "),
        open_simulator(**options),
    ):
        pass


def child(code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def announced(code: str) -> Simulator:
    process = child(code)
    try:
        return process_module._announced(process)  # pyright: ignore[reportPrivateUsage]
    finally:
        process_module._stop(process)  # pyright: ignore[reportPrivateUsage]
        assert process.returncode is not None


def test_the_address_may_come_in_pieces() -> None:
    simulator = announced(
        "import sys; print('[\"h\", ', end='', flush=True); sys.stderr.flush(); print('[81, 82]]', flush=True);"
        "sys.stdin.read()"
    )
    first = Simulator("h", 81, simulator.pid)
    assert simulator == Simulator("h", 81, simulator.pid, (first, Simulator("h", 82, simulator.pid)))


def test_a_child_that_ends_at_once_shows_what_it_printed() -> None:
    with pytest.raises(SimulatorError) as caught:
        announced("print('oh no', end='')")
    assert str(caught.value) == "the simulator ended during its start; its output: b'oh no'"


def test_a_child_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "START_SECONDS", 0.05)
    with pytest.raises(SimulatorError) as caught:
        announced("import sys; sys.stdin.read()")
    assert str(caught.value) == "the simulator did not start within 0.05 s"


WAITS = "import signal, sys; {first}; print('ready', flush=True); [signal.pause() for _ in iter(int, 1)]"


@pytest.mark.skipif(sys.platform == "win32", reason="the platform has other signals")
@pytest.mark.parametrize(
    ("first", "ended"), [("pass", signal.SIGTERM), ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", signal.SIGKILL)]
)
def test_a_child_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch, first: str, ended: signal.Signals) -> None:
    monkeypatch.setattr(process_module, "STOP_SECONDS", 0.05)
    process = child(WAITS.format(first=first))
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process_module._stop(process)  # pyright: ignore[reportPrivateUsage]
    assert process.returncode == -ended
    assert (process.stdin.closed, process.stdout.closed) == (True, True)


# --- a simulator in a thread, and its limits ---


def test_a_thread_gets_every_option(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Sequence[Settings]] = []

    def servers(settings: Sequence[Settings]) -> None:
        seen.append(settings)
        raise Stop

    monkeypatch.setattr(process_module, "_servers", servers)
    with pytest.raises(Stop), open_simulator_thread():
        pass
    with (
        pytest.raises(Stop),
        open_simulator_thread(
            "events=5",
            host="h",
            port=81,
            journal=3,
            limits=["concurrent=2"],
            batch="step=0.5",
            batch_time="7",
            caches="lag=2",
        ),
    ):
        pass
    with pytest.raises(Stop), open_simulator_thread(replicas=["speed=2"]):
        pass
    service = ServiceSettings(
        knobs=Knobs(events=5), journal=3, limits=(Limit(concurrent=2),), batch=BatchModel(step=0.5),
        batch_time=BatchTime(median=7), caches=CacheModel(lag=2),
    )  # fmt: skip
    assert seen == [
        [DEFAULTS],
        [Settings(host="h", port=81, service=service)],
        [Settings(service=ServiceSettings(replica=Replica(speed=2.0)))],
    ]


def test_the_threads_of_all_replicas_end_with_the_block() -> None:
    def threads() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "simulator"]

    with open_simulator_thread("events=1", replicas=["speed=1", "speed=2", "speed=3"]) as simulator:
        assert [thread.daemon for thread in threads()] == [True, True, True]
        assert [ask(replica).whole for replica in simulator.replicas] == [True, True, True]
        assert [replica.replicas for replica in simulator.replicas] == [(), (), ()]
        assert {(replica.host, replica.pid) for replica in simulator.replicas} == {("127.0.0.1", os.getpid())}
        assert simulator.port == simulator.replicas[0].port
    assert threads() == []
    for replica in simulator.replicas:
        with pytest.raises(OSError, match="refused"):
            ask(replica)


def test_limits_are_changed_and_counted_from_outside() -> None:
    with open_simulator_thread("events=3", limits=[Limit(server="groq", requests_per_minute=2)]) as simulator:
        assert [ask(simulator).status for _ in range(3)] == [200, 200, 429]
        none = {"requests": 0.0, "input_tokens": 0.0, "output_tokens": 0.0, "tokens": 0.0}
        used = {"requests": 2.0, "input_tokens": 4.0, "output_tokens": 6.0, "tokens": 10.0}
        assert simulator.limit_counts() == [LimitCounts(2, 1, {"requests": 1}, used)]
        simulator.change_limits(["server=groq requests-per-minute=60000000", Limit(key="k", concurrent=1)])
        assert ask(simulator).status == 200
        used = {"requests": 3.0, "input_tokens": 6.0, "output_tokens": 9.0, "tokens": 15.0}
        assert simulator.limit_counts() == [LimitCounts(3, 1, {"requests": 1}, used), LimitCounts(0, 0, {}, none)]
        page: Any = get(simulator, "/sim/limits")
        assert [limit["limit"] for limit in page] == [
            "server=groq requests-per-minute=60000000.0",
            "key=k concurrent=1",
        ]
        with pytest.raises(KnobError, match="limit"):
            simulator.change_limits(["speed=1"])
        assert len(simulator.limit_counts()) == 2
        assert statistics(simulator)["connections"] == 1
