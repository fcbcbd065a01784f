"""`LazyEngine`: made anywhere, an engine per event loop, which closes with the loop; and engines that nobody keeps."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import trio

import manystream as ms
from manystream.engine.frontends.lazy import LazyEngine
from manystream.portal import open_portal
from manystream.simulator import Simulator, open_simulator_thread

Program = Callable[[], Awaitable[object]]

LIBRARIES: dict[str, Callable[[Program], object]] = {
    "asyncio": lambda main: asyncio.run(main()),  # type: ignore[arg-type]
    "trio": lambda main: trio.run(main),
}
ENDLESS = "events=100000,rate=100"


@pytest.fixture(params=LIBRARIES)
def run(request: pytest.FixtureRequest) -> Callable[[Program], object]:
    """Run an async function in an event loop of its own."""
    return LIBRARIES[request.param]


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with open_simulator_thread() as simulator:
        yield simulator


@pytest.fixture
def provider(simulator: Simulator) -> ms.Provider:
    return ms.OpenAIChat("key", simulator.base_urls["openai-chat"], name="sim")


def ask(knobs: str = "") -> ms.Request:
    return ms.Request(f"sim/sim-text@{knobs}", "hello")


def loops(engine: LazyEngine) -> int:
    """Return the number of event loops that the engine has engines for."""
    return len(engine._opened)  # pyright: ignore[reportPrivateUsage]


def test_wrong_options_are_refused_where_it_is_made(provider: ms.Provider) -> None:
    with pytest.raises(ms.InvalidRequestError, match="two are named 'sim'"):
        ms.LazyEngine([provider, provider])
    with pytest.raises(TypeError, match="no option 'retries'"):
        ms.LazyEngine([provider], retries=3)  # type: ignore[call-arg]


def test_without_an_event_loop_its_methods_name_the_portal(provider: ms.Provider) -> None:
    engine = ms.LazyEngine([provider])
    with pytest.raises(ms.EventLoopError, match=r"manystream\.portal"):
        engine.start_request(ask())
    assert (loops(engine), engine.closed) == (0, False)


def test_it_is_used_in_one_event_loop_after_the_other(provider: ms.Provider) -> None:
    engine = ms.LazyEngine([provider])

    async def main() -> None:
        assert (await engine.request(ask())).text
        async with engine.stream(ask()) as events:
            assert [event async for event in events]
        async with engine.map([ask()] * 3) as results:
            assert [completion.success async for _, completion in results] == [True] * 3
        assert engine.statistics().connections

    for _ in range(2):
        for run in LIBRARIES.values():
            run(main)
            assert loops(engine) == 1


def test_many_first_calls_at_a_time_open_one_engine(provider: ms.Provider, run: Callable[[Program], object]) -> None:
    engine = ms.LazyEngine([provider])

    async def main() -> None:
        calls = [engine.start_request(ask()) for _ in range(20)]
        assert [(await call.wait()).success for call in calls] == [True] * 20
        assert [call.number for call in calls] == list(range(1, 21))

    run(main)


def test_threads_have_engines_of_their_own(provider: ms.Provider) -> None:
    engine = ms.LazyEngine([provider])
    numbers: list[int] = []

    async def main() -> None:
        call = engine.start_request(ask())
        assert (await call.wait()).success
        numbers.append(call.number)

    threads = [threading.Thread(target=run, args=(main,)) for run in LIBRARIES.values() for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert numbers == [1] * 4


def test_a_call_completes_when_its_event_loop_ends(provider: ms.Provider, run: Callable[[Program], object]) -> None:
    engine = ms.LazyEngine([provider])
    completions: list[ms.Completion] = []

    async def main() -> None:
        engine.start_stream(ask(ENDLESS), None, completions.append)
        await engine.request(ask())

    run(main)
    assert [completion.error_category for completion in completions] == ["cancelled"]
    run(main)
    assert len(completions) == 2


def test_a_loop_that_is_only_closed_leaves_no_socket(provider: ms.Provider) -> None:
    engine = ms.LazyEngine([provider])
    loop = asyncio.new_event_loop()
    assert loop.run_until_complete(engine.request(ask())).text
    (opened,) = engine._opened.values()  # pyright: ignore[reportPrivateUsage]
    loop.close()
    assert asyncio.run(engine.request(ask())).text  # type: ignore[arg-type]
    assert loops(engine) == 1
    assert opened.calls.closed == "its event loop has ended"
    assert set(opened.calls.starter.runtime.pool.counts().values()) == {(0, 0, 0, 0)}


def test_it_is_closed_for_good(provider: ms.Provider, run: Callable[[Program], object]) -> None:
    engine = ms.LazyEngine([provider])

    async def main() -> None:
        async with engine as entered:
            assert entered is engine
            call = engine.start_stream(ask(ENDLESS))
        assert engine.closed
        assert (await call.wait()).error_category is ms.ErrorCategory.CANCELLED
        await engine.close()
        with pytest.raises(ms.EngineClosedError, match=r"engine\.close\(\) was called"):
            await engine.request(ask())

    run(main)


def test_closing_it_ends_its_monitor(provider: ms.Provider, run: Callable[[Program], object], tmp_path: Path) -> None:
    path = tmp_path / "monitor.sock"

    async def main() -> None:
        engine = ms.LazyEngine([provider], monitor=path)
        assert (await engine.request(ask())).text
        assert path.is_socket()
        await engine.close()
        with trio.fail_after(60) if run is LIBRARIES["trio"] else contextlib.nullcontext():
            while path.exists():
                await (trio.sleep(0) if run is LIBRARIES["trio"] else asyncio.sleep(0))
        assert run is LIBRARIES["trio"] or len(asyncio.all_tasks()) == 1

    run(main)


def test_closing_it_closes_the_engine_of_another_thread(provider: ms.Provider) -> None:
    engine = ms.LazyEngine([provider])
    started, completions = threading.Event(), list[ms.Completion]()

    async def other() -> None:
        call = engine.start_stream(ask(ENDLESS))
        started.set()
        completions.append(await call.wait())

    thread = threading.Thread(target=lambda: asyncio.run(other()))
    thread.start()
    assert started.wait(60)
    trio.run(engine.close)
    thread.join(60)
    assert [completion.error_category for completion in completions] == ["cancelled"]


def test_a_dropped_one_ends_behind_its_running_calls(provider: ms.Provider, run: Callable[[Program], object]) -> None:
    async def main() -> None:
        engine = ms.LazyEngine([provider])
        call = engine.start_request(ask("delay=0.2"))
        (opened,) = engine._opened.values()  # pyright: ignore[reportPrivateUsage]
        del engine
        gc.collect()
        assert (await call.wait()).success
        backend = opened.calls.backend
        async with backend.scope(backend.clock() + 60):
            while not opened.calls.closed:
                await backend.checkpoint()
        assert opened.calls.closed == "nobody holds the ms.LazyEngine any more"

    run(main)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_what_ends_the_program_ends_the_event_loop(provider: ms.Provider, error: type[BaseException]) -> None:
    engine = ms.LazyEngine([provider])

    def leave(_: object) -> None:
        raise error

    async def main() -> None:
        engine.start_request(ask(), leave)
        await asyncio.sleep(60)

    with pytest.raises(error):
        asyncio.run(main())
    assert asyncio.run(engine.request(ask())).text  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_block_that_nobody_keeps_is_named(provider: ms.Provider) -> None:
    async def main() -> None:
        with pytest.warns(ResourceWarning, match="the object that open_engine returned was dropped"):
            engine = await ms.open_engine([provider]).__aenter__()
        await asyncio.sleep(0)
        with pytest.raises(ms.EngineClosedError, match=r"was dropped.*keep that object.*ms\.LazyEngine"):
            engine.start_request(ask())
        assert engine.closed

    asyncio.run(main())


def test_an_engine_on_asyncio_serves_other_threads(provider: ms.Provider) -> None:
    def elsewhere(engine: ms.Engine) -> str:
        portal = engine.from_thread
        with portal.stream(ask()) as events:
            assert list(events)
        assert portal.drain(60)
        return portal.request(ask()).text

    async def main() -> None:
        async with ms.open_engine([provider]) as engine:
            with pytest.raises(ms.EngineClosedError, match="takes no more calls"):
                await asyncio.to_thread(elsewhere, engine)
            portal = engine.from_thread
        assert portal.closed
        with pytest.raises(ms.EngineClosedError):
            await asyncio.to_thread(portal.request, ask())

    asyncio.run(main())


def test_a_portal_says_whether_it_is_closed(provider: ms.Provider) -> None:
    with open_portal([provider]) as portal:
        assert not portal.closed
    assert portal.closed
