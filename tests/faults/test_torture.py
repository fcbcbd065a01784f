"""Torture: a call is cancelled at each of its steps, and each of its system calls fails once.

In every case the call completes exactly once, the next call on the same engine succeeds, and no descriptor and no task
is leaked. The call has many steps: a DNS lookup, a tunnel through a proxy, a TLS handshake, a stream, and the draining
of its connection.
"""

from __future__ import annotations

import gc
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import trio
import trio.testing
import trustme
from trio.testing import MockClock

import manystream as ms
from manystream.transport.tls import TLSConfig
from tests.faults.servers import TLSLine, open_proxy, serving_tls
from tests.faults.tripwire import FAULTS, NOT_NOW, TrippedNames, Tripwire, tripwired
from tests.support.addresses import LOOPBACK, answering
from tests.support.peers import (
    NO_RETRY,
    STREAM_HEAD,
    Line,
    Recorder,
    answer,
    chat_answer,
    chat_stream,
    chunked,
    error_body,
    hello,
    open_descriptors,
    open_peer,
    replies,
    until,
)

PIECES = [STREAM_HEAD.encode(), *(chunked(frame, end=False) for frame in chat_stream("a", "b", "c")), b"0\r\n\r\n"]
STEPS = 400
"""More steps than a call has. A test that reaches this number fails."""


@dataclass
class Place:
    """The servers of one test, and the descriptors and tasks that existed before it."""

    provider: ms.Provider
    tls: TLSConfig
    proxy: str
    descriptors: int
    tasks: int

    @asynccontextmanager
    async def engine(self, retry: ms.Retry = NO_RETRY) -> AsyncGenerator[ms.Engine, None]:
        async with ms.open_engine([self.provider], tls=self.tls, proxy=self.proxy, retry=retry) as engine:
            yield engine

    async def check_nothing_is_left(self) -> None:
        await until(lambda: open_descriptors() <= self.descriptors)
        await until(lambda: trio.lowlevel.current_statistics().tasks_living <= self.tasks)


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


async def serve(line: TLSLine) -> None:
    while await line.request():
        for piece in PIECES:
            await line.stream.send_all(line.records(piece))
            await trio.lowlevel.checkpoint()


@asynccontextmanager
async def open_place(ca: trustme.CA, wire: Tripwire | None = None) -> AsyncGenerator[Place, None]:
    tls = TLSConfig(ca_data=ca.cert_pem.bytes().decode())
    async with serving_tls(ca, serve, "api.test") as server, open_proxy(upstream=server.port) as proxy:
        provider = ms.OpenAIChat(api_key="sk-canary-secret", base_url="https://api.test/v1")
        with answering(TrippedNames({"proxy.test": [(LOOPBACK, proxy.port)]}, wire or Tripwire())):
            gc.collect()
            await trio.testing.wait_all_tasks_blocked(0.006)
            tasks = trio.lowlevel.current_statistics().tasks_living
            yield Place(provider, tls, f"http://proxy.test:{proxy.port}", open_descriptors(), tasks)


class AtStep(trio.abc.Instrument):
    """An instrument that calls `act` once, before the scheduler's `step`-th step from now."""

    def __init__(self, step: int, act: Callable[[], None]) -> None:
        self.step = step
        self.act = act
        self.count = 0
        self.error: Exception | None = None

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1
        if self.count == self.step:
            try:
                self.act()
            except Exception as error:
                self.error = error

    def __enter__(self) -> AtStep:
        trio.lowlevel.add_instrument(self)
        return self

    def __exit__(self, *_: object) -> None:
        trio.lowlevel.remove_instrument(self)
        assert self.error is None, self.error


async def check_next_call(engine: ms.Engine) -> None:
    completion = await engine.start_stream(hello()).wait()
    assert completion.success, completion
    assert completion.response.text == "abc"


async def test_a_call_cancelled_at_any_step_completes_once(ca: trustme.CA, autojump_clock: MockClock) -> None:
    states: set[str] = set()
    async with open_place(ca) as place:
        for step in range(1, STEPS):
            recorder = Recorder()
            async with place.engine() as engine:
                call = engine.start_stream(hello(), recorder.on_event, recorder.on_completion)

                def cancel(call: ms.Call = call) -> None:
                    states.add(call.state)
                    call.cancel()

                with trio.fail_after(5), AtStep(step, cancel) as instrument:
                    completion = await call.wait()
                assert recorder.completion is completion
                assert recorder.types.count("DONE") + recorder.types.count("ERROR") == 1
                assert "abc".startswith(recorder.text)
                if not completion.success:
                    assert completion.error_category is ms.ErrorCategory.CANCELLED
                    assert completion.response is None or completion.response.text == recorder.text
                if step % 5 == 0:
                    await check_next_call(engine)
            assert len(recorder.completions) == 1
            if instrument.count < step:
                break
        else:
            raise AssertionError("a call's life is longer than the test")
        await place.check_nothing_is_left()
    assert step > 25
    assert {"connecting", "sending", "waiting", "reading"} <= states | {"sending", "waiting"}


async def test_a_task_cancelled_at_any_step_cancels_its_call(ca: trustme.CA, autojump_clock: MockClock) -> None:
    async with open_place(ca) as place:
        for step in range(1, STEPS):
            async with place.engine() as engine:
                scope = trio.CancelScope()
                with trio.fail_after(5), AtStep(step, scope.cancel) as instrument, scope:
                    async with engine.stream(hello()) as events:
                        async for _ in events:
                            pass
                # A task that is cancelled as it enters its block has started no call.
                await until(lambda engine=engine: engine.statistics().completed == engine.statistics().started)  # type: ignore[misc]
                assert engine.statistics().calls == {}
                if step % 5 == 0:
                    await check_next_call(engine)
            if instrument.count < step:
                break
        else:
            raise AssertionError("a call's life is longer than the test")
        await place.check_nothing_is_left()


async def test_an_engine_closed_at_any_step_completes_its_calls_once(ca: trustme.CA, autojump_clock: MockClock) -> None:
    async with open_place(ca) as place:
        for step in range(1, STEPS, 2):
            recorders = [Recorder(), Recorder()]
            async with place.engine() as engine:
                calls = [engine.start_stream(hello(), one.on_event, one.on_completion) for one in recorders]
                with trio.fail_after(5), AtStep(step, engine.close) as instrument:
                    for call in calls:
                        await call.wait()
            for recorder in recorders:
                assert recorder.completion.error_category in (None, ms.ErrorCategory.CANCELLED)
            if instrument.count < step:
                break
        else:
            raise AssertionError("a call's life is longer than the test")
        await place.check_nothing_is_left()


HUGE = "x" * 1_500_000
"""A request that is larger than any socket buffer."""


async def answer_plainly(line: Line) -> None:
    while await line.request():
        for piece in PIECES:
            await line.send(piece)
            await trio.lowlevel.checkpoint()


async def answer_at_the_second_try(line: Line) -> None:
    while request := await line.request():
        if b"try me twice" in request:
            await line.send(answer(error_body("busy"), status="503 Busy", headers="Retry-After: 0\r\n"))
            await line.request()
        for piece in PIECES:
            await line.send(piece)
            await trio.lowlevel.checkpoint()


answer_in_one_piece = replies(answer(chat_answer("abc")))


async def answer_too_early(line: Line) -> None:
    await line.stream.receive_some(1000)
    await line.send(answer(error_body("too large"), status="413 Payload Too Large", headers="Connection: close\r\n"))
    await line.closed_by_peer()


async def leave_after_an_answer(line: Line) -> None:
    """Close each kept-alive connection at its second request."""
    if await line.request():
        for piece in PIECES:
            await line.send(piece)
        await line.request()


def asking(text: str) -> ms.Request:
    return ms.Request("m", [ms.Message.user(text)], retry=ms.Retry(max_attempts=2, base=0, jitter=0))


LIVES: dict[str, tuple[Callable[[Line], Awaitable[None]], ms.Request, bool, ms.ErrorCategory | None]] = {
    "over a kept-alive connection": (answer_plainly, asking("x"), True, None),
    "with a large body": (answer_plainly, asking(HUGE), True, None),
    "with a second attempt": (answer_at_the_second_try, asking("try me twice"), True, None),
    "unstreamed": (answer_in_one_piece, asking("x"), False, None),
    "with an early answer": (answer_too_early, asking(HUGE), True, ms.ErrorCategory.INVALID_ARG),
    "over a stale connection": (leave_after_an_answer, asking("x"), True, None),
}
"""Kinds of calls: the server's script, the request, whether it is streamed, and the outcome without a fault."""


@pytest.mark.parametrize("life", LIVES)
async def test_every_kind_of_call_can_be_cancelled_at_any_step(life: str, autojump_clock: MockClock) -> None:
    """All calls run on one engine, so a leak of a cancelled call affects the next one."""
    script, request, stream, undisturbed = LIVES[life]
    async with open_peer(script) as peer:
        gc.collect()
        await trio.testing.wait_all_tasks_blocked(0.006)
        before, tasks = open_descriptors(), trio.lowlevel.current_statistics().tasks_living
        async with ms.open_engine([peer.chat], proxy="") as engine:
            for step in range(1, STEPS):
                recorder = Recorder()
                if stream:
                    call = engine.start_stream(request, recorder.on_event, recorder.on_completion)
                else:
                    call = engine.start_request(request, recorder.on_completion)
                with trio.fail_after(10), AtStep(step, call.cancel) as instrument:
                    completion = await call.wait()
                assert recorder.completion is completion
                assert completion.error_category in (undisturbed, ms.ErrorCategory.CANCELLED), completion
                assert "abc".startswith(recorder.text)
                assert completion.success or completion.response is None or completion.response.text == recorder.text
                if step % 5 == 0:
                    again = await (engine.start_stream(request) if stream else engine.start_request(request)).wait()
                    assert again.error_category is undisturbed, again
                if instrument.count < step:
                    break
            else:
                raise AssertionError("a call's life is longer than the test")
            statistics = engine.statistics()
            assert statistics.started == statistics.completed
        await until(lambda: all(line.stream.socket.fileno() < 0 for line in peer.lines))
        await until(lambda: open_descriptors() <= before)
        await until(lambda: trio.lowlevel.current_statistics().tasks_living <= tasks)
    assert step > 5


def faults(table: dict[str, list[Exception]]) -> list[tuple[str, Exception]]:
    return [(name, fault) for name, given in table.items() for fault in given]


def ids(rows: list[tuple[str, Exception]]) -> list[str]:
    return [f"{name}-{fault.args[0]}" for name, fault in rows]


@pytest.mark.parametrize(("name", "fault"), faults(FAULTS), ids=ids(faults(FAULTS)))
async def test_any_system_call_may_fail(
    name: str, fault: Exception, ca: trustme.CA, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    with tripwired(monkeypatch) as wire:
        async with open_place(ca, wire) as place:
            for at in range(1, STEPS):
                for retry in (NO_RETRY, ms.Retry(max_attempts=3, base=0, jitter=0)):
                    if not await one_failure(place, wire, name, at, fault, retry):
                        break
                else:
                    continue
                break
            await place.check_nothing_is_left()
    assert at > 1, "the system call was never made"


async def one_failure(place: Place, wire: Tripwire, name: str, at: int, fault: Exception, retry: ms.Retry) -> bool:
    """Make a call during which the `at`-th call of `name` fails. Returns False if there were fewer calls."""
    recorder = Recorder()
    async with place.engine(retry) as engine:
        wire.arm(name, at, fault)
        with trio.fail_after(5):
            completion = await engine.start_stream(hello(), recorder.on_event, recorder.on_completion).wait()
            await until(lambda: not any(origin.active for origin in engine.statistics().connections.values()))
        tripped = wire.tripped
        wire.arm("", 0, None)
        assert recorder.completion is completion
        assert "abc".startswith(recorder.text)
        if not completion.success:
            assert tripped
            assert completion.error_category is ms.ErrorCategory.NETWORK, completion
            # With attempts left, only delivered events or a permanent error may prevent success.
            assert retry is NO_RETRY or recorder.text or not (completion.error and completion.error.retryable)
        await check_next_call(engine)
    return tripped


@pytest.mark.parametrize(("name", "fault"), faults(NOT_NOW), ids=ids(faults(NOT_NOW)))
async def test_a_would_block_result_is_not_a_failure(
    name: str, fault: Exception, ca: trustme.CA, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    with tripwired(monkeypatch) as wire:
        async with open_place(ca, wire) as place:
            for at in range(1, STEPS):
                async with place.engine() as engine:
                    wire.arm(name, at, fault)
                    with trio.fail_after(5):
                        await check_next_call(engine)
                    if not wire.tripped:
                        break
            await place.check_nothing_is_left()
    assert at > 1


async def test_a_kernel_of_single_bytes(
    ca: trustme.CA, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    with tripwired(monkeypatch) as wire:
        wire.at_most = 1
        async with open_place(ca, wire) as place, place.engine() as engine:
            await check_next_call(engine)
            await check_next_call(engine)


ACTIONS: dict[str, Callable[[ms.Engine, ms.Call], object]] = {
    "cancel": lambda engine, call: call.cancel(), "close": lambda engine, call: engine.close(), "start": lambda engine,
    call: engine.start_stream(hello()), "start and cancel": lambda engine, call: engine.start_stream(hello()).cancel(),
    "pause": lambda engine, call: call.pause(), "pause and resume": lambda engine, call: (call.pause(), call.resume()),
    "pause and cancel": lambda engine, call: (call.pause(), call.cancel()), "raise": lambda engine, call: [][0],
}  # fmt: skip


@pytest.mark.parametrize("action", ACTIONS)
async def test_every_method_can_be_called_from_any_callback(
    action: str, ca: trustme.CA, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    async with open_place(ca) as place:
        for at in range(7):  # at START, three deltas, DONE, the completion, and never
            recorder = Recorder()
            delivered = 0

            async with place.engine() as engine:
                calls: list[ms.Call] = []

                def act(at: int = at, engine: ms.Engine = engine, calls: list[ms.Call] = calls) -> None:
                    nonlocal delivered
                    delivered += 1
                    if delivered == at + 1:
                        ACTIONS[action](engine, calls[0])

                def on_event(event: ms.Event, recorder: Recorder = recorder) -> None:
                    recorder.on_event(event)
                    act()

                def on_completion(completion: ms.Completion, recorder: Recorder = recorder) -> None:
                    recorder.on_completion(completion)
                    act()

                call = engine.start_stream(hello(), on_event, on_completion)
                calls.append(call)
                with trio.move_on_after(0.2 if action == "pause" else 5):
                    await call.wait()
                if action == "pause":
                    call.resume()
                completion = await call.wait()
                assert recorder.completion is completion
                assert recorder.types.count("DONE") + recorder.types.count("ERROR") <= 1
                if action != "close":
                    await check_next_call(engine)
            assert len(recorder.completions) == 1
        await place.check_nothing_is_left()
    assert "a defect" not in caplog.text
