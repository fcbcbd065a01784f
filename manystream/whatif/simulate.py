"""Run the engine itself in simulated time, against servers in memory.

The engine takes its clock from trio and its sockets from `dial=`. So it runs under a test's clock, with the simulator's
answers and limits at the other end of socket pairs, on the engine's own loop: no task of ours, no order by chance.
"""

from __future__ import annotations

import contextlib
import functools
import heapq
import random
import socket
import sys
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from functools import partial

import trio
import trio.testing

from .. import Completion, Engine, Retry, Timeouts, Traffic, open_engine
from ..engine.embedding import calls_of
from ..http_server import HTTPRequest, RequestReader, allow_many_sockets
from ..providers.catalog.provider import Provider
from ..providers.catalog.registry import dialect_of
from ..providers.errors import InvalidRequestError
from ..providers.model.options import Priority
from ..providers.model.provider_error import ErrorCategory, ProviderError
from ..providers.model.request import Request
from ..simulator.knobs import Knobs
from ..simulator.limiter import Ticket
from ..simulator.program import Ending, Program, no_response
from ..simulator.prompt import APIError
from ..simulator.scenario import Scenario, Tokens
from ..simulator.service import BASE_PATHS, Service, ServiceSettings, answer_program
from ..simulator.wire import Wire
from ..transport.loop import Loop
from ..transport.timers import Timer, Timers
from ..transport.url import parse_base_url
from .fit import Drawn, Fit, key_text
from .outcomes import Outcomes
from .recorded import LEFT, PROVIDERS, REFUSED, Recorded, Table

KEEP_ALIVE_SECONDS = 15.0
"""The longest silence of a simulated answer: a recorded one had its tokens in between."""

HORIZON = 86_400.0
"""Simulated seconds after the last recorded call. What still waits then is cancelled."""

NOTHING = Drawn(0.001, 0.0, 1, 0)
"""The answer of a server of which nothing is known."""

LARGEST_PROMPT = 4 * 1024 * 1024
"""Bytes. A larger prompt counts as one of this size."""

DIGITS = 10
"""A prompt begins with the number of its call, in so many digits."""


class MemoryConnection:
    """The server's end of a connection in memory. It sends one program after the other."""

    def __init__(self, servers: MemoryServers, sock: socket.socket, answers: Service) -> None:
        self.sock: socket.socket = sock
        self.label: str = "server in memory"
        self._servers, self._answers = servers, answers
        self._reader = RequestReader()
        self._program: Program | None = None
        self._ticket: Ticket | None = None
        self._frame = 0
        self._timer: Timer | None = None

    def on_readable(self) -> None:
        """Read requests."""
        try:
            data = self.sock.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._reader.feed(data)
            self._next()
        else:
            self._close(whole=False)

    def on_writable(self) -> None:
        """Do nothing: an answer is shorter than a socket's buffer."""

    def on_defect(self, error: Exception) -> None:
        self._close(whole=False)
        self._servers.failed(error)

    def _next(self) -> None:
        request = None if self._program is not None else self._reader.next_request()
        if request is not None:
            program = self._answers.answer(request)
            self._ticket = program.ticket
            self._begin(program, self._servers.loop.clock())

    def _begin(self, program: Program, since: float) -> None:
        self._program, self._frame = program, 0
        self._at(since + program.delay)

    def _at(self, when: float) -> None:
        self._timer = self._servers.timers.at(when, partial(self._send, when), self.on_defect)

    def _send(self, due: float) -> None:
        program = self._program
        assert program is not None
        last = self._frame + 1 if program.interval else len(program.frames)
        try:
            self.sock.send(b"".join(program.frames[self._frame : last]))
        except OSError:
            self._close(whole=False)
            return
        self._frame = last
        if last < len(program.frames):
            self._at(due + program.interval)
        elif program.following is not None:
            self._begin(program.following, due)
        elif program.ending is Ending.KEEP:
            self._ended(whole=True)
            self._next()
        elif program.ending is not Ending.STALL:
            self._close(whole=True)

    def _ended(self, *, whole: bool) -> None:
        self._program, ticket, self._ticket = None, self._ticket, None
        if ticket is not None:
            self._answers.end(ticket, whole=whole)

    def _close(self, *, whole: bool) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._ended(whole=whole)
        if self._servers.connections.pop(self, self) is None:
            self._servers.loop.remove(self)
            self.sock.close()


class MemoryServers:
    """Servers at the other end of socket pairs, on the loop of the engine whose `dial` this is.

    answers: host and port → what answers there. connections: the open ones.
    """

    def __init__(self, answers: Mapping[tuple[str, int], Service]) -> None:
        self._answers = answers
        self.loop: Loop
        self.timers: Timers
        self._failure: Exception | None = None
        self.connections: dict[MemoryConnection, None] = {}

    def serve(self, engine: Engine, seed: int, wall: float) -> None:
        """Serve on an engine's loop, and give it the simulated date, and jitter that is the same in each run."""
        runtime = calls_of(engine).starter.runtime
        self.loop, self.timers = runtime.loop, runtime.timers
        self.loop.limit_pauses(0.0)  # simulated pauses gather nothing
        runtime.source.seed(seed)
        runtime.wall_clock = lambda: wall + trio.current_time()

    def failed(self, error: Exception) -> None:
        """Keep what a server or a start has raised."""
        self._failure = self._failure or error

    def close(self) -> None:
        """Close what is left, after the engine's end. Raises what a server or a start has raised."""
        for connection in self.connections:
            connection.sock.close()
        if self._failure is not None:
            raise self._failure

    async def dial(self, host: str, port: int) -> socket.socket:
        """Return the client's end of a new connection."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        connection = MemoryConnection(self, ours, self._answers[host, port])
        self.connections[connection] = None
        self.loop.add(connection)
        await trio.lowlevel.checkpoint()
        return theirs


@contextlib.contextmanager
def same_order(seed: int) -> Generator[None]:
    """Let trio take the tasks of an iteration in the same order in each run: it draws lots."""
    lots = getattr(sys.modules.get("trio._core._run"), "_r", None)
    if not isinstance(lots, random.Random):
        yield
        return
    state = lots.getstate()
    lots.seed(seed)
    try:
        yield
    finally:
        lots.setstate(state)


class FittedService(Service):
    """The simulator's service for one origin, with fitted answers and limits."""

    def __init__(self, run: Simulation, origin: str) -> None:
        settings = ServiceSettings(journal=0, limits=tuple(run.fit.limits.get(origin, ())))
        super().__init__(settings, trio.current_time, run.wall)
        self._run = run
        recorded = run.fit.recorded
        self._servers = {
            (recorded.endpoint(server).number, name.partition("/")[2]): server
            for server, name in enumerate(recorded.servers.texts)
        }
        self._here = [server for server in self._servers.values() if recorded.endpoint(server).origin == origin]
        self._drawn = NOTHING
        self._server = 0

    def answer(self, request: HTTPRequest) -> Program:
        if request.method != "POST":  # how many calls are under way there, as inference servers say it
            self.statistics.live = sum(map(self._run.load, self._here))
            return super().answer(request)
        program = super().answer(request)
        refused = program.frames[0].startswith(b"HTTP/1.1 429")
        seconds = program.delay if program.usage is None else self._drawn.first + self._drawn.seconds
        self._run.arrived(self._server, 0.0 if refused else seconds, refused=refused)
        return program

    def _program(self, wire: Wire, request: HTTPRequest, *, batched: bool = False) -> Program:
        run, recorded, prompt = self._run, self._run.fit.recorded, wire.read(request)
        call, exchanges = int(prompt.text[:DIGITS]), recorded.exchanges
        run.call, self._server = call, self._servers[int(request.key.split("-")[1]), prompt.model]
        row = run.failure(call, self._server)
        drawn = run.fit.draw(call, self._server, run.load(self._server), run.seed)
        if drawn is None:
            run.unknown[recorded.servers.texts[self._server]] += 1
        self._drawn = drawn = drawn or NOTHING
        knobs = Knobs()
        if row >= 0:
            first, ended, how = exchanges["first"][row], exchanges["ended"][row], exchanges["how"][row]
            status = int(exchanges["status"][row])
            if status >= 400:
                return self._refused(wire, APIError(status, "as recorded"), request, delay=ended)
            if row != recorded.rows(call)[-1] or how != LEFT:  # else the program left it then: it ends for the call
                if not status:
                    return replace(no_response(ended), ending=Ending.STALL if how == LEFT else Ending.CLOSE)
                knobs = Knobs(stall=-1) if how == LEFT else Knobs(cut=-1)
            self._drawn = drawn = replace(drawn, first=first, seconds=ended - first)
        steps = 1 + int(drawn.seconds / KEEP_ALIVE_SECONDS)
        written = int(recorded.calls["written"][call])
        tokens = Tokens(
            recorded.input(call), recorded.cached(call), drawn.output - drawn.thinking, drawn.thinking,
            written if written >= 0 else None,
        )  # fmt: skip
        scenario = Scenario(identity=str(call), model=prompt.model, text_pieces=("x",) * steps, tokens=tokens)
        program = answer_program(wire, prompt, scenario, knobs, keep=request.keep_alive)
        if not prompt.stream:
            return replace(program, delay=drawn.first + drawn.seconds)
        frames = [*program.frames[:steps], b"".join(program.frames[steps:])]  # few, because each one costs a timer
        return replace(program, frames=frames, delay=drawn.first, interval=drawn.seconds / steps)


def providers_of(recorded: Recorded, *, simulated: bool = False) -> list[Provider]:
    """Return the providers of a recording. simulated: without TLS, and with the keys of the simulated servers."""
    found: list[Provider] = []
    for name, endpoint in recorded.endpoints.items():
        keys = [key_text(endpoint.number, key) for key in range(1, endpoint.keys + 1)] if simulated else "key"
        origin = endpoint.origin.replace("https://", "http://") if simulated else endpoint.origin
        found.append(PROVIDERS[endpoint.dialect](keys, origin + BASE_PATHS[endpoint.dialect], name=name))
    return found


class Simulation:
    """The calls of a recording, made again by an engine with other options.

    unknown: server of which the recording shows no speed → the requests that it got.
    notes: what else the figures do not say.
    """

    def __init__(
        self,
        fit: Fit,
        seed: int,
        models: Mapping[str, str],
        traffic: Traffic | None,
        timeouts: Timeouts | None,
        retry: Retry | None,
    ) -> None:
        self.fit: Fit = fit
        self.seed: int = seed
        self.outcomes: Outcomes = Outcomes()
        self.unknown: Counter[str] = Counter()
        self.notes: list[str] = []
        self.call: int = 0
        self._models, self._traffic, self._timeouts, self._retry = models, traffic, timeouts, retry
        self._routes = {route.name for route in (() if traffic is None else traffic.routes)}
        self._engine: Engine
        self._servers: MemoryServers
        self._done: trio.Event
        self._unfinished = len(fit.recorded.calls)
        self._visits: Counter[tuple[int, int]] = Counter()  # of the calls that have failed somewhere
        self._ends: dict[int, list[float]] = {}
        self._free = fit.recorded.calls["asked"][:]  # until when each call was at a server
        self._sessions = Table("follower", "after_end", "after_start")
        self._roots = self._find_sessions()

    def _find_sessions(self) -> Iterator[int]:
        """Find what follows each call of a session, and return the other calls, in the order of their starts.

        A call that was started before the one before it had ended follows its start; any other one follows its end.
        """
        recorded, roots = self.fit.recorded, list[int]()
        asked, latest = recorded.calls["asked"], dict[float, int]()
        for _ in asked:
            self._sessions.add()
        for call in sorted(range(len(asked)), key=asked.__getitem__):
            session = recorded.calls["session"][call]
            before = latest.get(session, -1) if session >= 0 else -1
            latest[session] = call
            if before < 0:
                roots.append(call)
            else:
                self._sessions["follower"][before], pause = call, asked[call] - recorded.ended(before)
                self._sessions["after_end"][before] = pause if pause >= 0 else -1.0
                self._sessions["after_start"][before] = asked[call] - asked[before] if pause < 0 else -1.0
        return iter(roots)

    def wall(self) -> float:
        """Return the simulated date in Unix seconds."""
        return self.fit.recorded.began + trio.current_time()

    def run(self) -> Outcomes:
        """Make the calls. Raises `InvalidRequestError` for options that do not fit the recording."""
        allow_many_sockets()
        for asked in self.fit.recorded.calls["asked"]:
            self.outcomes.calls.add(asked=asked, wait=0.0, refused=0.0, output=0.0)
        with same_order(self.seed):
            trio.run(self._main, clock=trio.testing.MockClock(autojump_threshold=0))
        return self.outcomes

    async def _main(self) -> None:
        recorded, providers = self.fit.recorded, providers_of(self.fit.recorded, simulated=True)
        self._providers = {provider.name: provider for provider in providers}
        origins = [parse_base_url(provider.base_url).origin for provider in providers]
        answers = {(origin.host, origin.port): FittedService(self, endpoint.origin)
                   for origin, endpoint in zip(origins, recorded.endpoints.values(), strict=True)}  # fmt: skip
        self._servers, self._done = MemoryServers(answers), trio.Event()
        async with open_engine(
            providers, traffic=self._traffic, timeouts=self._timeouts, retry=self._retry, dial=self._servers.dial,
            environment={}, proxy="",
        ) as engine:  # fmt: skip
            self._engine = engine
            self._servers.serve(engine, self.seed, recorded.began)
            self._start_next()
            with trio.move_on_after(max(recorded.calls["asked"]) + HORIZON):
                await self._done.wait()
            if self._unfinished:
                self.notes.append(f"{self._unfinished} calls had not ended a day after the last one was started")
        self._servers.close()

    def _at(self, when: float, call: int, *, is_root: bool = False) -> None:
        self._servers.timers.at(when, partial(self._start, call, is_root), self._servers.failed)

    def _start_next(self) -> None:
        call = next(self._roots, -1)
        if call >= 0:
            self._at(self.fit.recorded.calls["asked"][call], call, is_root=True)

    def _start(self, call: int, is_root: bool) -> None:
        recorded, now = self.fit.recorded, trio.current_time()
        if is_root:
            self._start_next()
        calls = recorded.calls
        self.outcomes.calls["asked"][call] = self._free[call] = now
        self._follow(call, "after_start")
        tenant, session, caps = (int(calls[name][call]) for name in ("tenant", "session", "caps"))
        requested, server = (
            recorded.names.texts[int(calls["requested"][call])],
            recorded.servers.texts[int(calls["server"][call])],
        )
        if requested not in self._routes:
            requested = server
        stream = calls["stream"][call] > 0
        pad = min(LARGEST_PROMPT, int(calls["size"][call])) - self._frame(server, caps, stream=stream)
        request = Request(
            self._models.get(requested, requested),
            f"{call:0{DIGITS}d}" + "x" * pad,
            max_output_tokens=caps if caps > 0 else None,
            priority=Priority(recorded.names.texts[int(calls["priority"][call])]),
            tenant=recorded.names.texts[tenant] or None,
            session=f"session-{session}" if session >= 0 else None,
        )
        on_completion = partial(self._ended, call)
        try:
            if stream:
                self._engine.start_stream(request, on_completion=on_completion)
            else:
                self._engine.start_request(request, on_completion)
        except InvalidRequestError as error:
            self.unknown[f"{request.model}: {error}"] += 1
            failed = ProviderError(str(error), category=ErrorCategory.INVALID_ARG)
            self._ended(call, Completion(False, error=failed))

    @functools.cache  # noqa: B019  # a few for each run
    def _frame(self, server: str, caps: int, *, stream: bool) -> int:
        """Return the bytes of a request beside what its prompt is filled up with, to the recorded size."""
        name, _, model = server.partition("/")
        request = Request(server, "0" * DIGITS, max_output_tokens=caps if caps > 0 else None)
        provider = self._providers[name]
        return len(dialect_of(provider.profile).encode(request, model, provider, stream=stream).body)

    def _ended(self, call: int, completion: Completion) -> None:
        calls, recorded, now = self.outcomes.calls, self.fit.recorded, trio.current_time()
        error, rows = completion.error_category, recorded.rows(call)
        if error is None and rows and recorded.exchanges["how"][rows[-1]] == LEFT:
            error = ErrorCategory.CANCELLED  # the program left its answer
        if error is None:
            calls["latency"][call] = now - calls["asked"][call]
            usage = None if completion.response is None else completion.response.usage
            calls["output"][call] = 0 if usage is None else (usage.output_tokens or 0) + (usage.thinking_tokens or 0)
        else:
            calls["failed"][call] = self.outcomes.categories.number(error.value)
            calls["wait"][call] += max(0.0, now - self._free[call])
        calls["cost"][call] = -1 if completion.cost is None else completion.cost
        self._unfinished -= 1
        if not self._unfinished:
            self._done.set()
        elif not self._engine.closed:
            self._follow(call, "after_end")

    def _follow(self, call: int, when: str) -> None:
        """Let the next call of a session come."""
        pause = self._sessions[when][call]
        if pause >= 0:
            self._at(trio.current_time() + pause, int(self._sessions["follower"][call]))

    # --- for the servers ---

    def load(self, server: int) -> int:
        """Return how many calls are under way at a server."""
        ends, now = self._ends.setdefault(server, []), trio.current_time()
        while ends and ends[0] <= now:
            heapq.heappop(ends)
        return len(ends)

    def failure(self, call: int, server: int) -> int:
        """Return the exchange whose failure a call meets again at a server: its first one at its first visit, and so
        on; -1 if that one was an answer, or there is none. What its limits refused is no failure here."""
        recorded, exchanges = self.fit.recorded, self.fit.recorded.exchanges
        rows = recorded.rows(call)
        if all(map(recorded.is_answer, rows)):
            return -1
        own = [row for row in rows if exchanges["server"][row] == server and not (
            exchanges["status"][row] == REFUSED and server in self.fit.refuses)]  # fmt: skip
        visit = self._visits[call, server]
        self._visits[call, server] += 1
        row = own[visit] if visit < len(own) else -1
        if row < 0 or recorded.is_answer(row):
            return -1
        end = exchanges["started"][row] + exchanges["ended"][row]
        overtaken = any(exchanges["started"][row] < exchanges["started"][other] < end for other in rows)
        return -1 if exchanges["how"][row] == LEFT and overtaken else row

    def arrived(self, server: int, seconds: float, *, refused: bool) -> None:
        """Note a request of the latest call. seconds: for which it is at the server."""
        calls, call, now = self.outcomes.calls, self.call, trio.current_time()
        calls["wait"][call] += max(0.0, now - self._free[call])
        self._free[call] = max(self._free[call], now + seconds)
        calls["server"][call] = server
        calls["refused"][call] += refused
        if refused and server in self.fit.refuses and (call, server) in self._visits:
            self._visits[call, server] -= 1  # a limit refused it: it was no visit
        elif not refused:
            heapq.heappush(self._ends.setdefault(server, []), now + seconds)
