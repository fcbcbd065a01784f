"""Running a simulator: in the foreground, in a process of its own, or in a thread.

`open_simulator` is what tests, demos and benchmarks use: the simulator runs in another process, so it takes no
time from the client that is being measured, and it ends with the `with` block. It also ends when this process does,
however that happens: the child reads a pipe that nobody else holds, and stops at its end.

The child loads this folder alone, under another name, by its path: not the package around it. It starts in a
fraction of the time, and shares no code with what it is used to test.
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
"""How long a start may take before it is an error."""

STOP_SECONDS = 5.0
"""How long a stop may take before the process is killed."""

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
    """The simulator's process did not start. The message has what it said."""


@dataclass(slots=True, frozen=True)
class Simulator:
    """A simulator that runs. `pid` is its process, this one's own where it runs in a thread."""

    host: str
    port: int
    pid: int

    @property
    def origin(self) -> str:
        """`http://host:port`."""
        return f"http://{self.host}:{self.port}"

    @property
    def base_urls(self) -> dict[str, str]:
        """Dialect → what a client of it takes as its base URL: `openai-chat`, `openai-responses`, `anthropic`,
        `gemini`."""
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
    """Settings whose default knobs are a directive's: `"rate=50,events=250"`. replay: the path of a recording to answer
    from; pace: how much faster than recorded, 0 at once. Raises `KnobError`, and `ReplayError` for the recording."""
    knobs = combine(Settings().knobs, directive)
    recording = read_replay(replay, pace) if replay else None
    return Settings(host=host, port=port, knobs=knobs, journal=journal, replay=recording)


def serve(settings: Settings, announce: Callable[[Simulator], None], *, watch: int | None = None) -> None:
    """Run in the foreground, until `KeyboardInterrupt` or the end of the file that `watch` describes."""
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

    directive: the server's default knobs. replay, pace: as in `settings_of`. Raises `KnobError` and `ReplayError` for
    those, and `SimulatorError` where it does not start.
    """
    settings_of(directive, replay=replay, pace=pace)
    folder = str(Path(__file__).resolve().parent)
    options = ["--host", host, "--port", str(port), "--journal", str(journal), "--default", directive, "--child"]
    options += ["--replay", replay, "--pace", str(pace)]
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _BOOT, folder, *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C goes to a terminal's whole group; the parent decides what it ends
    )
    try:
        yield _announced(process)
    finally:
        _stop(process)


@contextlib.contextmanager
def open_simulator_thread(
    directive: str = "", *, host: str = "127.0.0.1", port: int = 0, replay: str = "", pace: float = 1.0
) -> Generator[Simulator, None, None]:
    """Run a simulator in a thread of this process for the length of the block: quick to start, for tests whose
    client does not mind sharing its interpreter."""
    server = Server(settings_of(directive, host=host, port=port, replay=replay, pace=pace))
    thread = threading.Thread(target=server.run, name="simulator", daemon=True)
    thread.start()
    try:
        yield Simulator(server.host, server.port, os.getpid())
    finally:
        server.stop()
        thread.join(STOP_SECONDS)


def allow_many_sockets() -> None:
    """Raise this process's limit of open files as far as it may go, where there is one."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _announced(process: subprocess.Popen[bytes]) -> Simulator:
    """Wait for the line in which the child says where it listens."""
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
                raise SimulatorError(f"the simulator ended while it started; it said {line!r}")
            line += data
    told: dict[str, object] = json.loads(line)
    return Simulator(str(told["host"]), int(str(told["port"])), process.pid)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the child: by the end of its input, by a signal where that does not do."""
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
