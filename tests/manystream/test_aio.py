"""Calls of an engine on an asyncio loop: callbacks, streams, and cancellation in both directions."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

import manystream as ms
from manystream import aio
from manystream.simulator import Simulator, open_simulator_thread
from tests.manystream.asyncio_programs import ENDLESS, WAIT, ask, run
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with open_simulator_thread("events=8") as simulator:
        yield simulator


@pytest.fixture
def provider(simulator: Simulator) -> ms.Provider:
    return ms.OpenAIChat("key", simulator.base_urls["openai-chat"], name="sim")


# --- calls ---


def test_a_request_returns_its_response(provider: ms.Provider) -> None:
    async def main() -> None:
        async with aio.open_engine([provider]) as engine:
            response = await engine.request(ask())
            assert response.text
            assert response.finish_reason is ms.FinishReason.STOP

    run(main)


def test_a_failed_request_raises_its_provider_error(provider: ms.Provider) -> None:
    async def main() -> None:
        async with aio.open_engine([provider]) as engine:
            with pytest.raises(ms.ProviderError) as caught:
                await engine.request(ask("fail=404"))
            assert caught.value.category is ms.ErrorCategory.NOT_FOUND

    run(main)


def test_events_do_not_wake_the_trio_run(provider: ms.Provider) -> None:
    """trio waits in a second thread: each wake-up would be two thread switches."""

    class Waits(trio.abc.Instrument):
        count = 0

        def before_io_wait(self, timeout: float) -> None:
            self.count += 1

    async def main() -> None:
        waits, events = Waits(), 0

        def on_event(event: ms.Event) -> None:
            nonlocal events
            events += 1
            if events == 20:
                trio.lowlevel.add_instrument(waits)
            elif events == 100:
                trio.lowlevel.remove_instrument(waits)

        async with aio.open_engine([provider]) as engine:
            completion = await engine.start_stream(ask("events=120,rate=400"), on_event).wait()
        assert completion.success
        assert events > 120
        assert waits.count < 20

    run(main)


def test_callbacks_run_in_wire_order_on_the_loops_thread(provider: ms.Provider) -> None:
    async def main() -> None:
        events: list[ms.Event] = []
        endings: list[ms.Completion] = []
        threads: set[int] = set()
        loop = asyncio.get_running_loop()

        def on_event(event: ms.Event) -> None:
            threads.add(threading.get_ident())
            assert asyncio.get_running_loop() is loop
            events.append(event)

        async with aio.open_engine([provider]) as engine:
            call = engine.start_stream(ask(), on_event, endings.append)
            completion = await call.wait()
            assert endings == [completion]
            assert await call.wait() is completion
            assert call.completion is completion
        assert threads == {threading.get_ident()}
        assert type(events[0]) is ms.Start
        assert type(events[-1]) is ms.Done
        assert "".join(e.text for e in events if type(e) is ms.TextDelta) == completion.response.text  # type: ignore[union-attr]

    run(main)


def test_a_callback_may_start_calls_and_tasks(provider: ms.Provider) -> None:
    async def main() -> None:
        async with aio.open_engine([provider]) as engine:
            tasks: list[asyncio.Task[ms.Response]] = []
            second: list[aio.Call] = []

            def on_completion(completion: ms.Completion) -> None:
                tasks.append(asyncio.create_task(engine.request(ask())))
                second.append(engine.start_request(ask()))

            await engine.start_request(ask(), on_completion).wait()
            assert (await tasks[0]).text
            assert (await second[0].wait()).success

    run(main)


def test_an_exception_in_on_event_ends_its_call_only(provider: ms.Provider) -> None:
    async def main() -> None:
        def fails(event: ms.Event) -> None:
            raise ZeroDivisionError

        async with aio.open_engine([provider]) as engine:
            wrong, right = engine.start_stream(ask(), fails), engine.start_stream(ask())
            assert (await wrong.wait()).error_category is ms.ErrorCategory.CALLBACK
            assert (await right.wait()).success

    run(main)


def test_many_calls_at_once_all_end(provider: ms.Provider) -> None:
    async def main() -> None:
        async with aio.open_engine([provider]) as engine:
            calls = [engine.start_stream(ask()) for _ in range(200)]
            completions = await asyncio.gather(*(call.wait() for call in calls))
            assert all(completion.success for completion in completions)
            assert engine.statistics().completed == 200

    run(main)


def test_other_tasks_of_the_loop_keep_running(provider: ms.Provider) -> None:
    async def main() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.005)
                ticks += 1

        async with aio.open_engine([provider]) as engine:
            other = asyncio.create_task(tick())
            await engine.request(ask("delay=0.2"))
            other.cancel()
        assert ticks > 10

    run(main)


# --- streams ---


def test_a_stream_is_iterated_to_its_end(provider: ms.Provider) -> None:
    async def main() -> None:
        async with aio.open_engine([provider]) as engine, engine.stream(ask()) as events:
            texts = [event.text async for event in events if isinstance(event, ms.TextDelta)]
            assert events.completion is not None
            assert events.completion.response is not None
            assert "".join(texts) == events.completion.response.text

    run(main)


def test_a_failed_stream_raises_after_its_events(provider: ms.Provider) -> None:
    async def main() -> None:
        async with aio.open_engine([provider]) as engine, engine.stream(ask("error=4")) as events:
            arrived: list[ms.Event] = []

            async def read() -> None:
                async for event in events:
                    arrived.append(event)

            with pytest.raises(ms.ProviderError):
                await read()
            assert len(arrived) > 2

    run(main)


def test_a_slow_reader_slows_its_server_and_loses_no_event(provider: ms.Provider) -> None:
    async def main() -> None:
        count = 20_000
        async with aio.open_engine([provider]) as engine, engine.stream(ask(f"events={count}")) as events:
            await events.__anext__()
            received = -1
            while received != engine.statistics().bytes_received:  # until TCP delivers no more bytes
                received = engine.statistics().bytes_received
                await asyncio.sleep(0.1)
            held_back = received
            texts = [event async for event in events if isinstance(event, ms.TextDelta)]
            assert len(texts) == count
            assert held_back < engine.statistics().bytes_received / 2

    run(main)


def test_leaving_a_stream_early_cancels_its_call(provider: ms.Provider) -> None:
    async def main() -> None:
        async with aio.open_engine([provider]) as engine:
            async with engine.stream(ask(ENDLESS)) as events:
                async for event in events:
                    if isinstance(event, ms.TextDelta):
                        break
            completion = await events.call.wait()
            assert completion.error_category is ms.ErrorCategory.CANCELLED

    run(main)


def test_two_tasks_cannot_wait_for_the_same_event(provider: ms.Provider) -> None:
    async def main() -> None:
        async with aio.open_engine([provider]) as engine, engine.stream(ask("delay=0.5")) as events:
            first = asyncio.create_task(anext(events))  # type: ignore[arg-type]
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="another task is already waiting"):
                await anext(events)
            assert type(await first) is ms.Start

    run(main)


# --- cancellation ---


def test_cancelling_a_requesting_task_cancels_the_call(provider: ms.Provider) -> None:
    async def main() -> None:
        async with aio.open_engine([provider]) as engine:
            task = asyncio.create_task(engine.request(ask("delay=60")))
            await eventually(lambda: engine.statistics().calls == {"waiting": 1})
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await eventually(lambda: engine.statistics().cancelled == 1)
            assert not engine.statistics().connections or all(
                origin.active == 0 for origin in engine.statistics().connections.values()
            )

    run(main)


def test_cancelling_an_iterating_task_cancels_the_call(provider: ms.Provider) -> None:
    async def main() -> None:
        async def read(engine: aio.Engine) -> None:
            async with engine.stream(ask(ENDLESS)) as events:
                async for _ in events:
                    pass

        async with aio.open_engine([provider]) as engine:
            task = asyncio.create_task(read(engine))
            await eventually(lambda: engine.statistics().events > 2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await eventually(lambda: engine.statistics().cancelled == 1)

    run(main)


def test_an_asyncio_timeout_ends_the_call(provider: ms.Provider) -> None:
    async def main() -> None:
        async with aio.open_engine([provider]) as engine:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await engine.request(ask("delay=60"))
            await eventually(lambda: engine.statistics().cancelled == 1)

    run(main)


def test_cancelling_a_wait_leaves_the_call_running(provider: ms.Provider) -> None:
    async def main() -> None:
        async with aio.open_engine([provider]) as engine:
            call = engine.start_request(ask("delay=0.2"))
            task = asyncio.create_task(call.wait())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await call.wait()).success

    run(main)


def test_cancel_in_a_callback_keeps_the_partial_answer(provider: ms.Provider) -> None:
    async def main() -> None:
        async with aio.open_engine([provider]) as engine:
            calls: list[aio.Call] = []

            def on_event(event: ms.Event) -> None:
                if isinstance(event, ms.TextDelta):
                    calls[0].cancel()

            calls.append(engine.start_stream(ask(ENDLESS), on_event))
            completion = await calls[0].wait()
            assert completion.error_category is ms.ErrorCategory.CANCELLED
            assert completion.response is not None
            assert completion.response.text

    run(main)


def test_closing_the_engine_ends_every_wait(provider: ms.Provider) -> None:
    async def main() -> None:
        async with aio.open_engine([provider]) as engine:
            waits = [asyncio.create_task(engine.start_stream(ask(ENDLESS)).wait()) for _ in range(5)]
            requests = [asyncio.create_task(engine.request(ask("delay=60"))) for _ in range(5)]
            await eventually(lambda: engine.statistics().events > 5)
        for wait in waits:
            assert (await wait).error_category is ms.ErrorCategory.CANCELLED
        for request in requests:
            with pytest.raises(ms.ProviderError, match="closed"):
                await request

    run(main)


def test_a_cancelled_block_still_closes_the_engine(provider: ms.Provider) -> None:
    async def main() -> None:
        engines: list[aio.Engine] = []
        completions: list[ms.Completion] = []

        async def hold() -> None:
            async with aio.open_engine([provider]) as engine:
                engines.append(engine)
                engine.start_stream(ask(ENDLESS), None, completions.append)
                await asyncio.sleep(WAIT)

        task = asyncio.create_task(hold())
        await eventually(lambda: bool(engines) and engines[0].statistics().events > 0)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()  # a second time, while the block closes the engine
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [completion.error_category for completion in completions] == ["cancelled"]
        assert not trio.lowlevel.in_trio_run()

    run(main)


def test_cancelling_while_the_engine_opens_leaves_nothing(provider: ms.Provider) -> None:
    async def main() -> None:
        async def hold() -> None:
            async with aio.open_engine([provider]):
                raise AssertionError

        task = asyncio.create_task(hold())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not trio.lowlevel.in_trio_run()
        async with aio.open_engine([provider]) as engine:
            assert (await engine.request(ask())).text

    run(main)
