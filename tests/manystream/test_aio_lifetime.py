"""The opening and closing of an engine on an asyncio loop, its wrong use, and Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

import manystream as ms
from manystream import aio, aio_guest
from manystream.aio import EventLoopError
from manystream.engine import EngineClosedError
from manystream.simulator import Simulator, open_simulator_thread
from manystream.transport.asyncio_backend import UnsupportedEventLoopError
from manystream.transport.backend import Cancellable
from manystream.transport.loop import PollerLoop
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


# --- opening and closing ---


def test_an_exception_of_the_block_is_raised_unchanged(provider: ms.Provider) -> None:
    async def main() -> None:
        async with aio.open_engine([provider]) as engine:
            engine.start_stream(ask(ENDLESS))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(main)


def test_no_socket_and_no_task_is_left_after_the_block(provider: ms.Provider) -> None:
    def sockets() -> int:
        count = 0
        for name in os.listdir("/proc/self/fd"):
            try:
                count += os.readlink(f"/proc/self/fd/{name}").startswith("socket")
            except FileNotFoundError:
                pass  # the descriptor of the listing itself, or one that another thread has closed
        return count

    async def main() -> None:
        before, tasks = sockets(), len(asyncio.all_tasks())
        async with aio.open_engine([provider]) as engine:
            engine.start_stream(ask(ENDLESS))
            await engine.request(ask())
        await eventually(lambda: sockets() <= before)  # the simulator's sockets are in this process, too
        assert len(asyncio.all_tasks()) == tasks
        assert not trio.lowlevel.in_trio_run()

    if not Path("/proc/self/fd").exists():
        pytest.skip("sockets are counted in /proc, which is not here")
    run(main)


def test_engines_open_at_the_same_time_share_the_trio_run(provider: ms.Provider) -> None:
    async def main() -> None:
        async with aio.open_engine([provider]) as first:
            async with aio.open_engine([provider]) as second:
                assert (await first.request(ask())).text == (await second.request(ask())).text
            with pytest.raises(EngineClosedError):
                second.start_request(ask())
            assert (await first.request(ask())).text
        async with aio.open_engine([provider]) as third:  # the earlier trio run has ended
            assert (await third.request(ask())).text

    run(main)


def test_tasks_may_open_and_close_engines_in_any_order(provider: ms.Provider) -> None:
    async def main() -> None:
        async def use(rounds: int) -> None:
            for _ in range(rounds):
                async with aio.open_engine([provider]) as engine:
                    assert (await engine.request(ask())).text

        await asyncio.gather(*(use(3) for _ in range(5)))
        assert not trio.lowlevel.in_trio_run()

    run(main)


def test_a_thread_may_run_several_loops_in_turn(provider: ms.Provider) -> None:
    async def main() -> None:
        async with aio.open_engine([provider]) as engine:
            assert (await engine.request(ask())).text

    run(main)
    run(main)


def test_loops_in_several_threads_are_independent(provider: ms.Provider) -> None:
    done: list[str] = []

    async def main() -> None:
        async with aio.open_engine([provider]) as engine:
            done.append((await engine.request(ask())).text)

    threads = [threading.Thread(target=run, args=(main,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert len(done) == 3


def test_an_unusable_provider_is_refused_by_open_engine(provider: ms.Provider) -> None:
    async def main() -> None:
        with pytest.raises(ms.InvalidRequestError, match="two are named 'sim'"):
            async with aio.open_engine([provider, provider]):
                raise AssertionError
        assert not trio.lowlevel.in_trio_run()

    run(main)


def test_a_request_that_cannot_be_sent_raises_at_once(provider: ms.Provider) -> None:
    async def main() -> None:
        async with aio.open_engine([provider]) as engine:
            with pytest.raises(ms.InvalidRequestError, match="messages"):
                engine.start_request(ms.Request("sim/m", []))

    run(main)


def test_a_broken_engine_ends_its_block_with_the_error(provider: ms.Provider) -> None:
    async def main() -> None:
        async def defect() -> None:
            raise ZeroDivisionError

        completions: list[ms.Completion] = []

        async def use() -> None:
            async with aio.open_engine([provider]) as engine:
                engine.start_stream(ask(ENDLESS), None, completions.append)
                engine._calls.starter.runtime.pool._dials._backend.start(defect)  # pyright: ignore[reportPrivateUsage]
                await asyncio.sleep(WAIT)

        with pytest.raises(ZeroDivisionError):
            await use()
        assert [completion.error_category for completion in completions] == ["cancelled"]
        assert not trio.lowlevel.in_trio_run()
        await asyncio.sleep(0)  # the cancellation of this task was taken back

    run(main)


def test_a_loop_that_fails_ends_its_block_with_the_error(
    provider: ms.Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(loop: PollerLoop) -> int:
        raise ZeroDivisionError

    async def main() -> None:
        completions: list[ms.Completion] = []

        async def use() -> None:
            async with aio.open_engine([provider]) as engine:
                engine.start_stream(ask(ENDLESS), None, completions.append)
                monkeypatch.setattr(PollerLoop, "tick", broken)
                await asyncio.sleep(WAIT)

        with pytest.raises(ZeroDivisionError):
            await use()
        assert [completion.error_category for completion in completions] == ["cancelled"]

    run(main)


def test_an_event_loop_that_cannot_watch_descriptors_leaves_them_to_trio(
    provider: ms.Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> Cancellable:
        raise UnsupportedEventLoopError

    monkeypatch.setattr(aio_guest, "serve", refuse)

    async def main() -> None:
        async with aio.open_engine([provider]) as engine:
            assert (await engine.request(ask())).text

    run(main)


# --- wrong use ---


def test_without_an_asyncio_loop_the_error_names_open_engine(provider: ms.Provider) -> None:
    with pytest.raises(EventLoopError, match=r"manystream\.open_engine"):
        aio.open_engine([provider]).__aenter__().send(None)  # type: ignore[attr-defined]


def test_in_a_trio_program_the_error_names_open_engine(provider: ms.Provider) -> None:
    async def main() -> None:
        async with aio.open_engine([provider]):
            raise AssertionError

    with pytest.raises(EventLoopError, match=r"use manystream\.open_engine in a trio program"):
        trio.run(main)


def test_a_foreign_trio_run_in_the_thread_is_an_error(provider: ms.Provider) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        ended, stop = loop.create_future(), trio.Event()
        trio.lowlevel.start_guest_run(
            stop.wait,
            run_sync_soon_threadsafe=loop.call_soon_threadsafe,
            done_callback=ended.set_result,
            host_uses_signal_set_wakeup_fd=True,
        )
        try:
            with pytest.raises(EventLoopError, match="already holds a trio run"):
                async with aio.open_engine([provider]):
                    raise AssertionError
        finally:
            stop.set()
            await ended

    run(main)


def test_a_call_from_another_thread_is_a_clear_error(provider: ms.Provider) -> None:
    async def main() -> None:
        async with aio.open_engine([provider]) as engine:
            with pytest.raises(EngineClosedError, match="call_soon_threadsafe"):
                await asyncio.to_thread(engine.start_request, ask())

    run(main)


# --- signals and examples ---

INTERRUPTED = """
import asyncio, sys
import manystream as ms
from manystream import aio

async def main():
    provider = ms.OpenAIChat("key", sys.argv[1], name="sim")
    async with aio.open_engine([provider]) as engine:
        call = engine.start_stream(ms.Request("sim/sim-text@events=100000,rate=100", [ms.Message.user("x")]))
        print("open", flush=True)
        try:
            await call.wait()
        finally:
            print("cancelled", flush=True)
    print("never")

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_cancels_the_main_task_as_usual_in_asyncio(simulator: Simulator) -> None:
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", INTERRUPTED, simulator.base_urls["openai-chat"]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=WAIT)
    finally:
        process.kill()
        process.wait()
    assert (out, err) == ("cancelled\ninterrupted\n", "")


def test_the_example_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / "asyncio_app.py")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert "5 answers" in done.stdout
