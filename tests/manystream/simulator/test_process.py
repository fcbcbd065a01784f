"""A simulator in a process of its own: it starts, prints its address, and leaves no process behind."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from manystream.simulator import (
    KnobError,
    Simulator,
    SimulatorError,
    open_simulator,
    open_simulator_thread,
    settings_of,
)
from manystream.simulator import process as process_module

from .raw_client import PATIENCE, ask, body_of, connected, get, path_of, request_bytes, statistics

ORPHAN = """
import os, sys
from manystream.simulator import open_simulator
with open_simulator() as simulator:
    print(simulator.pid, flush=True)
    sys.stdin.read()
"""
"""A program that starts a simulator, prints its process id, and waits to be killed."""


def is_alive(pid: int) -> bool:
    """Whether a process runs. A process that ended and was not waited for does not run."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as state:
            return state.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return sys.platform != "linux"


def wait_for_end(pid: int) -> None:
    """Wait until a process that is not a child has ended."""
    deadline = time.monotonic() + PATIENCE
    while is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.01)  # the end of a process that is not a child cannot be waited for


def test_it_runs_in_another_process_until_the_block_ends() -> None:
    with open_simulator("events=3") as simulator:
        assert simulator.pid != os.getpid()
        assert is_alive(simulator.pid)
        assert len(ask(simulator).events) == 6
    assert not is_alive(simulator.pid)


def test_it_is_gone_after_an_exception_in_the_block() -> None:
    started: list[Simulator] = []

    def fail() -> None:
        with open_simulator() as simulator:
            started.append(simulator)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not is_alive(started[0].pid)


def test_it_ends_when_its_parent_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ORPHAN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_alive(pid)
        parent.kill()
    wait_for_end(pid)


def test_ctrl_c_is_left_to_the_parent() -> None:
    with open_simulator() as simulator:
        os.kill(simulator.pid, signal.SIGINT)
        assert ask(simulator).whole


def test_it_ends_at_once_though_streams_are_live() -> None:
    with open_simulator("rate=1,events=1000") as simulator, connected(simulator) as line:
        line.send(request_bytes(path_of("openai-chat"), body_of("openai-chat", stream=True)))
        assert line.more()
        begin = time.monotonic()
        os.kill(simulator.pid, 0)
    assert time.monotonic() - begin < 3


def test_base_urls_are_what_each_client_takes() -> None:
    simulator = Simulator("127.0.0.1", 80, 1)
    assert simulator.base_urls == {
        "openai-chat": "http://127.0.0.1:80/v1", "openai-responses": "http://127.0.0.1:80/v1",
        "anthropic": "http://127.0.0.1:80", "gemini": "http://127.0.0.1:80",
        "gemini-interactions": "http://127.0.0.1:80",
    }  # fmt: skip


def test_a_wrong_directive_is_told_before_anything_starts() -> None:
    with pytest.raises(KnobError, match="speed"), open_simulator("speed=1"):
        pass


def test_a_port_that_is_taken_is_a_clear_error(capfd: pytest.CaptureFixture[str]) -> None:
    with (
        open_simulator_thread() as first,
        pytest.raises(SimulatorError, match="ended during its start"),
        open_simulator(port=first.port),
    ):
        pass
    assert f"cannot listen on 127.0.0.1:{first.port}" in capfd.readouterr().err


def test_a_start_that_takes_too_long_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "_BOOT", "import sys; sys.stdin.read()")
    monkeypatch.setattr(process_module, "START_SECONDS", 0.1)
    with pytest.raises(SimulatorError, match="did not start within"), open_simulator():
        pass


def test_the_child_loads_nothing_of_the_package_around_it() -> None:
    boot = process_module._BOOT.replace(  # pyright: ignore[reportPrivateUsage]
        "run_child(sys.argv[2])", "print(sorted(m for m in sys.modules if m in ('trio', 'h11', 'manystream')))"
    )
    folder = os.path.dirname(process_module.__file__)
    loaded = subprocess.run(
        [sys.executable, "-P", "-c", boot, folder], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert loaded.stdout.strip() == "[]"


@pytest.mark.skipif(sys.platform == "win32", reason="the platform has no such limit")
def test_the_limit_of_sockets_is_raised_as_far_as_possible() -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        process_module.allow_many_sockets()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_thread_serves_as_well_and_leaves_nothing() -> None:
    before = threading.active_count()
    with open_simulator_thread("events=2") as simulator:
        assert simulator.pid == os.getpid()
        assert ask(simulator).whole
        assert get(simulator, "/sim/requests")
        assert statistics(simulator)["completed"] == 1
    assert threading.active_count() <= before  # trio's idle worker threads of earlier tests may end meanwhile


@pytest.mark.parametrize("start", [open_simulator, open_simulator_thread])
def test_a_misspelt_option_is_refused(start: Callable[..., AbstractContextManager[Simulator]]) -> None:
    with pytest.raises(TypeError, match="limit"), start(limit=["concurrent=2"]):
        pass


def test_a_recording_is_replayed_at_its_own_pace() -> None:
    parameters = inspect.signature(settings_of).parameters
    assert parameters["pace"].default == 1.0
    assert {name: parameters[name].default for name in ("directive", "replay", "limits", "batch", "replicas")} == {
        "directive": "", "replay": "", "limits": (), "batch": "", "replicas": (),
    }  # fmt: skip


def test_the_journal_is_as_long_as_it_is_set_to() -> None:
    with open_simulator(journal=2) as simulator:
        for _ in range(4):
            ask(simulator)
        shown = get(simulator, "/sim/requests")
    assert isinstance(shown, list)
    assert len(shown) == 2
