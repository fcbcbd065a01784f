"""A `BaseException` that a callback raises: it fails its call, or ends the whole engine."""

import asyncio
import concurrent.futures
import os
import signal
import sys
from collections.abc import Callable

import pytest
import trio
import trio.testing

import manystream as ms
from manystream.engine import EngineLimits
from manystream.portal import open_portal
from manystream.transport.pool import PoolLimits
from tests.support.peers import (
    Line,
    Peer,
    Recorder,
    chat_chunk,
    chat_stream,
    chunked,
    hello,
    open_descriptors,
    open_peer,
    replies,
    stream_of,
)

NEIGHBOURS = 20


class Strange(BaseException):
    """A program's own exception that is meant to end the program."""


def cancelled_future() -> BaseException:
    """Return the exception that `future.result()` of a cancelled future raises."""
    loop = asyncio.new_event_loop()
    future = loop.create_future()
    future.cancel()
    loop.close()
    with pytest.raises(asyncio.CancelledError) as caught:
        future.result()
    return caught.value


def trio_cancelled() -> BaseException:
    return trio.Cancelled._create(source="explicit")


OWN_FAILURES: dict[str, Callable[[], BaseException]] = {
    "asyncio.CancelledError": cancelled_future, "trio.Cancelled": trio_cancelled, "GeneratorExit": GeneratorExit,
    "concurrent.futures.CancelledError": concurrent.futures.CancelledError,
}  # fmt: skip
ENDS: dict[str, Callable[[], BaseException]] = {
    "KeyboardInterrupt": KeyboardInterrupt,
    "SystemExit": lambda: SystemExit(3),
    "any other": lambda: Strange("all of it"),
}


two_texts = replies(stream_of(*chat_stream("one", "two")))


async def endless(line: Line) -> None:
    request = await line.request()
    await line.send(stream_of(chat_chunk("one"), end=False))
    if b"raise" in request:
        await line.send(chunked(chat_chunk("two"), end=False))
    await line.closed_by_peer()


def raising(error: Callable[[], BaseException]) -> Callable[[object], None]:
    def callback(_: object) -> None:
        raise error()

    return callback


def asking(text: str) -> ms.Request:
    return ms.Request("m", [ms.Message.user(text)])


@pytest.mark.parametrize("error", OWN_FAILURES.values(), ids=OWN_FAILURES)
async def test_a_cancellation_raised_by_a_callback_is_its_failure(error: Callable[[], BaseException]) -> None:
    neighbours = [Recorder() for _ in range(NEIGHBOURS)]
    completions: list[ms.Completion] = []
    async with open_peer(two_texts) as peer, ms.open_engine([peer.chat]) as engine:
        calls = [engine.start_stream(hello(), each.on_event, each.on_completion) for each in neighbours]
        own = engine.start_stream(hello(), raising(error), completions.append)
        for call in [*calls, own]:
            await call.wait()
        on_completion = engine.start_stream(hello(), None, raising(error))
        assert (await on_completion.wait()).success
        assert (await engine.start_stream(hello()).wait()).success
    assert [completion.error_category for completion in completions] == [ms.ErrorCategory.CALLBACK]
    assert [each.text for each in neighbours if each.completion.success] == ["onetwo"] * NEIGHBOURS


@pytest.mark.parametrize("where", ["on_event", "on_completion", "observer"])
@pytest.mark.parametrize("error", ENDS.values(), ids=ENDS)
async def test_an_exception_for_the_program_ends_the_engine(error: Callable[[], BaseException], where: str) -> None:
    class Raises(ms.Observer):
        def first_token(self, call: ms.Call) -> None:
            if where == "observer" and call in raisers:
                raise error()

    neighbours = [Recorder() for _ in range(NEIGHBOURS)]
    raisers: list[ms.Call] = []
    seen: list[ms.Completion] = []

    def on_completion(completion: ms.Completion) -> None:
        seen.append(completion)
        if where == "on_completion":
            raise error()

    async with open_peer(endless) as peer:
        before = open_descriptors()

        async def use() -> None:
            async with ms.open_engine([peer.chat], observer=Raises()) as engine:
                calls = [engine.start_stream(hello(), each.on_event, each.on_completion) for each in neighbours]
                await trio.testing.wait_all_tasks_blocked(0.01)
                on_event = raising(error) if where == "on_event" else None
                own = engine.start_stream(asking("raise"), on_event, on_completion)
                raisers.append(own)
                if where == "on_completion":
                    await trio.testing.wait_all_tasks_blocked(0.01)
                    own.cancel()
                with trio.CancelScope(shield=True):
                    for call in [*calls, own]:
                        await call.wait()
                    name = type(error()).__name__
                    with pytest.raises(ms.EngineClosedError, match=f"is closed: {name} ended it, and is raised where"):
                        engine.start_stream(hello())
                await trio.sleep_forever()

        with pytest.raises(type(error())) as caught:
            await use()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert open_descriptors() == before
    assert not isinstance(caught.value, BaseExceptionGroup)
    assert [each.completion.error_category for each in neighbours] == [ms.ErrorCategory.CANCELLED] * NEIGHBOURS
    expected = ms.ErrorCategory.CALLBACK if where == "on_event" else ms.ErrorCategory.CANCELLED
    assert [completion.error_category for completion in seen] == [expected]


async def test_all_calls_complete_if_one_raises_during_close() -> None:
    completions: list[ms.Completion] = []

    def on_completion(completion: ms.Completion) -> None:
        completions.append(completion)
        if len(completions) == 3:
            raise KeyboardInterrupt

    async def use(peer: Peer) -> None:
        async with ms.open_engine([peer.chat]) as engine:
            for _ in range(NEIGHBOURS):
                engine.start_stream(hello(), None, on_completion)
            await trio.testing.wait_all_tasks_blocked(0.01)

    async with open_peer(endless) as peer:
        with pytest.raises(KeyboardInterrupt):
            await use(peer)
    assert len(completions) == NEIGHBOURS


@pytest.mark.parametrize("moment", range(8))
def test_ctrl_c_during_a_tick_is_raised_from_the_block(moment: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal arrives inside the loop's own code, at different places."""
    from manystream.transport.http1 import Connection
    from manystream.transport.timers import Timers

    recorders = [Recorder() for _ in range(NEIGHBOURS)]
    places = [
        (Connection, "_body"), (Connection, "_begin_body"), (Connection, "on_readable"), (Connection, "_head"),
        (Timers, "_fire"), (Connection, "_flush"), (Connection, "close"), (Connection, "_message_end"),
    ]  # fmt: skip
    owner, name = places[moment]
    original = getattr(owner, name)

    def interrupted(*arguments: object) -> object:
        monkeypatch.setattr(owner, name, original)
        os.kill(os.getpid(), signal.SIGINT)
        return original(*arguments)

    async def use(peer: Peer) -> None:
        timeouts = ms.Timeouts(total=0.05 if owner is Timers else None)
        limits = EngineLimits(pool=PoolLimits(idle_expiry=0.05 if name == "close" else 15))
        async with ms.open_engine([peer.chat], timeouts=timeouts, limits=limits) as engine:
            for each in recorders:
                engine.start_stream(hello(), each.on_event, each.on_completion)
            await trio.sleep_forever()

    async def main() -> None:
        async with open_peer(endless if owner is Timers else two_texts) as peer:
            monkeypatch.setattr(owner, name, interrupted)
            with pytest.raises(KeyboardInterrupt):
                await use(peer)

    trio.run(main)
    assert [len(each.completions) for each in recorders] == [1] * NEIGHBOURS


# --- asyncio and portals ---


@pytest.mark.parametrize("error", ENDS.values(), ids=ENDS)
def test_on_asyncio_the_block_s_own_task_raises_ctrl_c(error: Callable[[], BaseException]) -> None:
    recorders = [Recorder() for _ in range(NEIGHBOURS)]

    async def main(url: str) -> None:
        async with ms.open_engine([ms.OpenAIChat(api_key="k", base_url=url)]) as engine:
            calls = [engine.start_stream(hello(), each.on_event, each.on_completion) for each in recorders]
            calls.append(engine.start_stream(hello(), raising(error)))
            await asyncio.gather(*(call.wait() for call in calls))
            await asyncio.sleep(60)

    async def with_peer() -> None:
        async with open_peer(endless) as peer:
            with pytest.raises(type(error())):
                await trio.to_thread.run_sync(lambda: asyncio.run(main(peer.url)))

    trio.run(with_peer)
    assert [len(each.completions) for each in recorders] == [1] * NEIGHBOURS


@pytest.mark.parametrize("error", ENDS.values(), ids=ENDS)
def test_on_a_portal_ctrl_c_releases_waiters_and_is_raised(error: Callable[[], BaseException]) -> None:
    recorders = [Recorder() for _ in range(NEIGHBOURS)]
    waited: list[ms.Completion] = []

    def use(url: str) -> None:
        with open_portal([ms.OpenAIChat(api_key="k", base_url=url)]) as portal:
            calls = [portal.start_stream(hello(), each.on_event, each.on_completion) for each in recorders]
            calls.append(portal.start_stream(hello(), raising(error)))
            waited.extend(call.wait(60) for call in calls)

    async def with_peer() -> None:
        async with open_peer(endless) as peer:
            with pytest.raises(type(error())):
                await trio.to_thread.run_sync(use, peer.url)

    trio.run(with_peer)
    assert len(waited) == NEIGHBOURS + 1
    assert [len(each.completions) for each in recorders] == [1] * NEIGHBOURS


async def test_ctrl_c_works_in_a_callback_without_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "asyncio.exceptions")

    async def use(provider: ms.OpenAIChat) -> None:
        async with ms.open_engine([provider]) as engine:
            engine.start_stream(hello(), raising(KeyboardInterrupt))
            await trio.sleep_forever()

    async with open_peer(two_texts) as peer:
        with pytest.raises(KeyboardInterrupt):
            await use(peer.chat)
