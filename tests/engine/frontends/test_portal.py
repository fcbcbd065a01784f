"""Calls from other threads: what is passed to the engine's thread, each error's text, and Ctrl-C while it waits."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest
import trio

import manystream as ms
from manystream.engine.call.home import Home
from manystream.engine.frontends.engine_thread import EngineThread
from manystream.engine.frontends.portal import Portal, PortalCall, PortalRecording
from tests.support.peers import Line, open_peer

CLOSED = "this portal is closed: the block of its engine was left"
FORKED = "this portal was opened in another process: open one after the fork"
BLOCKING = "a callback must not wait for a call: it holds up the thread that would end it"


class Thread:
    """The engine's thread, which is this one. raises: after a function has run."""

    is_running = True

    def __init__(self) -> None:
        self.runs = 0
        self.raises: BaseException | None = None

    def run(self, function: Callable[[], object]) -> object:
        self.runs += 1
        result = function()
        if self.raises is not None:
            raise self.raises
        return result

    def soon(self, function: Callable[[], object]) -> None:
        function()

    leave = soon

    def check_may_block(self) -> None:
        pass


class Call:
    """A call of the engine, which notes what is done to it."""

    state = ms.CallState.QUEUED
    target = "one/m"
    waiting_for = "a limit"

    def __init__(self) -> None:
        self.done: list[str] = []

    def __repr__(self) -> str:
        return "<Call>"

    def cancel(self) -> None:
        self.done.append("cancel")

    def pause(self) -> None:
        self.done.append("pause")

    def resume(self) -> None:
        self.done.append("resume")


class Calls:
    """The engine's calls. ends: each call has ended when its start returns."""

    def __init__(self, completion: ms.Completion | None = None) -> None:
        self.started: list[tuple[object, ...]] = []
        self.call = Call()
        self.completion = completion
        self.sessions: list[str] = []

    def __repr__(self) -> str:
        return "some calls"

    def start(self, request: object, on_event: object, on_completion: Any, *, stream: bool) -> Call:
        self.started.append((request, on_event, stream))
        self.end = on_completion
        if self.completion is not None:
            on_completion(self.completion)
        return self.call

    def end_session(self, session: str) -> None:
        self.sessions.append(session)


def portal_call(
    thread: Thread, calls: Calls, on_completion: Callable[[ms.Completion], object] | None = None
) -> PortalCall:
    start: Any = lambda end: calls.start("request", None, end, stream=False)  # noqa: E731
    return PortalCall(cast(Any, thread), start, on_completion)


def test_a_call_passes_everything_to_the_engine_s_call() -> None:
    thread, calls = Thread(), Calls()
    call = portal_call(thread, calls)
    assert (thread.runs, call.completion) == (1, None)
    assert (repr(call), call.state, call.target, call.waiting_for) == (
        "<Call>", ms.CallState.QUEUED, "one/m", "a limit"
    )  # fmt: skip
    assert thread.runs == 2
    call.pause()
    call.resume()
    call.cancel()
    assert calls.call.done == ["pause", "resume", "cancel"]
    with call as entered:
        assert entered is call
        assert len(calls.call.done) == 3
    assert calls.call.done[3:] == ["cancel"]


def test_a_wait_ends_with_the_completion_or_its_timeout() -> None:
    thread, calls, seen = Thread(), Calls(), list[ms.Completion]()
    call = portal_call(thread, calls, seen.append)
    with pytest.raises(TimeoutError) as raised:
        call.wait(0.001)
    assert str(raised.value) == "the call has not ended within 0.001 s"
    completion = ms.Completion(True)
    calls.end(completion)
    assert (seen, call.completion is completion, call.wait() is completion) == ([completion], True, True)
    assert (call.waiting_for, thread.runs) == ("", 1)


@pytest.mark.parametrize("timeout", [None, math.inf, 1e300, 10**400])
def test_a_wait_without_a_limit(timeout: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float | None] = []

    class Ended(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            limits.append(timeout)
            return super().wait(timeout)

    monkeypatch.setattr(threading, "Event", Ended)
    calls, completion = Calls(), ms.Completion(True)
    call = portal_call(Thread(), calls)
    calls.end(completion)
    assert (call.wait(timeout), limits) == (completion, [None])


def test_a_wait_until_a_time_that_has_passed() -> None:
    with pytest.raises(TimeoutError, match="the call has not ended within 0 s"):
        portal_call(Thread(), Calls()).wait(-3)


@pytest.mark.parametrize(("timeout", "shown"), [("5", "'5'"), (math.nan, "nan"), ([], "list")])
def test_a_timeout_of_a_wait_that_is_no_number(timeout: Any, shown: str) -> None:
    with pytest.raises(ValueError, match="wait: timeout") as raised:
        portal_call(Thread(), Calls()).wait(timeout)
    assert str(raised.value) == f"wait: timeout must be seconds, 0 or more (math.inf: no limit), not {shown}"


def test_a_callback_that_raises_ends_the_wait_as_well() -> None:
    def broken(completion: ms.Completion) -> None:
        raise ValueError("mine")

    calls = Calls()
    call = portal_call(Thread(), calls, broken)
    completion = ms.Completion(True)
    with pytest.raises(ValueError, match="mine"):
        calls.end(completion)
    assert call.wait(1) is completion


def test_a_start_that_is_interrupted_cancels_the_call() -> None:
    thread, calls = Thread(), Calls()
    thread.raises = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        portal_call(thread, calls)
    assert calls.call.done == ["cancel"]

    def refuses(end: object) -> Call:
        raise ms.EngineClosedError("closed")

    with pytest.raises(ms.EngineClosedError):
        PortalCall(cast(Any, Thread()), cast(Any, refuses), None)


def test_a_callback_that_is_no_function_is_refused_at_once() -> None:
    thread = Thread()
    with pytest.raises(ms.InvalidRequestError) as raised:
        portal_call(thread, Calls(), cast(Any, 3))
    assert (str(raised.value), thread.runs) == ("on_completion: must be a function, not int", 0)


def portal(calls: Calls) -> Portal:
    return Portal(cast(Any, calls), cast(Any, Thread()))


def test_a_request_returns_its_response_or_raises() -> None:
    request = ms.Request("m", "hello")
    response = ms.Response()
    calls = Calls(ms.Completion(True, response=response))
    one = portal(calls)
    assert repr(one) == "<Portal to some calls>"
    assert one.request(request) is response
    assert (calls.started, calls.call.done) == ([(request, None, False)], ["cancel"])
    error = ms.ProviderError("no", category=ms.ErrorCategory.AUTH)
    failing = Calls(ms.Completion(False, error=error))
    with pytest.raises(ms.ProviderError) as raised:
        portal(failing).request(request)
    assert (raised.value, failing.call.done) == (error, ["cancel"])


def test_each_kind_of_call_is_started_with_its_callbacks() -> None:
    request, calls = ms.Request("m", "hello"), Calls()
    one = portal(calls)
    events: list[ms.Event] = []
    one.start_request(request)
    one.start_stream(request, events.append)
    with one.stream(request):
        pass
    assert [(started[0], started[2]) for started in calls.started] == [
        (request, False), (request, True), (request, True)
    ]  # fmt: skip
    assert calls.started[1][1] == events.append
    one.end_session("s")
    assert calls.sessions == ["s"]
    with one.map([request], concurrency=1) as results:
        results._start_some(1)
    assert calls.started[3][::2] == (request, False)


class Recording:
    """A recording that notes when it is closed."""

    exchanges = 7

    def __init__(self) -> None:
        self.closed = False
        self.closes = 0

    def __repr__(self) -> str:
        return "<Recording>"

    def close(self) -> None:
        self.closed = True
        self.closes += 1


def test_a_recording_is_closed_once_on_the_engine_s_thread() -> None:
    thread, recording = Thread(), Recording()
    one = PortalRecording(cast(Any, thread), cast(Any, recording))
    with one as entered:
        assert (entered, repr(one), one.closed, one.exchanges) == (one, "<Recording>", False, 7)
    assert (one.closed, recording.closes, thread.runs) == (True, 1, 1)
    one.close()
    assert (recording.closes, thread.runs) == (1, 1)


# --- the engine's thread ---


async def _seven() -> int:
    await trio.lowlevel.checkpoint()
    return 7


def _in_a_thread(function: Callable[[], object]) -> object:
    """Run a function in another thread, and return its result or its exception."""
    found: list[object] = []

    def run() -> None:
        try:
            found.append(function())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    return found[0]


def test_functions_run_on_the_thread_that_runs_trio() -> None:
    async def main() -> EngineThread:
        one, here = EngineThread(Home(trio.lowlevel.current_trio_token)), threading.get_ident()
        assert one.run(threading.get_ident) == here
        with pytest.raises(RuntimeError) as raised:
            one.run_async(_seven)
        assert str(raised.value) == BLOCKING
        with pytest.raises(RuntimeError, match="must not wait"):
            one.check_may_block()
        soon: list[int] = []

        def elsewhere() -> list[object]:
            one.check_may_block()
            one.soon(lambda: soon.append(threading.get_ident()))
            return [one.run(threading.get_ident), one.run_async(_seven)]

        assert await trio.to_thread.run_sync(elsewhere) == [here, 7]
        assert soon == [here]
        return one

    one = trio.run(main)
    for function in (lambda: one.run(threading.get_ident), lambda: one.run_async(_seven)):
        error = _in_a_thread(function)
        assert isinstance(error, ms.EngineClosedError)
        assert str(error) == CLOSED
    assert _in_a_thread(lambda: one.soon(lambda: None)) is None


def test_a_portal_is_not_used_in_a_forked_process(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        one = EngineThread(Home(trio.lowlevel.current_trio_token))
        process = os.getpid()
        monkeypatch.setattr(os, "getpid", lambda: process + 1)
        ways: tuple[Callable[[], object], ...] = (
            lambda: one.run(threading.get_ident), lambda: one.run_async(_seven), lambda: one.soon(lambda: None),
            one.check_may_block,
        )  # fmt: skip
        for way in ways:
            with pytest.raises(ms.EngineClosedError) as raised:
                way()
            assert str(raised.value) == FORKED
        monkeypatch.undo()

    trio.run(main)


@pytest.mark.parametrize("first", ["the start", "the interruption"])
async def test_an_interrupted_start_leaves_no_call(monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    """The interruption may come before the engine's thread has started the call, or after."""
    run, interrupted = EngineThread.run, False

    def interrupted_run(thread: EngineThread, function: Callable[[], object]) -> object:
        nonlocal interrupted
        if interrupted:
            return run(thread, function)
        interrupted = True
        if first == "the start":
            run(thread, function)
        else:
            thread.soon(lambda: run(thread, function) and None)
        raise KeyboardInterrupt

    async def silent(line: Line) -> None:
        await line.request()
        await trio.sleep_forever()

    completions: list[ms.Completion] = []

    def program(portal: ms.Portal, provider: ms.Provider) -> None:
        monkeypatch.setattr(EngineThread, "run", interrupted_run)
        request = ms.Request(f"{provider.name}/m", [ms.Message.user("hello")])
        with pytest.raises(KeyboardInterrupt):
            portal.start_request(request, completions.append)

    async with open_peer(silent) as peer:
        provider = ms.OpenAIChat("key", peer.url, name="peer")
        async with ms.open_engine([provider]) as engine:
            await trio.to_thread.run_sync(program, engine.from_thread, provider)
            with trio.fail_after(10):
                while not completions:
                    await trio.lowlevel.checkpoint()
            assert [completion.error_category for completion in completions] == ["cancelled"]
            assert engine.statistics().cancelled == 1
            assert not sum(engine.statistics().calls.values())
