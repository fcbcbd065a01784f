"""What do many calls with one beginning of their prompts pay for it? The engine runs in simulated time.

All calls start at once. The server is the simulator's service, whose prompt caches follow Anthropic's rules; only
sockets and the clock are modelled. A response begins after 3 s if it has read nothing from the cache, else after
0.6 s, give or take a quarter, and takes 8 s more. Measured: the cost by the simulator's account, in beginnings at the
price of uncached input; the median seconds to the first token; and by how much later all calls have ended.
"""

from __future__ import annotations

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
from .runs import Run

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
"""Name → server."""
SHOWN = ("after 0.5 s",)


@dataclass(slots=True)
class Outcome:
    """What one fan-out took: the cost in beginnings, and the seconds to first tokens and to the end.

    failed: completions without success.
    """

    cost: float = 0.0
    firsts: list[float] = field(default_factory=list[float])
    end: float = 0.0
    failed: list[ms.Completion] = field(default_factory=list[ms.Completion])


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


def check(result: Answer, name: str, case: Row) -> None:
    """Measure a row, and add its cost and its end, with the bounds."""
    fan_outs = 2 if case.caches.server == "none" else 1
    off, on = [simulated(measure, case, ms.Traffic(warm=warm), fan_outs) for warm in (False, True)]
    failed = [outcome for run in (off, on) for outcome in run if outcome.failed]
    if failed:
        raise RuntimeError(f"{name}: {len(failed[0].failed)} calls failed: {failed[0].failed[0].error_message}")
    cost, least, end = on[0].cost, case.least, on[0].end - off[0].end
    met = cost <= off[0].cost + 1e-9 and (case.within is None or cost <= case.within * least + 1e-9)
    target = "≤ without" if case.within is None else f"≤ {case.within:g} × least ({least:.0f})"
    beside = ("without `warm`", off[0].cost)
    result.add(f"{name}: cost", cost, "beginnings", beside=beside, target=target, met=met, shown=name in SHOWN)
    later = all(next_on.end - next_off.end <= NOISE for next_on, next_off in zip(on[1:], off[1:], strict=True))
    target, met = f"≤ {case.later:g} s", end <= case.later + 1e-9 and later
    result.add(f"{name}: ends later by", end, "s", target=target, met=met)
    firsts = [statistics.median(run[0].firsts) for run in (on, off)]
    beside = ("without `warm`", firsts[1])
    result.add(f"{name}: first token, p50", firsts[0], "s", beside=beside)


def plot(result: Answer) -> None:
    """Add the dollars over the number of calls, with and without `warm`, as a plot; and those of the most as rows."""
    case = ROWS["after 0.5 s"]
    what = f"a beginning of {TOKENS:,} tokens, {case.calls:,} calls"
    result.add(f"{what}, written once", case.least * PRICE * TOKENS, "dollars")
    for label, traffic in (
        ("all at once", None),
        ("Traffic(warm=False)", ms.Traffic(warm=False)),
        ("Traffic()", ms.Traffic()),
    ):
        points: list[tuple[float, float]] = []
        for calls in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000):
            [outcome] = simulated(measure, replace(case, calls=calls), traffic)
            points.append((float(calls), round(outcome.cost * PRICE * TOKENS, 4)))
        result.add(f"{what}, {label}", points[-1][1], "dollars", shown=True)
        result.series.append(Series(PLOT, label, points))


def answer(run: Run) -> Answer:
    """Measure all rows, and draw the plot."""
    result = Answer("1,000 calls with one beginning of their prompts, in simulated time")
    for name in SHOWN if run.quick else ROWS:
        check(result, name, ROWS[name])
    if not run.quick:
        plot(result)
    return result
