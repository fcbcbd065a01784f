"""Run a simulator: in the foreground, in a process of its own, or in a thread.

`open_simulator` is for tests, demos and benchmarks. The simulator runs in another process, so it takes no processor
time from the client that is measured. It ends with the `with` block. It also ends when the parent process ends in any
way: the child reads a pipe whose other end only the parent holds, and stops at the end of the pipe.

The child imports this folder alone, by its path and under another name. It does not import the rest of the package.
So it starts sooner, and it shares no code with the library that it tests.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path

from .knobs import combine
from .replay import read_replay
from .server import Server, Settings
from .service import BASE_PATHS

START_SECONDS = 20.0
"""How long the start of the process may take."""

STOP_SECONDS = 5.0
"""How long the end of the process may take before it is terminated, and then killed."""

_BOOT = """
import importlib.util, sys
folder = sys.argv[1]
specification = importlib.util.spec_from_file_location(
    "simulator", folder + "/__init__.py", submodule_search_locations=[folder]
)
package = sys.modules["simulator"] = importlib.util.module_from_spec(specification)
specification.loader.exec_module(package)
from simulator.__main__ import main
sys.exit(main(sys.argv[2:]))
"""


class SimulatorError(RuntimeError):
    """The simulator's process did not start. The message has its output."""


@dataclass(slots=True, frozen=True)
class Simulator:
    """A running simulator.

    host, port: where it listens.
    pid: its process; the process of the caller where the simulator runs in a thread.
    """

    host: str
    port: int
    pid: int

    @property
    def origin(self) -> str:
        """`http://host:port`."""
        return f"http://{self.host}:{self.port}"

    @property
    def base_urls(self) -> dict[str, str]:
        """Dialect (`openai-chat`, `openai-responses`, `anthropic`, `gemini`) → base URL for a client of it."""
        return {dialect: self.origin + path for dialect, path in BASE_PATHS.items()}


def settings_of(
    directive: str = "",
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    journal: int = 256,
    replay: str = "",
    pace: float = 1.0,
) -> Settings:
    """Settings from the same arguments as `open_simulator`. Raises `KnobError` and `ReplayError`."""
    knobs = combine(Settings().knobs, directive)
    recording = read_replay(replay, pace) if replay else None
    return Settings(host=host, port=port, knobs=knobs, journal=journal, replay=recording)


def serve(settings: Settings, announce: Callable[[Simulator], None], *, watch: int | None = None) -> None:
    """Run in the foreground until `KeyboardInterrupt`, or until the file descriptor `watch` reaches its end."""
    allow_many_sockets()
    server = Server(settings)
    if watch is not None:
        server.watch(watch)
    announce(Simulator(server.host, server.port, os.getpid()))
    with contextlib.suppress(KeyboardInterrupt):
        server.run()


@contextlib.contextmanager
def open_simulator(
    directive: str = "",
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    journal: int = 256,
    replay: str = "",
    pace: float = 1.0,
) -> Generator[Simulator, None, None]:
    """Run a simulator in a process of its own for the length of the block.

    directive: default knobs of all answers, such as `"rate=50,events=250"`.
    port: 0 takes a free port.
    journal: how many requests `GET /sim/requests` returns.
    replay: path of a recording; all answers come from it.
    pace: speed relative to the recording; 0 leaves out all pauses.

    Raises `KnobError` and `ReplayError` for these, and `SimulatorError` if the process does not start.
    """
    settings_of(directive, replay=replay, pace=pace)
    folder = str(Path(__file__).resolve().parent)
    options = ["--host", host, "--port", str(port), "--journal", str(journal), "--default", directive, "--child"]
    options += ["--replay", replay, "--pace", str(pace)]
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _BOOT, folder, *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # else Ctrl-C in a terminal would reach the child too
    )
    try:
        yield _announced(process)
    finally:
        _stop(process)


@contextlib.contextmanager
def open_simulator_thread(
    directive: str = "", *, host: str = "127.0.0.1", port: int = 0, replay: str = "", pace: float = 1.0
) -> Generator[Simulator, None, None]:
    """Run a simulator in a thread of this process for the length of the block.

    It starts sooner than `open_simulator`, and shares the interpreter with its client. The arguments are the same.
    """
    server = Server(settings_of(directive, host=host, port=port, replay=replay, pace=pace))
    thread = threading.Thread(target=server.run, name="simulator", daemon=True)
    thread.start()
    try:
        yield Simulator(server.host, server.port, os.getpid())
    finally:
        server.stop()
        thread.join(STOP_SECONDS)


def allow_many_sockets() -> None:
    """Raise the limit of open files of this process as far as the system allows."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _announced(process: subprocess.Popen[bytes]) -> Simulator:
    """Wait for the line in which the child prints its address."""
    assert process.stdout is not None
    deadline = time.monotonic() + START_SECONDS
    line = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while not line.endswith(b"\n"):
            if not selector.select(max(0.0, deadline - time.monotonic())):
                raise SimulatorError(f"the simulator did not start within {START_SECONDS:g} s")
            data = os.read(process.stdout.fileno(), 4096)
            if not data:
                raise SimulatorError(f"the simulator ended during its start; its output: {line!r}")
            line += data
    address: dict[str, object] = json.loads(line)
    return Simulator(str(address["host"]), int(str(address["port"])), process.pid)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the child: close its input, then terminate it, then kill it."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.stdout.close()
    for end in (None, process.terminate, process.kill):
        if end is not None:
            end()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
            return
