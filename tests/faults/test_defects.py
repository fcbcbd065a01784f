"""A defect in this library ends the call in which it happens, and no other.

There is no list of functions. A profile hook raises at the n-th Python call that is made while the loop serves a tick
or timers fire: a call in this package, in h11 or in the standard library. (Not in trio: an exception in the middle of
its functions breaks its own state, and so every program.) Calls of one dialect, or of two, run at the same time,
streamed and unstreamed, some with error responses. At any n, each call completes once within its timeouts, at most one
of them with an internal error, all other responses are complete, and no descriptor is leaked.
"""

from __future__ import annotations

import gc
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from types import FrameType

import pytest
import trio
import trio.testing
from trio.testing import MockClock

import manystream as ms
from manystream.engine import EngineLimits
from manystream.transport.loop import PollerLoop
from manystream.transport.pool import PoolLimits
from manystream.transport.timers import Timers
from tests.support.dialects import DIALECTS, INTERACTIONS, Wording
from tests.support.peers import Line, answer, chat_answer, chunked, error_body, open_descriptors, open_peer

STEP = int(os.environ.get("MANYSTREAM_DEFECT_STEP", "41"))
"""The distance between two Python calls at which the hook raises. 1 is the complete run (`make defects`)."""
PARTS = 8 if STEP == 1 else 1
"""The number of tests over which the runs of a dialect are spread. On a busy machine, one test with all runs would take
longer than its `timeout`."""
SPLIT = [[wording] for wording in DIALECTS]
"""The dialects that run at the same time: one after the other, which needs a quarter of the time of all together, and
allows to select one by name."""
PAIR = [DIALECTS[0], DIALECTS[2]]
"""The dialects whose calls pass connections to each other: more calls than connections, in two wire formats."""
MOST_CALLS = 60_000
TRIO = "trio"
KINDS = (ValueError, RecursionError, MemoryError)

CLOCKS = ms.Timeouts(connect=5, first_byte=20, idle=10, total=60)
RETRY = ms.Retry(max_attempts=2, base=0.1, jitter=0)
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
POOL = EngineLimits(pool=PoolLimits(max_per_origin=2, idle_expiry=5))
"""A number of connections so small that calls wait for each other's connections."""

ANSWERS = {
    "chat": chat_answer("one"),
    "responses": json.dumps({"id": "r", "model": "m", "status": "completed",
        "output": [{"type": "message", "id": "i", "content": [{"type": "output_text", "text": "one"}]}]}),
    "anthropic": json.dumps({"id": "a", "model": "m", "content": [{"type": "text", "text": "one"}],
        "stop_reason": "end_turn"}),
    "gemini": json.dumps({"candidates": [{"content": {"parts": [{"text": "one"}]}, "finishReason": "STOP"}]}),
    "interactions": INTERACTIONS.whole,
}  # fmt: skip
STREAMS = {wording.name: wording.beginning + wording.rest for wording in DIALECTS}
EVENT_STREAM = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@cache
def _is_trio(module: object) -> bool:
    """Return whether the module of this name is part of trio."""
    return str(module).partition(".")[0] == TRIO


@dataclass
class Injector:
    """A hook that raises `kind` at the `at`-th Python call, counted while it is armed. If `at` is 0, it only counts.

    function: the qualified name of the only function whose calls count; empty: the calls of all functions.
    """

    at: int = 0
    kind: type[Exception] = ValueError
    function: str = ""
    seen: int = 0
    raised_in: str = ""

    def hook(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call":  # most events are returns and C calls
            return
        if self.function and frame.f_code.co_qualname != self.function:
            return
        caller = frame.f_back
        if frame.f_code.co_flags & inspect.CO_GENERATOR:
            return  # CPython 3.11 has crashed where a profile function raised as a generator was entered
        if caller is None or _is_trio(frame.f_globals.get("__name__")) or _is_trio(caller.f_globals.get("__name__")):
            return
        self.seen += 1
        if self.seen == self.at:
            self.raised_in = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_code.co_qualname}"
            raise self.kind("injected")

    @contextmanager
    def installed(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Arm the hook during ticks and timers, without the garbage collector: a finalizer would take the exception."""

        def armed(original: Callable[..., object]) -> Callable[..., object]:
            def call(*arguments: object) -> object:
                if self.raised_in:
                    return original(*arguments)
                gc.disable()
                sys.setprofile(self.hook)
                try:
                    return original(*arguments)
                finally:
                    sys.setprofile(None)
                    gc.enable()

            return call

        with monkeypatch.context() as patch:
            patch.setattr(PollerLoop, "tick", armed(PollerLoop.tick))
            patch.setattr(Timers, "_fire", armed(Timers._fire))
            yield


@dataclass
class Outcome:
    """The outcome of one call."""

    name: str
    completions: list[ms.Completion] = field(default_factory=list[ms.Completion])
    events: list[ms.Event] = field(default_factory=list[ms.Event])

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, ms.TextDelta))


async def serve(line: Line) -> None:
    """Send the response that the request's text asks for."""
    while request := await line.request():
        body = request.partition(b"\r\n\r\n")[2]
        dialect = next(name for name in STREAMS if f"dialect {name}".encode() in body)
        if b"case 500" in body:
            await line.send(answer(error_body("out of order"), status="500 Internal Server Error"))
        elif b"case 429" in body:
            headers = "Retry-After: 1\r\n"
            await line.send(answer(error_body("slow down"), status="429 Too Many Requests", headers=headers))
        elif b"case cut" in body:
            cut = chunked(STREAMS[dialect].encode()[:60], end=False)
            await line.send(EVENT_STREAM.encode() + cut)
            return
        elif b"case stream" in body:
            await line.send(EVENT_STREAM)
            for event in STREAMS[dialect].replace("\r\n", "\n").split("\n\n")[:-1]:
                await line.send(chunked(event + "\n\n", end=False))
            await line.send(b"0\r\n\r\n")
        else:
            await line.send(answer(ANSWERS[dialect]))


EXPECTED: dict[str, tuple[object, ...]] = {
    "answer": (None, "one"), "stream": (None, "one"), "schema": ("unknown", "one"), "500": ("server", None),
    "429": ("rate_limit", None), "cut": ("network", None),
}  # fmt: skip
"""Case → error category and text."""


async def run_all(injector: Injector, monkeypatch: pytest.MonkeyPatch, wordings: Sequence[Wording]) -> list[Outcome]:
    """Run all cases of these dialects at the same time, on one engine."""
    outcomes: list[Outcome] = []
    before = open_descriptors()
    async with open_peer(serve) as peer:
        providers = [wording.provider(peer.origin) for wording in wordings]
        with injector.installed(monkeypatch):
            async with ms.open_engine(providers, timeouts=CLOCKS, retry=RETRY, limits=POOL) as engine:
                calls: list[ms.Call] = []
                for wording, provider in zip(wordings, providers, strict=True):
                    for case in EXPECTED:
                        outcome = Outcome(f"{wording.name} {case}")
                        outcomes.append(outcome)
                        request = ms.Request(
                            f"{provider.name}/m",
                            [ms.Message.user(f"dialect {wording.name}, case {case}")],
                            response_schema=SCHEMA if case == "schema" else None,
                        )
                        if case in ("stream", "cut", "429"):
                            calls.append(
                                engine.start_stream(request, outcome.events.append, outcome.completions.append)
                            )
                        else:
                            calls.append(engine.start_request(request, outcome.completions.append))
                with trio.fail_after(600):
                    for call in calls:
                        await call.wait()
                    await trio.sleep(30)  # idle connections expire
                idle = engine.statistics().connections
                assert {name: (c.active, c.connecting, c.waiting) for name, c in idle.items() if c.active} == {}
    await trio.testing.wait_all_tasks_blocked()
    assert open_descriptors() == before, injector
    return outcomes


def described(outcome: Outcome) -> tuple[object, ...]:
    completion = outcome.completions[0]
    text = completion.response.text if completion.response is not None else None
    category = completion.error_category
    return (category.value if category is not None else None, text or None)


@dataclass
class Undisturbed:
    """A run in which the hook does not raise.

    total: the number of Python calls that the run makes.
    whole: the outcome of each call: name → outcome.
    """

    total: int
    whole: dict[str, tuple[object, ...]]


def run_with(injector: Injector, monkeypatch: pytest.MonkeyPatch, wordings: Sequence[Wording]) -> list[Outcome]:
    clock = MockClock(autojump_threshold=0)
    return trio.run(run_all, injector, monkeypatch, wordings, clock=clock)


@pytest.fixture(params=SPLIT, ids=lambda wordings: "+".join(wording.name for wording in wordings))
def wordings(request: pytest.FixtureRequest) -> Sequence[Wording]:
    given: Sequence[Wording] = request.param
    return given


UNDISTURBED: dict[tuple[str, ...], Undisturbed] = {}
"""Names of dialects → their undisturbed run in this process."""


@pytest.fixture
def undisturbed(monkeypatch: pytest.MonkeyPatch, wordings: Sequence[Wording]) -> Undisturbed:
    return run_undisturbed(monkeypatch, wordings)


def run_undisturbed(monkeypatch: pytest.MonkeyPatch, wordings: Sequence[Wording]) -> Undisturbed:
    names = tuple(wording.name for wording in wordings)
    if names in UNDISTURBED:
        return UNDISTURBED[names]
    run_with(
        Injector(), monkeypatch, wordings
    )  # the first run in a process makes some additional calls that fill caches
    injector = Injector()
    outcomes = run_with(injector, monkeypatch, wordings)
    for outcome in outcomes:
        expected = EXPECTED[outcome.name.split()[1]]
        assert described(outcome)[0] == expected[0], (outcome.name, outcome.completions[0].error)
    assert 500 < injector.seen < MOST_CALLS
    UNDISTURBED[names] = Undisturbed(injector.seen, {outcome.name: described(outcome) for outcome in outcomes})
    return UNDISTURBED[names]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("part", range(PARTS))
def test_a_defect_anywhere_ends_one_call_at_most(
    part: int,
    wordings: Sequence[Wording],
    undisturbed: Undisturbed,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    places = list(enumerate(range(1, undisturbed.total + 1, STEP)))
    for number, at in places[part::PARTS]:
        kinds = KINDS if STEP == 1 else (KINDS[number % len(KINDS)],)
        for kind in kinds:
            injector = Injector(at, kind)
            outcomes = run_with(injector, monkeypatch, wordings)
            counts = [len(outcome.completions) for outcome in outcomes]
            assert counts == [1] * len(outcomes), (injector, [o.name for o in outcomes if len(o.completions) != 1])
            others = [outcome.name for outcome in outcomes if described(outcome) != undisturbed.whole[outcome.name]]
            assert len(others) <= 1, (injector, others, [o.completions[0].error for o in outcomes if o.name in others])
            caplog.clear()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "function",
    [
        "Attempt.on_connection", "Attempt.on_head", "Attempt.on_body", "Attempt.on_end", "Attempt.on_failure",
        "Connection._message_end", "Connection._retire", "Connection._broken", "Connection.close", "Pool._on_idle",
    ],
)  # fmt: skip
def test_a_defect_where_a_connection_changes_hands(
    function: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each call of the functions between which a connection passes from one call to the next raises once."""
    undisturbed = run_undisturbed(monkeypatch, PAIR)
    for at in range(1, 200):
        injector = Injector(at, KINDS[at % len(KINDS)], function)
        outcomes = run_with(injector, monkeypatch, PAIR)
        assert [len(outcome.completions) for outcome in outcomes] == [1] * len(outcomes), injector
        if not injector.raised_in:
            break
        others = [outcome.name for outcome in outcomes if described(outcome) != undisturbed.whole[outcome.name]]
        assert len(others) <= 1, (injector, others, [o.completions[0].error for o in outcomes if o.name in others])
        caplog.clear()
    assert not injector.raised_in
    assert at > 1, f"{function} is not called"
