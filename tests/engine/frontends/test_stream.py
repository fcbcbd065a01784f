"""How much a stream and a map read ahead of a program, on an event loop and in a portal; with literal numbers."""

from collections.abc import Callable, Iterator

import pytest
import trio

import manystream as ms
from manystream.engine.call.home import Home
from manystream.engine.frontends.map import Feeder, MappedCalls, Source, check_source, unsendable
from manystream.engine.frontends.portal import PortalStream
from manystream.engine.frontends.stream import EventStream
from manystream.transport.trio_backend import TRIO


class Call:
    """A call that notes what is done to it."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def pause(self) -> None:
        self.done.append("pause")

    def resume(self) -> None:
        self.done.append("resume")

    def cancel(self) -> None:
        self.done.append("cancel")

    def __exit__(self, *_: object) -> None:
        self.cancel()


class Starter:
    """Starts one streamed call, and keeps its callbacks."""

    def __init__(self) -> None:
        self.call = Call()
        self.started = 0

    def __call__(
        self, on_event: Callable[[ms.Event], object], on_completion: Callable[[ms.Completion], object]
    ) -> Call:
        self.on_event, self.on_completion = on_event, on_completion
        self.started += 1
        return self.call


def failure(message: str = "no") -> ms.ProviderError:
    return ms.ProviderError(message, category=ms.ErrorCategory.SERVER)


async def taken(stream: EventStream, count: int) -> list[str]:
    events = [await stream.__anext__() for _ in range(count)]
    return [event.text for event in events if isinstance(event, ms.TextDelta)]


async def test_a_stream_is_paused_at_64_events_and_resumed_at_16() -> None:
    starter = Starter()
    stream = EventStream(Home(trio.lowlevel.current_trio_token), TRIO, starter)  # type: ignore[arg-type]
    async with stream:
        for number in range(63):
            starter.on_event(ms.TextDelta(0, str(number)))
        assert starter.call.done == []
        for number in range(63, 70):
            starter.on_event(ms.TextDelta(0, str(number)))
        assert starter.call.done == ["pause"]
        assert await taken(stream, 53) == [str(number) for number in range(53)]
        assert starter.call.done == ["pause"]
        assert await taken(stream, 1) == ["53"]
        assert starter.call.done == ["pause", "resume"]
        assert await taken(stream, 16) == [str(number) for number in range(54, 70)]
        for number in range(64):
            starter.on_event(ms.TextDelta(0, str(number)))
        assert starter.call.done == ["pause", "resume", "pause"]
    assert starter.call.done == ["pause", "resume", "pause", "cancel"]
    assert starter.started == 1


async def test_a_failed_stream_raises_behind_its_events_each_time() -> None:
    starter = Starter()
    error = failure()
    async with EventStream(Home(trio.lowlevel.current_trio_token), TRIO, starter) as stream:  # type: ignore[arg-type]
        assert stream.call is starter.call
        assert stream.completion is None
        starter.on_event(ms.TextDelta(0, "a"))
        starter.on_event(ms.ErrorEvent(error))
        completion = ms.Completion(False, error=error)
        starter.on_completion(completion)
        assert await taken(stream, 1) == ["a"]
        for _ in range(2):
            with pytest.raises(ms.ProviderError) as raised:
                await stream.__anext__()
            assert raised.value is error
        assert stream.completion is completion


async def test_a_stream_ends_behind_its_last_event_each_time() -> None:
    starter = Starter()
    async with EventStream(Home(trio.lowlevel.current_trio_token), TRIO, starter) as stream:  # type: ignore[arg-type]
        starter.on_event(ms.TextDelta(0, "a"))
        starter.on_completion(ms.Completion(True))
        assert [event async for event in stream] == [ms.TextDelta(0, "a")]
        assert [event async for event in stream] == []


class Thread:
    """The engine's thread, which is this one. runs: how often it was asked for a result."""

    def __init__(self) -> None:
        self.runs = 0
        self.soons = 0

    def run(self, function: Callable[[], object]) -> object:
        self.runs += 1
        return function()

    def soon(self, function: Callable[[], object]) -> None:
        self.soons += 1
        function()

    leave = soon

    def check_may_block(self) -> None:
        pass


def test_a_portal_s_stream_is_paused_and_resumed_alike() -> None:
    starter = Starter()
    with PortalStream(Thread(), starter) as stream:  # type: ignore[arg-type]
        for number in range(64):
            starter.on_event(ms.TextDelta(0, str(number)))
        assert starter.call.done == ["pause"]
        texts = [next(stream) for _ in range(47)]
        assert starter.call.done == ["pause"]
        texts.append(next(stream))
        assert starter.call.done == ["pause", "resume"]
        starter.on_completion(ms.Completion(True))
        assert [*texts, *stream] == [ms.TextDelta(0, str(number)) for number in range(64)]
        with pytest.raises(RuntimeError, match="this stream was entered already"):
            stream.__enter__()
    assert starter.call.done == ["pause", "resume", "cancel"]


# --- maps ---


class Calls:
    """Starts calls that end when the test says so."""

    def __init__(self) -> None:
        self.running: list[tuple[ms.Request, Callable[[ms.Completion], object], Call]] = []
        self.refuses = False

    def __call__(self, request: ms.Request, end: Callable[[ms.Completion], object]) -> Call:
        if self.refuses:
            raise ms.TooManyCallsError("full")
        call = Call()
        self.running.append((request, end, call))
        return call

    def end(self, place: int = 0) -> ms.Completion:
        completion = ms.Completion(True)
        self.running.pop(place)[1](completion)
        return completion


def mapped(calls: Calls, concurrency: int = 2, *, ordered: bool = False) -> tuple[MappedCalls[object], list[str]]:
    reported: list[str] = []
    results: MappedCalls[object] = MappedCalls(
        calls, concurrency, ordered=ordered, on_result=lambda: reported.append("result"),
        on_room=lambda: reported.append("room"),
    )  # fmt: skip
    return results, reported


def request(name: object = "m") -> ms.Request:
    return ms.Request(str(name), "hello")


def test_a_map_holds_twice_its_concurrency() -> None:
    calls = Calls()
    results, reported = mapped(calls)
    rooms = [results.room]
    for _ in range(2):
        assert results.add(request())
        rooms.append(results.room)
    assert (rooms, reported, results.take()) == ([2, 1, 0], [], None)
    ended = calls.end()
    assert (results.room, reported) == (1, ["result", "room"])
    results.add(request())
    calls.end()
    results.add(request())
    assert results.room == 0
    calls.end()
    calls.end()
    assert results.room == 0  # four completions wait
    reported.clear()
    found = results.take()
    assert found[1] is ended
    assert (results.room, reported) == (1, ["room"])
    for _ in range(3):
        results.take()
    assert (results.room, results.take(), results.check_over()) == (2, None, False)
    results.end_source()
    assert (reported[-1], results.check_over()) == ("result", True)


def test_a_refused_request_is_added_again_when_a_call_has_ended() -> None:
    calls = Calls()
    results, _ = mapped(calls, 5)
    assert results.add(request(1))
    calls.refuses = True
    assert not results.add(request(2))
    assert results.room == 0
    calls.refuses = False
    calls.end()
    assert results.room == 5
    assert results.add(request(2))
    calls.end()
    calls.refuses = True
    with pytest.raises(ms.TooManyCallsError):
        results.add(request(3))  # no call of this map will ever make room


def test_an_ordered_map_returns_the_first_request_first() -> None:
    calls = Calls()
    results, _ = mapped(calls, 2, ordered=True)
    for name in "ab":
        results.add((name, request(name)))
    second = calls.end(1)
    assert results.take() is None
    first = calls.end()
    assert [results.take(), results.take(), results.take()] == [("a", first), ("b", second), None]


def test_a_source_s_exception_comes_behind_the_last_completion() -> None:
    calls = Calls()
    results, _ = mapped(calls)
    results.add(request())
    results.end_source(OSError("gone"))
    assert not results.check_over()
    calls.end()
    assert not results.check_over()
    results.take()
    with pytest.raises(OSError, match="gone"):
        results.check_over()


def test_a_closed_map_cancels_its_calls_and_starts_none() -> None:
    calls = Calls()
    results, _ = mapped(calls, 5)
    for _ in range(3):
        results.add(request())
    running = [call for _, _, call in calls.running]
    calls.end()
    results.close()
    assert [call.done for call in running] == [[], ["cancel"], ["cancel"]]
    assert (results.room, results.check_over()) == (0, True)


def test_an_unsendable_request_has_its_field_as_its_error() -> None:
    completion = unsendable(ms.InvalidRequestError("messages", "are empty"))
    assert (completion.success, completion.error_message) == (False, "messages: are empty")
    assert completion.error_category is ms.ErrorCategory.INVALID_ARG
    with pytest.raises(ms.InvalidRequestError) as raised:
        check_source(5)
    assert str(raised.value) == "requests: must be an iterable of Request, or of pairs of a key and a Request, not int"


async def test_a_feeder_rests_behind_each_sixteenth_start() -> None:
    calls, done = Calls(), list[str]()
    results, _ = mapped(calls, 100)

    async def wait() -> None:
        raise AssertionError("there is room")

    async def rest() -> None:
        done.append(f"rest behind {len(calls.running)}")

    await Feeder(results, [request() for _ in range(47)], wait, rest).run()
    assert done == ["rest behind 16", "rest behind 32"]
    assert len(calls.running) == 47
    assert not results.check_over()


async def test_a_feeder_reads_no_item_before_there_is_room() -> None:
    calls, read = Calls(), list[int]()
    results, _ = mapped(calls, 2)
    waits: list[int] = []

    def source() -> Iterator[ms.Request]:
        for number in range(5):
            read.append(number)
            yield request(number)

    async def wait() -> None:
        waits.append(len(read))
        await trio.lowlevel.checkpoint()
        if len(waits) == 3:
            calls.refuses = True
        calls.end()
        results.take()

    with pytest.raises(ms.TooManyCallsError):
        await Feeder(results, source(), wait, trio.lowlevel.checkpoint)._feed(Source(source()))
    assert waits[:3] == [2, 3, 4]
