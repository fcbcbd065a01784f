"""Programs that use an engine the wrong way get an error at once that shows the right way, instead of waiting."""

import asyncio
import functools
import types
import unittest.mock
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

import manystream as ms
from manystream.batch import Batch
from manystream.engine.observe.observer import HOOKS
from manystream.portal import Portal, open_portal
from tests.support.peers import Line, answer, chat_answer, chat_stream, hang, hello, open_peer, reply_once, stream_of

Door = ms.Engine | Portal

CHAT = ms.OpenAIChat(api_key="key", base_url="http://127.0.0.1:9/v1")
LONG_RETRY = ms.Retry(base=1000.0)
"""Seconds that a call to `CHAT`, where no server listens, waits for its second attempt."""


# --- a stream that is read without its block ---


async def test_reading_a_stream_without_its_block_shows_the_right_use() -> None:
    async with ms.open_engine([CHAT]) as engine:
        with trio.fail_after(5), pytest.raises(RuntimeError, match=r"async with engine\.stream") as raised:
            async for _ in engine.stream(hello()):
                pass
        assert "async for event in events" in str(raised.value)
        assert engine.statistics().started == 0


def test_reading_an_asyncio_stream_without_its_block_is_an_error() -> None:
    async def main() -> None:
        async with ms.open_engine([CHAT]) as engine, asyncio.timeout(5):
            with pytest.raises(RuntimeError, match=r"async with engine\.stream"):
                async for _ in engine.stream(hello()):
                    pass
            assert engine.statistics().started == 0

    asyncio.run(main())


def test_reading_a_portal_stream_without_its_block_is_an_error() -> None:
    with open_portal([CHAT]) as portal:
        with pytest.raises(RuntimeError, match=r"with portal\.stream") as raised:
            for _ in portal.stream(hello()):
                pass
        assert "async" not in str(raised.value)
        assert portal.statistics().started == 0


async def test_the_call_of_a_stream_does_not_exist_before_its_block() -> None:
    async with ms.open_engine([CHAT]) as engine:
        with pytest.raises(RuntimeError, match=r"async with engine\.stream"):
            assert engine.stream(hello()).call


async def test_a_stream_s_block_can_be_entered_once() -> None:
    async with ms.open_engine([CHAT]) as engine:
        stream = engine.stream(hello())
        async with stream:
            with pytest.raises(RuntimeError, match="entered already"):
                async with stream:
                    pass
            assert engine.statistics().started == 1


async def test_a_stream_is_read_by_one_task_at_a_time(autojump_clock: MockClock) -> None:
    """Two tasks would share its events in no order; the first of them had waited for ever."""
    ends: list[str] = []

    async def read(events: ms.EventStream) -> None:
        try:
            async for _ in events:
                pass
            ends.append("read")
        except RuntimeError as error:
            ends.append(str(error))

    async def late(line: Line) -> None:
        await line.request()
        await trio.sleep(1)
        await line.send(stream_of(*chat_stream("fine")))

    async with open_peer(late) as peer, ms.open_engine([peer.chat]) as engine:
        with trio.fail_after(60):
            async with engine.stream(hello()) as events, trio.open_nursery() as nursery:
                nursery.start_soon(read, events)
                nursery.start_soon(read, events)
    assert ends == ["another task is already waiting for this stream's next event", "read"]


async def test_a_stream_cancelled_at_its_entry_leaves_no_call() -> None:
    async with open_peer(hang) as peer, ms.open_engine([peer.chat]) as engine:
        with trio.CancelScope() as scope:
            scope.cancel()
            async with engine.stream(hello()):
                raise AssertionError("entered in spite of the cancellation")
        assert scope.cancelled_caught
        assert engine.statistics().calls == {}


# --- callbacks that cannot run ---


async def coroutine_function(_: object) -> None: ...


async def asynchronous_generator_function(_: object) -> AsyncGenerator[None, None]:
    yield


def generator_function(_: object) -> Generator[None, None, None]:
    yield


@types.coroutine
def old_coroutine_function(_: object) -> Generator[None, None, None]:
    yield


class Agent:
    async def asynchronous_method(self, _: object) -> None: ...

    @staticmethod
    async def asynchronous_static_method(_: object) -> None: ...

    @classmethod
    async def asynchronous_class_method(cls, _: object) -> None: ...


class AsynchronousCallable:
    async def __call__(self, _: object) -> None: ...


async def _of_two(_: object, __: object) -> None: ...


NEVER_RUN = {
    "coroutine function": (coroutine_function, "coroutine_function"),
    "asynchronous generator function": (asynchronous_generator_function, "asynchronous_generator_function"),
    "generator function": (generator_function, "generator_function"),
    "types.coroutine": (old_coroutine_function, "old_coroutine_function"),
    "bound method": (Agent().asynchronous_method, "Agent.asynchronous_method"),
    "static method": (Agent.asynchronous_static_method, "Agent.asynchronous_static_method"),
    "class method": (Agent.asynchronous_class_method, "Agent.asynchronous_class_method"),
    "partial": (functools.partial(_of_two, 1), "_of_two"),
    "partial of a partial": (functools.partial(functools.partial(coroutine_function)), "coroutine_function"),
    "partial of a method": (functools.partial(Agent().asynchronous_method), "Agent.asynchronous_method"),
    "object": (AsynchronousCallable(), "AsynchronousCallable.__call__"),
    "partial of an object": (functools.partial(AsynchronousCallable()), "AsynchronousCallable.__call__"),
    "mock": (unittest.mock.AsyncMock(), "AsyncMock.__call__"),
    "no callable": (3, "int"),
}
never_run = pytest.mark.parametrize(("callback", "name"), NEVER_RUN.values(), ids=NEVER_RUN.keys())


def assert_each_is_refused(engine: Door, callback: Any, name: str) -> None:
    """Check that each start method refuses the callback for each parameter, and starts nothing."""
    starts: dict[str, Callable[[], object]] = {
        "on_event": lambda: engine.start_stream(hello(), callback),
        "on_completion": lambda: engine.start_stream(hello(), None, callback),
        "on_completion:": lambda: engine.start_request(hello(), callback),
    }
    for field, start in starts.items():
        with pytest.raises(ms.InvalidRequestError) as raised:
            start()
        assert raised.value.field == field.rstrip(":")
        assert name in str(raised.value)
        assert name == "int" or "engine.stream(request)" in str(raised.value)
    assert engine.statistics().started == 0


@never_run
async def test_a_callback_that_cannot_run_is_refused(callback: Any, name: str) -> None:
    async with ms.open_engine([CHAT]) as engine:
        assert_each_is_refused(engine, callback, name)
        await trio.to_thread.run_sync(assert_each_is_refused, engine.from_thread, callback, name)


@never_run
def test_an_asyncio_callback_that_cannot_run_is_refused(callback: Any, name: str) -> None:
    async def main() -> None:
        async with ms.open_engine([CHAT]) as engine:
            assert_each_is_refused(engine, callback, name)

    asyncio.run(main())


@never_run
def test_a_portal_callback_that_cannot_run_is_refused(callback: Any, name: str) -> None:
    with open_portal([CHAT]) as portal:
        assert_each_is_refused(portal, callback, name)


class PlainCallable:
    def __call__(self, _: object) -> None: ...

    def method(self, _: object) -> None: ...


@functools.wraps(coroutine_function)
def plain_around_a_coroutine_function(_: object) -> None: ...


@pytest.mark.parametrize(
    "callback",
    [
        None,
        [].append,
        lambda _: None,
        print,
        functools.partial(print, "x"),
        PlainCallable(),
        PlainCallable().method,
        plain_around_a_coroutine_function,
        unittest.mock.Mock(),
        list,
    ],
)
async def test_every_plain_callable_is_accepted(callback: Any) -> None:
    async with ms.open_engine([CHAT]) as engine:
        engine.start_stream(hello(), callback, callback)
        engine.start_request(hello(), callback)


@pytest.mark.parametrize("hook", HOOKS)
async def test_an_observer_whose_hook_cannot_run_is_refused(hook: str) -> None:
    async def asynchronous(*_: object) -> None: ...

    observer = type("Log", (ms.Observer,), {hook: asynchronous})()
    with pytest.raises(ms.InvalidRequestError, match=rf"observer\.{hook}"):
        async with ms.open_engine([CHAT], observer=observer):
            pass


def test_a_batch_refuses_functions_that_cannot_run() -> None:
    for field in ("choose_model", "price"):
        functions: dict[str, Any] = {"choose_model": lambda model: model, field: coroutine_function}
        with pytest.raises(ms.InvalidRequestError, match=field):
            Batch(unittest.mock.Mock(), unittest.mock.Mock(), **functions)


# --- an engine for another kind of program ---


def test_open_engine_without_an_event_loop_names_doors() -> None:
    block = ms.open_engine([CHAT]).__aenter__()
    with pytest.raises(ms.EventLoopError, match=r"trio\.run.*asyncio\.run.*ms\.LazyEngine.*manystream\.portal"):
        block.send(None)  # type: ignore[attr-defined]
    assert issubclass(ms.EventLoopError, ms.ManystreamError)
    assert issubclass(ms.EventLoopError, RuntimeError)


# --- a call that is tied to a block ---


async def test_cancelling_a_task_in_a_call_s_block_cancels_the_call() -> None:
    async with open_peer(hang) as peer, ms.open_engine([peer.chat]) as engine:
        with trio.move_on_after(0) as scope:
            async with engine.start_stream(hello()) as call:
                await call.wait()
        assert scope.cancelled_caught
        assert (await call.wait()).error_category is ms.ErrorCategory.CANCELLED
        assert engine.statistics().calls == {}


async def test_cancelling_a_task_that_only_waits_keeps_the_call() -> None:
    async with open_peer(hang) as peer, ms.open_engine([peer.chat]) as engine:
        call = engine.start_stream(hello())
        with trio.move_on_after(0):
            await call.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert call.completion is None
        assert sum(engine.statistics().calls.values()) == 1


async def test_a_completed_call_keeps_its_completion_after_its_block() -> None:

    async with open_peer(reply_once(answer(chat_answer("hello")))) as peer, ms.open_engine([peer.chat]) as engine:
        async with engine.start_request(hello()) as call:
            assert (await call.wait()).success
        await trio.testing.wait_all_tasks_blocked()
        assert call.completion.success


def test_cancelling_an_asyncio_task_in_its_block_ends_the_call() -> None:
    async def main() -> None:
        async with ms.open_engine([CHAT]) as engine:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0), engine.start_stream(hello(retry=LONG_RETRY)) as call:
                    await call.wait()
            assert (await call.wait()).error_category is ms.ErrorCategory.CANCELLED

    asyncio.run(main())


def test_leaving_a_portal_call_s_block_cancels_the_call() -> None:
    with open_portal([CHAT]) as portal:
        with pytest.raises(TimeoutError), portal.start_stream(hello(retry=LONG_RETRY)) as call:
            call.wait(timeout=0)
        assert call.wait(timeout=30).error_category is ms.ErrorCategory.CANCELLED


STREAM_FORM = (
    "a stream is not awaited; engine.request is, for the whole answer. Write:\n"
    "    async with engine.stream(request) as events:\n"
    "        async for event in events: ..."
)
NOT_AWAITED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "stream": (lambda engine: engine.stream(hello()), STREAM_FORM),
    "call": (lambda engine: engine.start_stream(hello()),
        "a call is not awaited; wait for its completion with: await call.wait()"),
    "map": (lambda engine: engine.map([hello()]),
        "a map is not awaited; write: async with engine.map(requests) as results:"),
}  # fmt: skip


@pytest.mark.parametrize(("make", "message"), NOT_AWAITED.values(), ids=NOT_AWAITED)
@pytest.mark.parametrize("run", [trio.run, lambda main: asyncio.run(main())], ids=["trio", "asyncio"])
def test_awaited_by_mistake_says_why(run: Callable[[Any], Any], make: Callable[[Any], Any], message: str) -> None:
    async def main() -> None:
        with pytest.raises(TypeError) as caught:
            await ms.open_engine([CHAT])
        assert str(caught.value) == "open_engine is not awaited; write: async with open_engine(…) as engine:"
        async with ms.open_engine([CHAT]) as engine:
            with pytest.raises(TypeError) as caught:
                await make(engine)
            assert str(caught.value) == message

    run(main)
