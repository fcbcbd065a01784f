"""What do many calls with one beginning of their prompts pay for it? The engine runs in simulated time.

    python -m benchmarks.prefixes [--plot] [ROW…]

All calls start at once. The server is the simulator's service, whose prompt caches follow Anthropic's rules; only
sockets and the clock are modelled. A response begins after 3 s if it has read nothing from the cache, else after
0.6 s, give or take a quarter, and takes 8 s more. Each cell has the cost by the simulator's account, in beginnings at
the price of uncached input; the median seconds to the first token; and the seconds until all calls have ended. The exit
code is 1 if a bound is not met. `--plot` draws the cost over the number of calls.
"""

from __future__ import annotations

import argparse
import socket
import statistics
from collections.abc import Awaitable, Callable
from dataclasses import astuple, dataclass, field, replace
from typing import Any, TypeVar

import trio
import trio.testing

import manystream as ms
from manystream.http_server import RequestReader
from manystream.simulator.knobs import Knobs
from manystream.simulator.program import Ending, Program
from manystream.simulator.prompt import Prompt
from manystream.simulator.prompt_caches import CacheCounts, CacheModel, PromptCaches
from manystream.simulator.service import Service, ServiceSettings

from .answers import Answer, Series
from .environment import clients_python
from .report import draw

MODEL = "claude-sonnet-4-5"
COLD, WARM, BODY = 3.0, 0.6, 8.0
"""Seconds to the first event without and with a cached beginning, and from there to the end."""

RULES = "These are the rules of the house, and each agent keeps them. " * 260
"""The beginning of all prompts: about 4,000 tokens."""

MARKED: dict[str, Any] = {"type": "text", "text": f"0 {RULES}", "cache_control": {"type": "ephemeral"}}
PREFIX_TOKENS = (
    PromptCaches(CacheModel())
    .look("anthropic", "", Prompt(model=MODEL, body={"system": [MARKED], "messages": []}), 0.0)
    .counts.written
)
"""The tokens of the beginning, as the simulator counts them."""

NOISE = 0.1
"""Seconds by which ends differ if the random first tokens meet other calls."""

PLOT = "cost of a common beginning"
PRICE, TOKENS = 3e-6, 20_000
"""The plot is for a beginning of so many tokens, at so many dollars a token."""

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One server.

    within: the bound of the cost, as a multiple of the least one; None: the cost without `warm`.
    later: the bound of the end, in seconds after the end without `warm`.
    """

    caches: CacheModel
    calls: int = 1000
    streamed: bool = True
    within: float | None = 1.15
    later: float

    @property
    def least(self) -> float:
        """The least possible cost: each machine that is used writes once, and all other calls read."""
        if self.caches.server == "none":
            return float(self.calls)
        writes = min(self.caches.machines, self.calls)
        return 1.25 * writes + 0.1 * (self.calls - writes)


def row(*, lag: float = 0.0, machines: int = 1, server: str = "", **options: float | bool | None) -> Row:
    """A row with the usual bound of its end: a cold first token, the lag and five warm first tokens."""
    caches = CacheModel(server=server, machines=machines, lag=lag, cold=COLD, warm=WARM, spread=0.25)
    later = 2 * COLD if server == "none" else COLD + lag + 5 * WARM
    return Row(caches=caches, **{"later": later, **options})  # type: ignore[arg-type]  # the options are those of Row


ROWS = {
    "readable at once": row(),
    "after 0.5 s": row(lag=0.5),
    "after 2 s": row(lag=2.0),
    "4 machines, 0.5 s": row(lag=0.5, machines=4, within=2.0),
    "16 machines, 0.5 s": row(lag=0.5, machines=16, within=None),
    "no cache at all": row(server="none", within=1.0),
    "unstreamed, 2 s": row(lag=2.0, streamed=False, within=1.3),
    "10 calls, 0.5 s": row(lag=0.5, calls=10, within=1.8),
}
"""Name → server. The bounds are in the order of the table."""


@dataclass(slots=True)
class Outcome:
    """What one fan-out took: the cost in beginnings, and the seconds to first tokens and to the end.

    failed: completions without success.
    """

    cost: float = 0.0
    firsts: list[float] = field(default_factory=list[float])
    end: float = 0.0
    failed: list[ms.Completion] = field(default_factory=list[ms.Completion])

    def __str__(self) -> str:
        return f"{self.cost:7.1f} · {statistics.median(self.firsts):5.1f} · {self.end:5.1f}"


class ModelledServer:
    """The simulator's service on sockets in memory. `dial` is for the engine.

    body: seconds from the first event of a response to its end.
    """

    def __init__(self, nursery: trio.Nursery, settings: ServiceSettings, body: float = BODY) -> None:
        self.service = Service(settings, trio.current_time, trio.current_time)
        self._nursery = nursery
        self._body = body

    @property
    def counts(self) -> CacheCounts:
        """The account of all models."""
        assert self.service.caches is not None
        rows = [astuple(counts) for counts in self.service.caches.counts.values()]
        return CacheCounts(*map(sum, zip(*rows, strict=True)))

    async def dial(self, host: str, port: int) -> socket.socket:
        """A socket of the engine; the server has the other end."""
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        self._nursery.start_soon(self._serve, trio.SocketStream(trio.socket.from_stdlib_socket(theirs)))
        return ours

    async def _serve(self, stream: trio.SocketStream) -> None:
        reader = RequestReader()
        async with stream:
            try:
                while data := await stream.receive_some(1 << 20):
                    reader.feed(data)
                    while (request := reader.next_request()) is not None:
                        if not await self._answer(stream, self.service.answer(request)):
                            return
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # the client has left

    async def _answer(self, stream: trio.SocketStream, program: Program) -> bool:
        """Send a response. Returns whether the connection goes on."""
        await trio.sleep(program.delay)
        streamed, body = program.events > 0, self._body if program.counted else 0.0
        first = (len(program.frames) + 1) // 2 if streamed else 0
        if first:
            await stream.send_all(b"".join(program.frames[:first]))
        await trio.sleep(body if program.ending is not Ending.STALL else float("inf"))
        await stream.send_all(b"".join(program.frames[first:]))
        return program.ending is Ending.KEEP


def simulated(function: Callable[..., Awaitable[Result]], *arguments: object) -> Result:
    """Run a function in simulated time."""
    return trio.run(function, *arguments, clock=trio.testing.MockClock(autojump_threshold=0))


async def fan_out(
    engine: ms.Engine, calls: int, rules: str = RULES, *, streamed: bool = True, mark: bool = True
) -> Outcome:
    """Start calls with one beginning at once, and wait for all of them."""
    outcome, began = Outcome(), trio.current_time()
    system = [ms.Text(rules, cache_control=ms.CacheControl() if mark else None)]
    seen: set[int] = set()

    def note(number: int) -> None:
        if number not in seen:
            seen.add(number)
            outcome.firsts.append(trio.current_time() - began)

    started: list[ms.Call] = []
    for number in range(calls):
        request = ms.Request(MODEL, [ms.Message.user(f"Task {number}")], system=system, max_output_tokens=500)
        if streamed:
            started.append(engine.start_stream(request, lambda event, number=number: note(number)))
        else:
            started.append(engine.start_request(request, lambda completion, number=number: note(number)))
    for call in started:
        completion = await call.wait()
        if not completion.success:
            outcome.failed.append(completion)
    outcome.end = trio.current_time() - began
    return outcome


async def measure(case: Row, traffic: ms.Traffic | None, fan_outs: int = 1) -> list[Outcome]:
    """Run fan-outs one after the other, each with a beginning of its own, in one engine."""
    outcomes: list[Outcome] = []
    async with trio.open_nursery() as nursery:
        settings = ServiceSettings(knobs=Knobs(events=2), journal=0, caches=case.caches)
        server = ModelledServer(nursery, settings)
        provider = ms.Anthropic("key", base_url="http://modelled.test")
        async with ms.open_engine([provider], dial=server.dial, traffic=traffic) as engine:
            for number in range(fan_outs):
                before = server.counts
                outcome = await fan_out(engine, case.calls, f"{number} {RULES}", streamed=case.streamed)
                outcome.cost = beginnings(server.counts, before)
                outcomes.append(outcome)
        nursery.cancel_scope.cancel()
    return outcomes


def beginnings(counts: CacheCounts, before: CacheCounts) -> float:
    """The cost of the beginnings of the requests since `before`, in beginnings. The rest of each prompt is uncached."""
    requests = counts.requests - before.requests
    own = counts.input - before.input - requests * PREFIX_TOKENS
    return (counts.cost - before.cost - own) / PREFIX_TOKENS


@dataclass(frozen=True, slots=True)
class Bound:
    """One bound: what was measured, its figure, and the largest figure that meets it."""

    what: str
    figure: float
    most: float

    @property
    def met(self) -> bool:
        return self.figure <= self.most + 1e-9

    def __str__(self) -> str:
        return f"{'met' if self.met else 'MISSED':6} {self.what}: {self.figure:.2f}, at most {self.most:.2f}"


def check(name: str, case: Row) -> tuple[str, list[Bound]]:
    """Measure a row: its line of the table, and its bounds."""
    fan_outs = 2 if case.caches.server == "none" else 1
    at_once, off, on = [
        simulated(measure, case, traffic, fan_outs) for traffic in (None, ms.Traffic(warm=False), ms.Traffic(warm=True))
    ]
    failed = [outcome for run in (at_once, off, on) for outcome in run if outcome.failed]
    if failed:
        raise RuntimeError(f"{name}: {len(failed[0].failed)} calls failed: {failed[0].failed[0].error_message}")
    bounds = [Bound(f"{name}: seconds later", on[0].end - off[0].end, case.later)]
    if case.within is not None:
        bounds.insert(0, Bound(f"{name}: cost ÷ least", on[0].cost / case.least, case.within))
    bounds.append(Bound(f"{name}: cost ÷ without warm", on[0].cost / off[0].cost, 1.0))
    for later, usual in zip(on[1:], off[1:], strict=True):
        bounds.append(Bound(f"{name}: seconds later, next beginning", later.end - usual.end, NOISE))
    return f"{name:20} {case.least:7.1f} | {at_once[0]} | {off[0]} | {on[0]}", bounds


def plot() -> None:
    """Draw the dollars over the number of calls, with and without `warm`."""
    answer = Answer("what a prompt's beginning costs")
    case = replace(ROWS["after 0.5 s"], calls=0)
    for label, traffic in (
        ("all at once", None),
        ("Traffic(warm=False)", ms.Traffic(warm=False)),
        ("Traffic()", ms.Traffic()),
    ):
        points: list[tuple[float, float]] = []
        for calls in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000):
            [outcome] = simulated(measure, replace(case, calls=calls), traffic)
            points.append((float(calls), round(outcome.cost * PRICE * TOKENS, 4)))
        print(f"{label:20} {points[-1][1]:8.2f} dollars for {calls} calls")
        answer.series.append(Series(PLOT, label, points))
    draw([answer], clients_python())


def main() -> int:
    """Print the table and the bounds. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plot", action="store_true", help="draw the plot instead")
    parser.add_argument(
        "rows", nargs="*", choices=[[], *ROWS], metavar="ROW", help=f"of {', '.join(ROWS)}; default: all"
    )
    options = parser.parse_args()
    if options.plot:
        plot()
        return 0
    print(f"{'server':20} {'least':>7} | {'all at once':23} | {'warm=False':23} | warm=True", flush=True)
    bounds: list[Bound] = []
    for name in options.rows or ROWS:
        line, found = check(name, ROWS[name])
        print(line, flush=True)
        bounds += found
    print(*bounds, sep="\n")
    return int(not all(bound.met for bound in bounds))


if __name__ == "__main__":
    raise SystemExit(main())
