"""Calls of an engine on an asyncio loop: callbacks, streams, and cancellation in both directions."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import manystream as ms
from manystream.portal import open_portal
from tests.support.asyncio_programs import ENDLESS, ask, run
from tests.support.waiting import LONGEST, eventually

ROOT = Path(__file__).resolve().parents[2]


# --- calls ---


def test_a_request_returns_its_response(provider: ms.Provider) -> None:
    async def main() -> None:
        async with ms.open_engine([provider]) as engine:
            response = await engine.request(ask())
            assert response.text
            assert response.finish_reason is ms.FinishReason.STOP

    run(main)


def test_a_failed_request_raises_its_provider_error(provider: ms.Provider) -> None:
    async def main() -> None:
        async with ms.open_engine([provider]) as engine:
            with pytest.raises(ms.ProviderError) as caught:
                await engine.request(ask("fail=404"))
            assert caught.value.category is ms.ErrorCategory.NOT_FOUND

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

        async with ms.open_engine([provider]) as engine:
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
        async with ms.open_engine([provider]) as engine:
            tasks: list[asyncio.Task[ms.Response]] = []
            second: list[ms.Call] = []

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

        async with ms.open_engine([provider]) as engine:
            wrong, right = engine.start_stream(ask(), fails), engine.start_stream(ask())
            assert (await wrong.wait()).error_category is ms.ErrorCategory.CALLBACK
            assert (await right.wait()).success

    run(main)


def test_many_calls_at_once_all_end(provider: ms.Provider) -> None:
    async def main() -> None:
        async with ms.open_engine([provider]) as engine:
            calls = [engine.start_stream(ask()) for _ in range(200)]
            completions = await asyncio.gather(*(call.wait() for call in calls))
            assert all(completion.success for completion in completions)
            assert engine.statistics().completed == 200

    run(main)


# --- streams ---


def test_a_stream_is_iterated_to_its_end(provider: ms.Provider) -> None:
    async def main() -> None:
        async with ms.open_engine([provider]) as engine, engine.stream(ask()) as events:
            texts = [event.text async for event in events if isinstance(event, ms.TextDelta)]
            assert "".join(texts) == events.completion.response.text

    run(main)


def test_a_failed_stream_raises_after_its_events(provider: ms.Provider) -> None:
    async def main() -> None:
        async with ms.open_engine([provider]) as engine, engine.stream(ask("error=4")) as events:
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
        async with ms.open_engine([provider]) as engine, engine.stream(ask(f"events={count}")) as events:
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
        async with ms.open_engine([provider]) as engine:
            async with engine.stream(ask(ENDLESS)) as events:
                async for event in events:
                    if isinstance(event, ms.TextDelta):
                        break
            completion = await events.call.wait()
            assert completion.error_category is ms.ErrorCategory.CANCELLED

    run(main)


# --- cancellation ---


def test_cancelling_a_requesting_task_cancels_the_call(provider: ms.Provider) -> None:
    async def main() -> None:
        async with ms.open_engine([provider]) as engine:
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
        async def read(engine: ms.Engine) -> None:
            async with engine.stream(ask(ENDLESS)) as events:
                async for _ in events:
                    pass

        async with ms.open_engine([provider]) as engine:
            task = asyncio.create_task(read(engine))
            await eventually(lambda: engine.statistics().events > 2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await eventually(lambda: engine.statistics().cancelled == 1)

    run(main)


def test_an_asyncio_timeout_ends_the_call(provider: ms.Provider) -> None:
    async def main() -> None:
        async with ms.open_engine([provider]) as engine:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await engine.request(ask("delay=60"))
            await eventually(lambda: engine.statistics().cancelled == 1)

    run(main)


def test_cancelling_a_wait_leaves_the_call_running(provider: ms.Provider) -> None:
    async def main() -> None:
        async with ms.open_engine([provider]) as engine:
            call = engine.start_request(ask("delay=0.2"))
            first, second = (asyncio.create_task(call.wait()) for _ in range(2))
            await asyncio.sleep(0)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            assert (await second).success

    run(main)


def test_cancel_in_a_callback_keeps_the_partial_answer(provider: ms.Provider) -> None:
    async def main() -> None:
        async with ms.open_engine([provider]) as engine:
            calls: list[ms.Call] = []

            def on_event(event: ms.Event) -> None:
                if isinstance(event, ms.TextDelta):
                    calls[0].cancel()

            calls.append(engine.start_stream(ask(ENDLESS), on_event))
            completion = await calls[0].wait()
            assert completion.error_category is ms.ErrorCategory.CANCELLED
            assert completion.response.text

    run(main)


def test_closing_the_engine_ends_every_wait(provider: ms.Provider) -> None:
    async def main() -> None:
        async with ms.open_engine([provider]) as engine:
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
        engines: list[ms.Engine] = []
        completions: list[ms.Completion] = []

        async def hold() -> None:
            async with ms.open_engine([provider]) as engine:
                engines.append(engine)
                engine.start_stream(ask(ENDLESS), None, completions.append)
                await asyncio.sleep(LONGEST)

        task = asyncio.create_task(hold())
        await eventually(lambda: bool(engines) and engines[0].statistics().events > 0)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()  # a second time, while the block closes the engine
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [completion.error_category for completion in completions] == ["cancelled"]

    run(main)


def test_cancelling_while_the_engine_opens_leaves_nothing(provider: ms.Provider) -> None:
    async def main() -> None:
        async def hold() -> None:
            async with ms.open_engine([provider]):
                raise AssertionError

        task = asyncio.create_task(hold())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with ms.open_engine([provider]) as engine:
            assert (await engine.request(ask())).text

    run(main)


# --- the asyncio engine's own words and small duties: figures, sessions, drains, recordings, pauses and refusals ---


def test_a_call_shows_its_state(provider: ms.Provider) -> None:
    async def main() -> None:
        async with ms.open_engine([provider]) as engine:
            assert repr(engine).startswith("<Engine")
            call = engine.start_stream(ask("stall=1"))
            assert isinstance(call, ms.Call)
            assert call.target == "sim/sim-text@stall=1"
            assert (call.completion, call.waiting_for) == (None, "")
            assert engine.statistics().calls
            call.pause()
            call.resume()
            async with call:
                pass
            completion = await call.wait()
            assert completion.error_category is ms.ErrorCategory.CANCELLED
            assert call.completion is completion
            assert await call.wait() is completion

    asyncio.run(main())


def test_a_map_of_what_cannot_be_iterated_is_refused_at_once(provider: ms.Provider) -> None:
    async def main() -> None:
        async with ms.open_engine([provider]) as engine:
            with pytest.raises(ms.InvalidRequestError) as caught:
                engine.map(3)  # type: ignore[call-overload]
            assert (
                str(caught.value)
                == "requests: must be an iterable of Request, or of pairs of a key and a Request, not int"
            )

    asyncio.run(main())


async def turns(count: int = 20) -> None:
    """Let the event loop turn so often."""
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_drain_refuses_calls_and_says_whether_all_have_ended(provider: ms.Provider) -> None:
    async def main() -> None:
        async with ms.open_engine([provider]) as engine:
            with pytest.raises(ValueError, match="timeout"):
                await engine.drain(-1)
            slow = engine.start_request(ask("delay=30"))
            assert await engine.drain(0.01) is False
            with pytest.raises(ms.EngineClosedError):
                engine.start_request(ask())
            slow.cancel()
            assert await engine.drain(30) is True

    asyncio.run(main())


def test_a_cancelled_drain_leaves_no_task(provider: ms.Provider) -> None:
    async def main() -> None:
        async with ms.open_engine([provider]) as engine:
            call = engine.start_request(ask("delay=30"))
            drain = asyncio.create_task(engine.drain(60))
            await turns()
            drain.cancel()
            await asyncio.wait([drain])
            assert drain.cancelled()
            call.cancel()
            await call.wait()

    asyncio.run(main())


def test_every_method_belongs_to_the_loops_thread(provider: ms.Provider, tmp_path: Path) -> None:
    words = (
        r"this engine belongs to asyncio loop \w+ of thread 'MainThread', and was used in thread '\w+' without an event"
    )
    words += r" loop: open an engine there, or use engine\.from_thread there"

    async def main() -> None:
        async with ms.open_engine([provider]) as engine:
            uses = (
                lambda: engine.start_stream(ask()),
                lambda: engine.start_request(ask()),
                lambda: engine.end_session("s"),
                lambda: engine.record(tmp_path / "r.jsonl"),
            )
            for use in uses:
                with pytest.raises(ms.EngineClosedError) as caught:
                    await asyncio.to_thread(use)
                assert re.fullmatch(words, str(caught.value))
            engine.end_session("s")

    asyncio.run(main())


def test_a_recording_holds_the_calls_of_its_block(provider: ms.Provider, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"

    async def main() -> None:
        async with ms.open_engine([provider]) as engine:
            with engine.record(path):
                await engine.request(ask())
            size = path.stat().st_size
            assert size > 0
            with pytest.raises(FileExistsError), engine.record(path):
                pass
            with engine.record(path, replace=True):
                pass
            assert path.stat().st_size < size

    asyncio.run(main())


def test_a_monitor_reports_to_its_clients(provider: ms.Provider, tmp_path: Path) -> None:
    path = tmp_path / "m.sock"

    async def main() -> None:
        async with ms.open_engine([provider], monitor=path) as engine:
            await engine.request(ask())
            reader, writer = await asyncio.open_unix_connection(path)
            for _ in range(2):
                writer.write(b"\n")
                assert json.loads(await reader.readline())["statistics"]["completed"] == 1
        assert await reader.read() == b""
        writer.close()
        assert not path.exists()

    asyncio.run(main())


def test_one_task_at_a_time_waits_for_an_event(provider: ms.Provider) -> None:
    async def main() -> None:
        async with ms.open_engine([provider]) as engine, engine.stream(ask("delay=0.5")) as events:
            first = asyncio.create_task(anext(events))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError) as caught:
                await anext(events)
            assert str(caught.value) == "another task is already waiting for this stream's next event"
            first.cancel()
            await asyncio.wait([first])
            assert type(await anext(events)) is ms.Start

    asyncio.run(main())


def test_the_task_of_a_map_and_the_thread_of_a_portal_have_names(provider: ms.Provider) -> None:
    async def main() -> None:
        async with ms.open_engine([provider]) as engine, engine.map([ask()], concurrency=1) as results:
            assert [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("many")] == [
                "manystream.engine.frontends.map.Feeder.run"
            ]
            assert [completion.success async for _, completion in results] == [True]

    asyncio.run(main())
    with open_portal([provider]):
        (thread,) = [each for each in threading.enumerate() if each.name == "manystream portal"]
        assert thread.daemon
    assert not thread.is_alive()


def end_the_program(_: object) -> None:
    raise SystemExit(7)


async def wait_for_a_call(engine: ms.Engine) -> None:
    await engine.request(ask())  # raises the error of a cancelled call


async def go_on_after_each_error(engine: ms.Engine) -> None:
    for _ in range(3):
        with contextlib.suppress(ms.ManystreamError, asyncio.CancelledError):
            await engine.request(ask())


async def raise_an_own_error(engine: ms.Engine) -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(30)
    raise LookupError


@pytest.mark.parametrize("body", [wait_for_a_call, go_on_after_each_error, raise_an_own_error, asyncio.sleep])
@pytest.mark.parametrize("name", ["on_event", "on_completion"])
def test_an_exception_that_ends_an_engine_leaves_its_block(
    provider: ms.Provider, name: str, body: Callable[[Any], Awaitable[None]]
) -> None:
    async def leave() -> None:
        async with ms.open_engine([provider]) as engine:
            engine.start_stream(ask(), **{name: end_the_program})
            await body(30 if body is asyncio.sleep else engine)

    async def main() -> None:
        with pytest.raises(SystemExit) as caught:
            await leave()
        assert caught.value.code == 7
        async with ms.open_engine([provider]) as engine:
            assert (await engine.request(ask())).text

    asyncio.run(main())


def leave_with_a_status(provider: ms.Provider) -> None:
    def leave(completion: ms.Completion) -> None:
        raise SystemExit(7)

    with open_portal([provider]) as portal:
        thread = next(each for each in threading.enumerate() if each.name == "manystream portal")
        portal.start_request(ask(), leave)
        thread.join(30)


def test_an_exception_that_ends_a_portals_engine_is_raised(provider: ms.Provider) -> None:
    with pytest.raises(SystemExit) as caught:
        leave_with_a_status(provider)
    assert caught.value.code == 7
