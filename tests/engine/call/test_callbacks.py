"""Callbacks and hooks run in the context (`contextvars`) of the code that started their call, however it ends."""

import asyncio
import contextvars
import logging
import sys
from collections.abc import Callable, Sequence
from contextvars import Context, ContextVar

import pytest
import trio
from trio.testing import MockClock

import manystream as ms
from manystream.engine.observe.observer import CallStart, Observer
from manystream.portal import open_portal
from tests.support.addresses import closed_port
from tests.support.peers import (
    NO_RETRY,
    Line,
    Script,
    answer,
    chat_answer,
    chat_stream,
    error_body,
    hello,
    open_peer,
    replies,
    reply_once,
    silent,
    stream_of,
)
from tests.support.threaded_server import Wire, serving

WHO: ContextVar[str] = ContextVar("WHO", default="nobody")


class Seen(Observer):
    """What each callback and hook has seen. Make one per call: `call_started` tells its observer which is its own."""

    every_event = True

    def __init__(self) -> None:
        self.hooks: list[tuple[object, str, str]] = []

    def _note(self, call: ms.Call, hook: str) -> None:
        self.hooks.append((call.tags.get("who"), hook, WHO.get()))

    def call_started(self, call: ms.Call, start: CallStart) -> None:
        self._note(call, "call_started")

    def attempt_started(self, call: ms.Call, number: int) -> None:
        self._note(call, "attempt_started")

    def first_token(self, call: ms.Call) -> None:
        self._note(call, "first_token")

    def events_received(self, call: ms.Call, events: Sequence[ms.Event]) -> None:
        self._note(call, "events_received")

    def call_ended(self, call: ms.Call, completion: ms.Completion) -> None:
        self._note(call, "call_ended")


class Callbacks:
    """What the callbacks of one call have seen."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.ends: list[str] = []

    def on_event(self, event: ms.Event) -> None:
        self.events.append(WHO.get())

    def on_completion(self, completion: ms.Completion) -> None:
        self.ends.append(WHO.get())


def start_as(who: str, start: Callable[[], ms.Call]) -> ms.Call:
    """Start a call in a context in which the variable has this value; empty: in an empty context."""

    def begin() -> ms.Call:
        if who:
            WHO.set(who)
        return start()

    return Context().run(begin)


streams = replies(stream_of(*chat_stream("a", "b", "c")))


async def fails_first(line: Line) -> None:
    await line.request()
    await line.send(answer(error_body("busy"), status="503 Service Unavailable"))
    await streams(line)


cut = reply_once(stream_of(chat_stream("a", "b")[0], end=False))


ENDS: dict[str, Script | None] = {
    "answered": streams, "retried": fails_first, "cut": cut, "timed out": silent, "cancelled": silent,
    "closed": silent, "refused": None,
}  # fmt: skip
"""How a call ends → the server's script; None: nobody listens."""


@pytest.mark.parametrize("opened_as", ["", "opener"])
@pytest.mark.parametrize("end", ENDS)
async def test_callbacks_see_the_context_of_their_start(end: str, opened_as: str, autojump_clock: MockClock) -> None:
    observer = Seen()
    people = ("alice", "", "bob", "opener")
    callbacks = {who: Callbacks() for who in people}
    if opened_as:
        WHO.set(opened_as)
    async with open_peer(ENDS[end] or streams) as peer:
        url = peer.url if ENDS[end] else f"http://127.0.0.1:{closed_port()}/v1"
        retry = ms.Retry(max_attempts=2) if end == "retried" else NO_RETRY
        timeouts = ms.Timeouts(total=9)
        provider = ms.OpenAIChat("k", url)
        async with ms.open_engine([provider], observer=observer, retry=retry, timeouts=timeouts) as engine:
            calls = [
                start_as(who, lambda who=who: engine.start_stream(hello(tags={"who": who}), callbacks[who].on_event,
                callbacks[who].on_completion)) for who in people
            ]  # fmt: skip
            await trio.sleep(1)
            WHO.set("another")
            if end == "cancelled":
                for call in calls:
                    call.cancel()
            elif end == "closed":
                engine.close()
            for call in calls:
                await call.wait()
    for who in people:
        value = who or "nobody"
        assert set(callbacks[who].events) == {value}, who
        assert callbacks[who].ends == [value], who
    assert {hook for _, hook, _ in observer.hooks} >= {"call_started", "attempt_started", "call_ended"}
    for tag, hook, seen in observer.hooks:
        assert seen == (tag or "nobody"), (hook, tag)
    if end == "answered":
        assert {hook for _, hook, _ in observer.hooks} >= {"first_token", "events_received"}


async def test_what_a_callback_sets_stays_with_its_call() -> None:
    seen: dict[str, list[str]] = {"alice": [], "bob": []}

    async with open_peer(streams) as peer, ms.open_engine([peer.chat]) as engine:
        for who in ("alice", "bob"):

            def on_event(event: ms.Event, who: str = who) -> None:
                seen[who].append(WHO.get())
                WHO.set(f"{WHO.get()}+")

            await start_as(who, lambda on_event=on_event: engine.start_stream(hello(), on_event)).wait()  # type: ignore[misc]
        assert WHO.get() == "nobody"
    for who, values in seen.items():
        assert values == [who + "+" * number for number in range(len(values))]
        assert len(values) > 3


@pytest.mark.parametrize("who", ["", "alice"])
async def test_a_callback_may_close_the_engine_in_its_own_context(who: str) -> None:
    seen = Callbacks()

    async with open_peer(streams) as peer, ms.open_engine([peer.chat], observer=Seen()) as engine:

        def on_event(event: ms.Event) -> None:
            seen.on_event(event)
            engine.close()

        other = start_as("bob", lambda: engine.start_request(hello(), seen.on_completion))
        call = start_as(who, lambda: engine.start_stream(hello(), on_event, seen.on_completion))
        assert (await call.wait()).error_category is ms.ErrorCategory.CANCELLED
        assert other.completion is not None
    assert set(seen.events) == {who or "nobody"}
    assert sorted(seen.ends) == sorted([who or "nobody", "bob"])


@pytest.mark.parametrize("value", ["", "same"])
async def test_an_event_in_the_engine_s_context_costs_no_more(value: str) -> None:
    """An empty one, and one with the values that the engine was opened with."""
    if value:
        WHO.set(value)
    callers: set[str] = set()

    def on_event(event: ms.Event) -> None:
        callers.add(sys._getframe(1).f_code.co_name)
        assert WHO.get() == (value or "nobody")

    async with open_peer(streams) as peer, ms.open_engine([peer.chat]) as engine:
        await engine.start_stream(hello(), on_event).wait()
    assert callers <= {"deliver", "deliver_matches", "_deliver_terminal"}


def test_the_contexts_of_asyncio_tasks() -> None:
    def serve(wire: Wire) -> None:
        while True:
            wire.body(wire.head())
            wire.send(stream_of(*chat_stream("a", "b")))

    seen = {who: Callbacks() for who in ("alice", "bob", "carol")}
    observer = Seen()

    async def main() -> None:
        with serving(serve) as server:
            provider = ms.OpenAIChat("k", f"{server.url}/v1")
            async with ms.open_engine([provider], observer=observer) as engine:

                async def agent(who: str) -> None:
                    WHO.set(who)
                    each = seen[who]
                    call = engine.start_stream(hello(tags={"who": who}), each.on_event, each.on_completion)
                    await call.wait()
                    async with engine.stream(hello(tags={"who": who})) as events:
                        assert [event async for event in events]
                    assert WHO.get() == who

                await asyncio.gather(*(agent(who) for who in seen))

    asyncio.run(main())
    for who, each in seen.items():
        assert (set(each.events), each.ends) == ({who}, [who])
    assert all(tag == value for tag, _, value in observer.hooks)


def test_the_contexts_of_threads() -> None:
    def serve(wire: Wire) -> None:
        while True:
            wire.body(wire.head())
            wire.send(answer(chat_answer("hi")))

    seen = {who: Callbacks() for who in ("alice", "bob")}
    observer = Seen()
    with serving(serve) as server, open_portal([ms.OpenAIChat("k", f"{server.url}/v1")], observer=observer) as engine:
        for who, each in seen.items():

            def ask(who: str = who, each: Callbacks = each) -> None:
                WHO.set(who)
                engine.start_request(hello(tags={"who": who}), each.on_completion).wait(30)

            contextvars.copy_context().run(ask)
    assert {who: each.ends for who, each in seen.items()} == {"alice": ["alice"], "bob": ["bob"]}
    assert all(tag == value for tag, _, value in observer.hooks)
    assert WHO.get() == "nobody"


async def test_an_observer_that_raises_is_logged_once_and_then_counted(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Observer):
        def call_started(self, call: ms.Call, start: CallStart) -> None:
            raise ValueError(call.number)

        def call_ended(self, call: ms.Call, completion: ms.Completion) -> None:
            raise KeyError(call.number)

    with caplog.at_level(logging.ERROR, "manystream.observe"):
        async with open_peer(streams) as peer, ms.open_engine([peer.chat], observer=Broken()) as engine:
            for _ in range(5):
                assert (await engine.start_stream(hello()).wait()).success
            assert engine.statistics().observer_failures == 10
    assert [record.getMessage() for record in caplog.records] == [
        "the observer's call_started raised",
        "the observer's call_ended raised",
    ]


class Incomparable:
    """A value that cannot be compared, such as an array."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")

    __hash__ = object.__hash__


@pytest.mark.parametrize("make", [list, Incomparable])
async def test_a_context_with_an_equal_value_is_another_one(make: Callable[[], object]) -> None:
    value: ContextVar[object] = ContextVar("value")
    value.set(make())
    seen: list[object] = []
    async with open_peer(streams) as peer, ms.open_engine([peer.chat]) as engine:
        mine = make()
        value.set(mine)
        await engine.start_stream(hello(), lambda event: seen.append(value.get())).wait()
    assert seen
    assert all(each is mine for each in seen)
