"""`start_*` returns before the call can end: no callback runs inside it, even after an error."""

import gc
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pytest
import trio
import trio.testing

import manystream as ms
from manystream.batch import Batch, Journal, read_lines
from manystream.engine.observe.observer import CallStart
from manystream.engine.request.limits import EngineLimits
from manystream.transport.http1 import Connection
from manystream.transport.pool import Pool, PoolLimits
from tests.support.batches import line, model, records, write
from tests.support.peers import Peer, Recorder, answer, chat_answer, hello, open_peer, replies, until

ONE_PLACE = EngineLimits(pool=PoolLimits(max_per_origin=1))
RETRY = ms.Retry(max_attempts=1)


SERVED = replies(answer(chat_answer("one")))


class InjectedError(ValueError):
    """The error that the tests raise inside a start. Its text contains the provider's key, as a real error's may."""

    def __init__(self) -> None:
        super().__init__("cannot send 'Bearer sk-canary-secret'")


async def finished(engine: ms.Engine) -> ms.Completion:
    return await engine.start_request(hello()).wait()


def start(engine: ms.Engine, recorder: Recorder, *, stream: bool) -> ms.Call:
    if stream:
        return engine.start_stream(hello(), recorder.on_event, recorder.on_completion)
    return engine.start_request(hello(), recorder.on_completion)


@pytest.mark.parametrize("stream", [False, True], ids=["unstreamed", "streamed"])
@pytest.mark.parametrize("where", ["acquire", "send", "looks_alive"])
async def test_a_start_that_raises_completes_at_the_next_tick(
    where: str, stream: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def raising(*_: object, **__: object) -> None:
        raise InjectedError

    recorder = Recorder()
    async with open_peer(SERVED) as peer, ms.open_engine([peer.chat], limits=ONE_PLACE) as engine:
        assert (await finished(engine)).success  # leaves an idle connection
        with monkeypatch.context() as patch:
            patch.setattr(Pool if where == "acquire" else Connection, where, raising)
            call = start(engine, recorder, stream=stream)
        assert (recorder.events, recorder.completions, call.completion) == ([], [], None)
        assert call.state.value == "ended"
        with trio.fail_after(20):
            assert await call.wait() is recorder.completion
        assert recorder.completion.error_category is ms.ErrorCategory.UNKNOWN
        assert recorder.types == (["ERROR"] if stream else [])
        assert "InjectedError" in str(recorder.completion.error)
        assert (await finished(engine)).success
        assert engine.statistics().calls == {}
    assert len(peer.requests) == 2
    assert "sk-canary-secret" not in f"{recorder.completion!r} {recorder.completion.error} {caplog.text}"


class Injector:
    """A hook that raises at the `at`-th Python call inside `Engine._start`, without counting trio's own calls."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.seen = 0
        self.place = ""

    def hook(self, frame: FrameType, event: str, _: object) -> None:
        caller = frame.f_back
        if event != "call" or caller is None:
            return
        if "trio" in (each.f_globals.get("__name__", "").partition(".")[0] for each in (frame, caller)):
            return
        self.seen += 1
        if self.seen == self.at:
            self.place = frame.f_code.co_qualname
            raise InjectedError

    def start(self, engine: ms.Engine, recorder: Recorder, *, stream: bool) -> ms.Call | None:
        """Start a call, without the garbage collector: a finalizer would take the exception. Returns None if the start
        raised."""
        gc.disable()
        sys.setprofile(self.hook)
        try:
            return start(engine, recorder, stream=stream)
        except InjectedError:
            return None
        finally:
            sys.setprofile(None)
            gc.enable()


@pytest.mark.parametrize("stream", [False, True], ids=["unstreamed", "streamed"])
@pytest.mark.parametrize("reuses", [True, False], ids=["on an idle connection", "on a new connection"])
async def test_no_callback_runs_inside_a_start_that_raises(reuses: bool, stream: bool) -> None:
    """Either `start_*` raises and there is no call, or it returns and the call completes once, later."""
    async with open_peer(SERVED) as peer, ms.open_engine([peer.chat], limits=ONE_PLACE, retry=RETRY) as engine:
        at, returned = 0, 0
        await start(engine, Recorder(), stream=stream).wait()  # fills caches, so that the number of calls is constant
        while True:
            at += 1
            if reuses:
                assert (await finished(engine)).success
            else:
                for connection in list(engine._calls.starter.runtime.pool._host_of):
                    connection.close()
            injector, recorder = Injector(at), Recorder()
            call = injector.start(engine, recorder, stream=stream)
            assert recorder.completions == [], injector.place
            if call is not None:
                returned += 1
                with trio.fail_after(20):
                    await call.wait()
            await trio.testing.wait_all_tasks_blocked()
            assert len(recorder.completions) == (call is not None), injector.place
            statistics = engine.statistics()
            assert statistics.calls == {}, injector.place
            assert statistics.started == statistics.completed, injector.place
            assert [each.running for each in statistics.providers.values()] == [0], injector.place
            if not injector.place:
                break
            assert (await finished(engine)).success, injector.place
    assert returned > 10


async def test_a_start_at_the_stack_s_end_raises_or_completes_once() -> None:
    # An error at some levels leaves the connection to the pool's expiry.
    limits = replace(ONE_PLACE, pool=replace(ONE_PLACE.pool, idle_expiry=0.5))
    async with open_peer(SERVED) as peer, ms.open_engine([peer.chat], limits=limits) as engine:

        def descend(levels: int, recorder: Recorder) -> ms.Call:
            return descend(levels - 1, recorder) if levels else start(engine, recorder, stream=False)

        raised = 0
        for levels in range(sys.getrecursionlimit() - 200, sys.getrecursionlimit()):
            assert (await finished(engine)).success
            recorder = Recorder()
            call: ms.Call | None = None
            try:
                call = descend(levels, recorder)
            except RecursionError:
                raised += 1
            assert recorder.completions == []
            if call is not None:
                await call.wait()
            assert len(recorder.completions) == (call is not None)
            assert engine.statistics().calls == {}
    assert 0 < raised < 200


# --- an observer that ends the call, or everything, while the call starts ---


class Interferes(ms.Observer):
    """An observer that calls `act` at one of the hooks that run inside `start_*`."""

    def __init__(self, hook: str, act: Callable[[ms.Call], None]) -> None:
        self._hook = hook
        self._act = act
        self.attempts = 0

    def call_started(self, call: ms.Call, start: CallStart) -> None:
        if self._hook == "call_started":
            self._act(call)

    def attempt_started(self, call: ms.Call, number: int) -> None:
        self.attempts += 1
        if self._hook == "attempt_started":
            self._act(call)


@pytest.mark.parametrize("hook", ["call_started", "attempt_started"])
async def test_a_call_cancelled_by_an_observer_at_start_is_not_sent(hook: str) -> None:
    active = False

    def cancel(call: ms.Call) -> None:
        if active:
            call.cancel()

    observer = Interferes(hook, cancel)
    recorder = Recorder()
    async with open_peer(SERVED) as peer, ms.open_engine([peer.chat], observer=observer) as engine:
        assert (await finished(engine)).success
        active = True
        call = engine.start_request(hello(), recorder.on_completion)
        active = False
        assert recorder.completions == []
        assert call.state.value == "ended"
        await call.wait()
        assert recorder.completion.error_category is ms.ErrorCategory.CANCELLED
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert (len(peer.requests), engine.statistics().opened) == (1, 1)
        assert (await finished(engine)).success
    assert len(peer.requests) == 2
    assert observer.attempts == (2 if hook == "call_started" else 3)


async def test_a_retry_that_an_observer_cancels_sends_nothing() -> None:
    busy = replies(answer("{}", status="503 Service Unavailable"))

    class CancelsRetries(ms.Observer):
        def attempt_started(self, call: ms.Call, number: int) -> None:
            if number == 2:
                call.cancel()

    retry = ms.Retry(max_attempts=3, base=0, jitter=0)
    async with open_peer(busy) as peer, ms.open_engine([peer.chat], observer=CancelsRetries(), retry=retry) as engine:
        completion = await finished(engine)
        assert completion.error_category is ms.ErrorCategory.CANCELLED
        await trio.testing.wait_all_tasks_blocked(0.01)
    assert len(peer.requests) == 1


@pytest.mark.parametrize("hook", ["call_started", "attempt_started"])
async def test_an_observer_that_raises_ctrl_c_at_start_ends_it_once(hook: str) -> None:
    def interrupt(call: ms.Call) -> None:
        raise KeyboardInterrupt

    recorder = Recorder()
    states: list[str] = []
    observer = Interferes(hook, interrupt)

    async def use(peer: Peer) -> None:
        async with ms.open_engine([peer.chat], observer=observer) as engine:
            call = engine.start_request(hello(), recorder.on_completion)
            states.append(call.state.value)
            await call.wait()
            await trio.sleep_forever()

    async with open_peer(SERVED) as peer:
        with pytest.raises(KeyboardInterrupt):
            await use(peer)
    assert recorder.completion.error_category is ms.ErrorCategory.CANCELLED
    assert (states, len(peer.requests)) == (["ended"], 0)
    assert observer.attempts == (0 if hook == "call_started" else 1)


# --- Ctrl-C inside `start_*` ---


async def test_a_start_that_is_interrupted_leaves_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    recorder = Recorder()
    async with open_peer(SERVED) as peer, ms.open_engine([peer.chat], limits=ONE_PLACE) as engine:
        assert (await finished(engine)).success
        for method in ("send", "looks_alive"):
            with monkeypatch.context() as patch:
                patch.setattr(Connection, method, interrupted)
                with pytest.raises(KeyboardInterrupt):
                    engine.start_request(hello(), recorder.on_completion)
            with trio.fail_after(20):
                assert (await finished(engine)).success
                await until(lambda: not engine.statistics().calls)
    assert recorder.completions == []


async def test_a_batch_interrupted_as_a_line_starts_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = Connection.send

    def interrupted_later(connection: Connection, *arguments: object) -> None:
        if connection.served == 2:
            raise KeyboardInterrupt
        original(connection, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Connection, "send", interrupted_later)
    prompts = write(tmp_path / "p.jsonl", [line(str(number)) for number in range(9)])
    with trio.fail_after(20):
        async with open_peer(SERVED) as peer, ms.open_engine([peer.chat]) as engine:
            with Journal(tmp_path / "a.jsonl") as journal:
                batch = Batch(engine, journal, model, concurrency=1)
                with pytest.raises(KeyboardInterrupt):
                    await batch.run(read_lines(prompts))
            assert batch.counters.running == 0
            await until(lambda: not engine.statistics().calls)
    assert [record["id"] for record in records(tmp_path / "a.jsonl")] == ["0", "1"]
