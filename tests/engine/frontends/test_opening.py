"""The four ways to open an engine, and `map` on asyncio and on the portal."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

import pytest
import trio

import manystream as ms
from manystream import portal
from manystream.engine import EventStream
from manystream.engine.frontends import engine as core
from manystream.portal import Portal, open_portal
from tests.support.asyncio_programs import ask, run
from tests.support.waiting import eventually, until

EXCEPTIONS: dict[type, dict[str, str]] = {
    portal.Portal: {"close": "the block of its engine does it", "from_thread": "it is for every thread already"},
}
"""Class → name of a missing method → why it is missing."""

OF_THE_NATIVE_ENGINE = {
    ms.LazyEngine: core.Engine, portal.Portal: core.Engine, portal.PortalStream: EventStream,
}  # fmt: skip


def offers(owner: type) -> set[str]:
    """Return the names of the public methods and properties."""
    return {name for name in dir(owner) if not name.startswith("_")}


def parameters(function: Callable[..., object]) -> list[tuple[str, object]]:
    return [(name, parameter.default) for name, parameter in inspect.signature(function).parameters.items()]


@pytest.mark.parametrize("door", OF_THE_NATIVE_ENGINE, ids=lambda door: f"{door.__module__}.{door.__name__}")
def test_every_door_has_the_engines_methods(door: type) -> None:
    native = offers(OF_THE_NATIVE_ENGINE[door])
    missing = native - offers(door)
    assert missing == set(EXCEPTIONS.get(door, {})), "missing without a reason, or listed but not missing"


@pytest.mark.parametrize("door", [ms.LazyEngine, portal.Portal], ids=lambda door: door.__name__)
def test_methods_of_one_name_take_the_same_parameters(door: type) -> None:
    for name in offers(core.Engine) & offers(door):
        native = getattr(core.Engine, name)
        if inspect.isroutine(native):
            assert parameters(getattr(door, name)) == parameters(native), name


@pytest.mark.parametrize("open_door", [ms.LazyEngine, portal.open_portal], ids=lambda door: door.__name__)
def test_every_door_is_opened_with_the_same_options(open_door: Callable[..., object]) -> None:
    assert parameters(open_door) == parameters(core.open_engine)


# --- traffic control, through each door ---

ONE_A_DAY = ms.Traffic(rates={"one": ms.RateLimit(requests_per_day=2, requests_per_minute=1)})
ONE = [ms.OpenAIChat("key", "http://127.0.0.1:9/v1", name="one")]
TAGS = {"agent": "planner", "step": 3}
ASKED = ms.Request(
    "one/m", [ms.Message.user("a")], priority="batch", tenant="t", timeouts=ms.Timeouts(queue=600), tags=TAGS
)
WAITED_FOR = "declared requests_per_minute of one, 0 ahead, about "


async def hanging_dial(host: str, port: int) -> trio.SocketStream:
    await trio.sleep_forever()
    raise AssertionError("nobody cancels a sleep with an end")


def check(sent: ms.Call | portal.PortalCall, waiting: ms.Call | portal.PortalCall) -> None:
    """The first call was let go, the second waits."""
    assert (sent.target, sent.waiting_for) == ("one/m", "")
    assert waiting.waiting_for.startswith(WAITED_FOR)
    assert waiting.state is ms.CallState.QUEUED
    assert [(call.number, call.tags) for call in (sent, waiting)] == [(1, TAGS), (2, TAGS)]
    assert sent.request is waiting.request is ASKED


async def test_traffic_control_on_trio() -> None:
    async with core.open_engine(ONE, traffic=ONE_A_DAY, dial=hanging_dial) as engine:
        check(engine.start_stream(ASKED), engine.start_request(ASKED))
        assert engine.statistics().traffic.limiters["one/m"].waiting == 1


def test_traffic_control_on_asyncio() -> None:
    async def main() -> None:
        async with ms.open_engine(ONE, traffic=ONE_A_DAY, dial=hanging_dial) as engine:
            waiting = engine.start_stream(ASKED), engine.start_request(ASKED)
            check(*waiting)
            assert engine.statistics().traffic.limiters["one/m"].waiting == 1
        completion = await waiting[1].wait()
        assert (completion.error_category, completion.tags) == (ms.ErrorCategory.CANCELLED, TAGS)
        assert waiting[1].waiting_for == ""

    asyncio.run(main())


def test_traffic_control_for_threads() -> None:
    with portal.open_portal(ONE, traffic=ONE_A_DAY, dial=hanging_dial) as threads:
        waiting = threads.start_stream(ASKED), threads.start_request(ASKED)
        check(*waiting)
        assert threads.statistics().traffic.limiters["one/m"].waiting == 1
    completion = waiting[1].wait(10)
    assert (completion.error_category, completion.tags) == (ms.ErrorCategory.CANCELLED, TAGS)
    assert waiting[1].waiting_for == ""


@pytest.fixture
def portal_map(provider: ms.Provider) -> Iterator[Portal]:
    with open_portal([provider]) as portal_map:
        yield portal_map


def keyed(count: int) -> Iterator[tuple[int, ms.Request]]:
    for number in range(count):
        yield number, ask()


def failing_source() -> Iterator[ms.Request]:
    yield from (ask(), ask())
    raise OSError("the disk is gone")


# --- asyncio ---


def test_asyncio_gives_each_key_its_completion(provider: ms.Provider) -> None:
    async def main() -> None:
        async with ms.open_engine([provider]) as engine:
            async with engine.map(keyed(40), concurrency=5) as results:
                found = {key: completion.success async for key, completion in results}
            assert found == dict.fromkeys(range(40), True)
            assert engine.statistics().opened <= 5

    run(main)


def test_asyncio_reads_an_async_source_on_its_loop_and_closes_it(provider: ms.Provider) -> None:
    closed: list[bool] = []

    async def source() -> AsyncGenerator[ms.Request, None]:
        try:
            for _ in range(1000):
                await asyncio.sleep(0)
                yield ask()
        finally:
            closed.append(True)

    async def main() -> None:
        async with ms.open_engine([provider]) as engine:
            async with engine.map(source(), concurrency=2, ordered=True) as results:
                async for request, completion in results:
                    assert completion.success
                    assert request == ask()
                    break
            assert closed == [True]

    run(main)


def test_asyncio_raises_a_source_error_after_the_started_calls(provider: ms.Provider) -> None:
    async def main() -> None:
        async with ms.open_engine([provider]) as engine, engine.map(failing_source()) as results:
            assert [(await results.__anext__())[1].success for _ in range(2)] == [True, True]
            with pytest.raises(OSError, match="the disk is gone"):
                await results.__anext__()

    run(main)


def test_asyncio_ends_if_the_source_awaits_a_cancelled_task(provider: ms.Provider) -> None:
    async def source() -> AsyncGenerator[ms.Request, None]:
        yield ask()
        task = asyncio.create_task(asyncio.sleep(60))
        await asyncio.sleep(0)
        task.cancel()
        await task

    async def main() -> None:
        async with ms.open_engine([provider]) as engine, engine.map(source()) as results:
            assert (await results.__anext__())[1].success
            with pytest.raises(asyncio.CancelledError):
                await results.__anext__()

    run(main)


def test_asyncio_raises_what_the_source_raises_as_it_is_closed(provider: ms.Provider) -> None:
    async def source() -> AsyncGenerator[ms.Request, None]:
        try:
            while True:
                yield ask()
        finally:
            raise OSError("the file is gone")

    async def main() -> None:
        async with ms.open_engine([provider]) as engine:
            with pytest.raises(OSError, match="the file is gone"):
                async with engine.map(source(), concurrency=2) as results:
                    await anext(results)

    run(main)


def test_asyncio_cancels_what_runs_with_the_task(provider: ms.Provider) -> None:
    async def main() -> None:
        async with ms.open_engine([provider]) as engine:

            async def program() -> None:
                async with engine.map((ask("delay=60") for _ in range(10)), concurrency=3) as results:
                    await results.__anext__()

            task = asyncio.create_task(program())
            await eventually(lambda: sum(engine.statistics().calls.values()) == 3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await eventually(lambda: engine.statistics().cancelled == 3)
            assert not sum(engine.statistics().calls.values())

    run(main)


def test_asyncio_says_how_a_map_is_opened(provider: ms.Provider) -> None:
    async def main() -> None:
        async with ms.open_engine([provider]) as engine:
            with pytest.raises(RuntimeError, match=r"async with engine\.map"):
                await engine.map([ask()]).__anext__()

    run(main)


# --- threads ---


@pytest.mark.parametrize("ordered", [False, True])
def test_a_portal_gives_each_key_its_completion(portal_map: Portal, ordered: bool) -> None:
    with portal_map.map(keyed(60), concurrency=7, ordered=ordered) as results:
        found = [(key, completion.success) for key, completion in results]
    assert [success for _, success in found] == [True] * 60
    assert (found if ordered else sorted(found)) == [(number, True) for number in range(60)]


def test_a_portal_reads_the_source_on_the_thread_that_iterates(portal_map: Portal) -> None:
    threads: set[int] = set()

    def source() -> Iterator[ms.Request]:
        for _ in range(5):
            threads.add(threading.get_ident())
            yield ask()

    with portal_map.map(source()) as results:
        assert len(list(results)) == 5
    assert threads == {threading.get_ident()}


def test_a_portal_raises_a_source_error_after_the_started_calls(portal_map: Portal) -> None:
    with portal_map.map(failing_source()) as results:
        assert [next(results)[1].success for _ in range(2)] == [True, True]
        with pytest.raises(OSError, match="the disk is gone"):
            next(results)


def test_a_portal_completes_a_request_that_cannot_be_sent(portal_map: Portal) -> None:
    with portal_map.map([ms.Request("sim/m", "hi", temperature=-1.0)]) as results:
        [(_, completion)] = list(results)
    assert completion.error_category is ms.ErrorCategory.INVALID_ARG
    assert (completion.error_message or "").startswith("temperature:")


def test_a_portal_completes_a_tuple_that_is_no_pair(portal_map: Portal) -> None:
    items: Any = [("key", ask(), "more"), ask()]
    with portal_map.map(items, ordered=True) as results:
        found = [completion.error_message for _, completion in results]
    assert found == ["requests: an item must be a Request or a pair of a key and a Request, not a tuple of 3", None]


def test_a_portal_reads_no_more_than_there_is_room_for(portal_map: Portal) -> None:
    read: list[int] = []

    def source() -> Iterator[ms.Request]:
        for number in range(1000):
            read.append(number)
            yield ask()

    with portal_map.map(source(), concurrency=4) as results:
        for taken, _ in enumerate(results, 1):
            assert len(read) - taken <= 8
            if taken == 100:
                break


def test_leaving_a_portals_map_cancels_what_runs(portal_map: Portal) -> None:
    slow = [ask(), *(ask("delay=60") for _ in range(3))]
    with portal_map.map(slow) as results:
        assert next(results)[1].success
    until(lambda: not sum(portal_map.statistics().calls.values()))
    assert portal_map.statistics().cancelled == 3


def test_a_portals_map_takes_no_async_source(portal_map: Portal) -> None:
    async def source() -> AsyncGenerator[ms.Request, None]:
        yield ask()

    with pytest.raises(ms.InvalidRequestError, match="async iterable"):
        portal_map.map(source())  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def test_a_portals_map_may_not_wait_in_a_callback(portal_map: Portal) -> None:
    errors: list[BaseException] = []

    def on_completion(_: ms.Completion) -> None:
        with portal_map.map([ask()]) as results:
            try:
                next(results)
            except RuntimeError as error:
                errors.append(error)

    portal_map.start_request(ask(), on_completion).wait(30)
    assert "callback must not wait" in str(errors[0])
