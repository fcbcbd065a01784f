"""Run a simulator: in the foreground, in a process of its own, or in a thread.

`open_simulator` is for tests, demos and benchmarks. The simulator runs in another process, so it takes no processor
time from the client that is measured. It ends with the `with` block. It also ends when the parent process ends in any
way: the child reads a pipe whose other end only the parent holds, and stops at the end of the pipe.

The child imports this folder and `http_server` alone, by their path and as parts of a package with another name. It
does not import the rest of the package. So it starts sooner, and it shares no code with the library that it tests.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict, Unpack

from ..http_server import allow_many_sockets
from .batches import read_batch_time
from .inference import read_batch
from .knobs import KnobError, Knobs, combine
from .limit import Limit, read_limit
from .limiter import LimitCounts
from .prompt_caches import CacheCounts, read_caches
from .replay import read_replay
from .replica import read_replica
from .server import Server, Settings
from .service import BASE_PATHS, ServiceSettings

START_SECONDS = 20.0
"""How long the start of the process may take."""

STOP_SECONDS = 5.0
"""How long the end of the process may take before it is terminated, and then killed."""

_BOOT = """
import os, sys, types
package = sys.modules["standalone"] = types.ModuleType("standalone")
package.__path__ = [os.path.dirname(sys.argv[1])]
from standalone.simulator.process import run_child
run_child(sys.argv[2])
"""


class SimulatorError(RuntimeError):
    """The simulator's process did not start. The message has its output."""


@dataclass(slots=True, frozen=True)
class Simulator:
    """A running simulator.

    host, port: where it listens.
    pid: its process; the process of the caller where the simulator runs in a thread.
    replicas: all replicas, this one first. A replica's own `replicas` is empty.
    """

    host: str
    port: int
    pid: int
    replicas: tuple[Simulator, ...] = ()

    @property
    def origin(self) -> str:
        """`http://host:port`, without a path."""
        return f"http://{self.host}:{self.port}"

    @property
    def base_urls(self) -> dict[str, str]:
        """Dialect (`openai-chat`, `openai-responses`, `anthropic`, `gemini`) → base URL for a client of it."""
        return {dialect: self.origin + path for dialect, path in BASE_PATHS.items()}

    def change_limits(self, limits: Sequence[Limit | str]) -> None:
        """Replace the rate limits. Levels of buckets change in proportion. Raises `KnobError`."""
        read = [read_limit(limit) if isinstance(limit, str) else limit for limit in limits]
        self._request("PUT", json.dumps([limit.text for limit in read]))

    def limit_counts(self) -> list[LimitCounts]:
        """What each limit has accepted, refused and charged so far, in the order of the limits."""
        return [
            LimitCounts(page["accepted"], page["refused"], page["refused_by"], page["charged"])
            for page in json.loads(self._request("GET", ""))
        ]

    def cache_counts(self) -> dict[str, CacheCounts]:
        """What the requests for each model have read from the prompt caches, written, and cost."""
        pages = json.loads(self._request("GET", "", "/sim/caches"))
        return {model: CacheCounts(**page) for model, page in pages.items()}

    def _request(self, method: str, body: str, page: str = "/sim/limits") -> bytes:
        from http.client import HTTPConnection

        connection = HTTPConnection(self.host, self.port, timeout=START_SECONDS)
        try:
            connection.request(method, page, body)
            return connection.getresponse().read()
        finally:
            connection.close()


class SimulatorOptions(TypedDict, total=False):
    """The options of `open_simulator` and `open_simulator_thread`.

    host: the address at which it listens. Default: `127.0.0.1`.
    port: its port. Default, and 0: a free one.
    journal: how many requests `GET /sim/requests` returns. Default: 256.
    replay: path of a recording; all answers come from it.
    pace: speed relative to the recording; 0 leaves out all pauses. Default: 1.
    limits: rate limits, as `Limit` or as text: `"server=openai requests-per-minute=600"`.
    batch: answers share an inference server, as `read_batch` reads it: `"step=0.02 kv=100000 queue=64"`.
    batch_time: how long batches of the batch interfaces take, as `read_batch_time` reads it: `"median=420 p90=3600"`.
    caches: prompts are cached, as `read_caches` reads it: `"machines=4 lag=0.5 cold=3 warm=0.6"`.
    replicas: several servers, each with a port of its own, as `read_replica` reads them: `"speed=0.1 fail=0.3"`.
    """

    host: str
    port: int
    journal: int
    replay: str
    pace: float
    limits: Sequence[Limit | str]
    batch: str
    batch_time: str
    caches: str
    replicas: Sequence[str]


def settings_of(
    directive: str = "",
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    journal: int = 256,
    replay: str = "",
    pace: float = 1.0,
    limits: Sequence[Limit | str] = (),
    batch: str = "",
    batch_time: str = "",
    caches: str = "",
    replicas: Sequence[str] = (),
) -> list[Settings]:
    """The settings of each replica, from the same arguments as `open_simulator`. Raises `KnobError` and
    `ReplayError`."""
    service = ServiceSettings(
        knobs=combine(Knobs(), directive),
        journal=journal,
        replay=read_replay(replay, pace) if replay else None,
        limits=tuple(read_limit(limit) if isinstance(limit, str) else limit for limit in limits),
        batch=read_batch(batch) if batch else None,
        batch_time=read_batch_time(batch_time),
        caches=read_caches(caches) if caches else None,
    )
    if not replicas:
        return [Settings(host=host, port=port, service=service)]
    if port:
        raise KnobError("port: with replicas, each replica has a port of its own: write replica port=8081")
    read = [read_replica(text) for text in replicas]
    return [Settings(host=host, port=one.port, service=replace(service, replica=one)) for one in read]


def serve(settings: Sequence[Settings], announce: Callable[[Simulator], None], *, watch: int | None = None) -> None:
    """Run one server for each settings in the foreground, until `KeyboardInterrupt`, or until the file descriptor
    `watch` reaches its end."""
    allow_many_sockets()
    with _servers(settings) as (servers, simulator):
        if watch is not None:
            servers[0].watch(watch)
        announce(simulator)
        with contextlib.suppress(KeyboardInterrupt):
            servers[0].run()


@contextlib.contextmanager
def open_simulator(directive: str = "", **options: Unpack[SimulatorOptions]) -> Generator[Simulator, None, None]:
    """Run a simulator in a process of its own for the length of the block.

    directive: default knobs of all answers, such as `"rate=50,events=250"`.
    options: those of `SimulatorOptions`.

    Raises `KnobError` and `ReplayError` for these, and `SimulatorError` if the process does not start.
    """
    settings_of(directive, **options)
    folder = str(Path(__file__).resolve().parent)
    given = json.dumps({"directive": directive, **options}, default=_as_text)
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _BOOT, folder, given],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # else Ctrl-C in a terminal would reach the child too
    )
    try:
        yield _announced(process)
    finally:
        _stop(process)


def _as_text(value: object) -> str:
    return value.text if isinstance(value, Limit) else str(value)


def run_child(given: str) -> None:
    """Run the simulator of `open_simulator` in this process until the parent ends. given: its arguments, as JSON."""
    settings = settings_of(**json.loads(given))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the child too; the parent ends it
    gc.freeze()  # imported modules stay: the garbage collector need not scan them
    try:
        serve(settings, _announce, watch=0)
    except OSError as error:
        sys.exit(f"cannot listen on {settings[0].host}:{settings[0].port}: {error.strerror}")


def _announce(simulator: Simulator) -> None:
    print(json.dumps([simulator.host, [replica.port for replica in simulator.replicas]]), flush=True)


@contextlib.contextmanager
def open_simulator_thread(directive: str = "", **options: Unpack[SimulatorOptions]) -> Generator[Simulator, None, None]:
    """Run a simulator in a thread of this process for the length of the block.

    It starts sooner than `open_simulator`, and shares the interpreter with its client. The arguments are the same.
    """
    settings = settings_of(directive, **options)
    with _servers(settings) as (servers, simulator):
        thread = _start(servers[0])
        try:
            yield simulator
        finally:
            servers[0].stop()
            thread.join(STOP_SECONDS)


@contextlib.contextmanager
def _servers(settings: Sequence[Settings]) -> Generator[tuple[list[Server], Simulator], None, None]:
    """Servers that listen. All but the first run, each in a thread, for the length of the block."""
    servers: list[Server] = []
    threads: list[threading.Thread] = []
    try:
        servers += [Server(one) for one in settings]
        threads += [_start(server) for server in servers[1:]]
        first, *others = [Simulator(server.host, server.port, os.getpid()) for server in servers]
        yield servers, replace(first, replicas=(first, *others))
    finally:
        for server in servers[1:]:
            server.stop()
        for thread in threads:
            thread.join(STOP_SECONDS)


def _start(server: Server) -> threading.Thread:
    thread = threading.Thread(target=server.run, name="simulator", daemon=True)
    thread.start()
    return thread


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
    host, ports = json.loads(line)
    first, *others = [Simulator(host, port, process.pid) for port in ports]
    return replace(first, replicas=(first, *others))


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
