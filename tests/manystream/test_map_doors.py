"""`map` on asyncio and on the portal: the same as on trio, by other means of waiting."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest

import manystream as ms
from manystream import aio
from manystream.portal import Portal, open_portal
from manystream.simulator import Simulator, open_simulator_thread
from tests.manystream.asyncio_programs import ask, run
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with open_simulator_thread("events=2") as simulator:
        yield simulator


@pytest.fixture
def provider(simulator: Simulator) -> ms.Provider:
    return ms.OpenAIChat("key", simulator.base_urls["openai-chat"], name="sim")


@pytest.fixture
def portal(provider: ms.Provider) -> Iterator[Portal]:
    with open_portal([provider]) as portal:
        yield portal


def keyed(count: int) -> Iterator[tuple[int, ms.Request]]:
    for number in range(count):
        yield number, ask()


def failing_source() -> Iterator[ms.Request]:
    yield from (ask(), ask())
    raise OSError("the disk is gone")


# --- asyncio ---


def test_asyncio_gives_each_key_its_completion(provider: ms.Provider) -> None:
    async def main() -> None:
        async with aio.open_engine([provider]) as engine:
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
        async with aio.open_engine([provider]) as engine:
            async with engine.map(source(), concurrency=2, ordered=True) as results:
                async for request, completion in results:
                    assert completion.success
                    assert request == ask()
                    break
            assert closed == [True]

    run(main)


def test_asyncio_raises_a_source_error_after_the_started_calls(provider: ms.Provider) -> None:
    async def main() -> None:
        async with aio.open_engine([provider]) as engine, engine.map(failing_source()) as results:
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
        async with aio.open_engine([provider]) as engine, engine.map(source()) as results:
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
        async with aio.open_engine([provider]) as engine:
            with pytest.raises(OSError, match="the file is gone"):
                async with engine.map(source(), concurrency=2) as results:
                    await anext(results)

    run(main)


def test_asyncio_cancels_what_runs_with_the_task(provider: ms.Provider) -> None:
    async def main() -> None:
        async with aio.open_engine([provider]) as engine:

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
        async with aio.open_engine([provider]) as engine:
            with pytest.raises(RuntimeError, match=r"async with engine\.map"):
                await engine.map([ask()]).__anext__()

    run(main)


# --- threads ---


@pytest.mark.parametrize("ordered", [False, True])
def test_a_portal_gives_each_key_its_completion(portal: Portal, ordered: bool) -> None:
    with portal.map(keyed(60), concurrency=7, ordered=ordered) as results:
        found = [(key, completion.success) for key, completion in results]
    assert [success for _, success in found] == [True] * 60
    assert (found if ordered else sorted(found)) == [(number, True) for number in range(60)]


def test_a_portal_reads_the_source_on_the_thread_that_iterates(portal: Portal) -> None:
    threads: set[int] = set()

    def source() -> Iterator[ms.Request]:
        for _ in range(5):
            threads.add(threading.get_ident())
            yield ask()

    with portal.map(source()) as results:
        assert len(list(results)) == 5
    assert threads == {threading.get_ident()}


def test_a_portal_raises_a_source_error_after_the_started_calls(portal: Portal) -> None:
    with portal.map(failing_source()) as results:
        assert [next(results)[1].success for _ in range(2)] == [True, True]
        with pytest.raises(OSError, match="the disk is gone"):
            next(results)


def test_a_portal_completes_a_request_that_cannot_be_sent(portal: Portal) -> None:
    with portal.map([ms.Request("sim/m", "hi", temperature=-1.0)]) as results:
        [(_, completion)] = list(results)
    assert completion.error_category is ms.ErrorCategory.INVALID_ARG
    assert (completion.error_message or "").startswith("temperature:")


def test_a_portal_completes_a_tuple_that_is_no_pair(portal: Portal) -> None:
    items: Any = [("key", ask(), "more"), ask()]
    with portal.map(items, ordered=True) as results:
        found = [completion.error_message for _, completion in results]
    assert found == ["requests: an item must be a Request or a pair of a key and a Request, not a tuple of 3", None]


def test_a_portal_reads_no_more_than_there_is_room_for(portal: Portal) -> None:
    read: list[int] = []

    def source() -> Iterator[ms.Request]:
        for number in range(1000):
            read.append(number)
            yield ask()

    with portal.map(source(), concurrency=4) as results:
        for taken, _ in enumerate(results, 1):
            assert len(read) - taken <= 8
            if taken == 100:
                break


def test_leaving_a_portals_map_cancels_what_runs(portal: Portal) -> None:
    slow = [ask(), *(ask("delay=60") for _ in range(3))]
    with portal.map(slow) as results:
        assert next(results)[1].success
    while sum(portal.statistics().calls.values()):
        pass
    assert portal.statistics().cancelled == 3


def test_a_portals_map_takes_no_async_source(portal: Portal) -> None:
    async def source() -> AsyncGenerator[ms.Request, None]:
        yield ask()

    with pytest.raises(ms.InvalidRequestError, match="async iterable"):
        portal.map(source())  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def test_a_portals_map_may_not_wait_in_a_callback(portal: Portal) -> None:
    errors: list[BaseException] = []

    def on_completion(_: ms.Completion) -> None:
        with portal.map([ask()]) as results:
            try:
                next(results)
            except RuntimeError as error:
                errors.append(error)

    portal.start_request(ask(), on_completion).wait(30)
    assert "callback must not wait" in str(errors[0])
