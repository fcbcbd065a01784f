"""`engine.map`: every request comes back once, no more run than allowed, and nothing is read that has no place."""

from __future__ import annotations

import gc
import resource
from collections.abc import AsyncGenerator, Callable, Iterator

import pytest
import trio
import trio.testing
from trio.testing import MockClock

import manystream as ms
from manystream.engine.call.home import Home
from manystream.engine.frontends.map import CallMap
from manystream.transport.trio_backend import TRIO
from tests.support.peers import answer, chat_answer, open_peer, replies


class StubCall:
    """A call that the test ends."""

    def __init__(self, stub: StubEngine, end: Callable[[ms.Completion], object]) -> None:
        self.stub = stub
        self.on_completion = end
        self.cancelled = False

    def end(self) -> None:
        self.stub.running.pop(self, None)
        self.on_completion(ms.Completion(True, 200))

    def cancel(self) -> None:
        self.cancelled = True
        self.stub.cancelled += 1


class StubEngine:
    """Starts calls, and counts what runs. `ends_by_itself`: each call ends at the next tick of trio."""

    def __init__(self, *, ends_by_itself: bool = True, places: int = 10**9) -> None:
        self.running: dict[StubCall, None] = {}
        self.most = self.started = self.cancelled = 0
        self.places = places
        self._ends = ends_by_itself

    def start(self, request: object, end: Callable[[ms.Completion], object]) -> StubCall:
        if not isinstance(request, ms.Request):
            raise ms.InvalidRequestError("request", f"must be a Request, not {type(request).__name__}")
        if len(self.running) >= self.places:
            raise ms.TooManyCallsError("no place")
        call = StubCall(self, end)
        self.running[call] = None
        self.started += 1
        self.most = max(self.most, len(self.running))
        if self._ends:
            trio.lowlevel.current_trio_token().run_sync_soon(call.end)
        return call


def requests(count: int, read: list[int] | None = None) -> Iterator[ms.Request]:
    for number in range(count):
        if read is not None:
            read.append(number)
        yield ms.Request(str(number), "hello")


def keyed(count: int) -> Iterator[tuple[int, ms.Request]]:
    yield from enumerate(requests(count))


def here() -> Home:
    return Home(trio.lowlevel.current_trio_token)


def mapped(stub: StubEngine, source: object, *, concurrency: int = 3, ordered: bool = False) -> CallMap[ms.Request]:
    return CallMap(here(), TRIO, stub.start, source, concurrency, ordered=ordered)


async def read_into(seen: list[str], results: CallMap[ms.Request]) -> None:
    async for request, _ in results:
        seen.append(request.model)


async def leave_after_one(results: CallMap[ms.Request]) -> None:
    async with results:
        await anext(results)


async def leave_by_exception(results: CallMap[ms.Request]) -> None:
    async with results:
        await trio.testing.wait_all_tasks_blocked()
        raise KeyError("mine")


# --- what comes back ---


async def test_each_request_comes_back_once_with_its_completion() -> None:
    stub, seen = StubEngine(), list[str]()
    async with mapped(stub, requests(50)) as results:
        async for request, completion in results:
            assert completion.success
            seen.append(request.model)
    assert sorted(seen, key=int) == [str(number) for number in range(50)]
    assert stub.most == 3


async def test_an_async_iterable_is_a_source_too() -> None:
    async def source() -> AsyncGenerator[ms.Request, None]:
        for request in requests(10):
            await trio.lowlevel.checkpoint()
            yield request

    async with mapped(StubEngine(), source()) as results:
        seen = [request.model async for request, _ in results]
    assert sorted(seen) == [str(number) for number in range(10)]


async def test_a_key_comes_back_in_the_place_of_its_request() -> None:
    calls: CallMap[int] = CallMap(here(), TRIO, StubEngine().start, keyed(10), 3, ordered=False)
    async with calls as results:
        assert sorted([key async for key, _ in results]) == list(range(10))


async def test_completions_come_as_calls_end_or_in_request_order() -> None:
    for ordered, expected in ((False, ["1", "0"]), (True, ["0", "1"])):
        stub, seen = StubEngine(ends_by_itself=False), list[str]()
        async with mapped(stub, requests(2), ordered=ordered) as results, trio.open_nursery() as nursery:
            nursery.start_soon(read_into, seen, results)
            await trio.testing.wait_all_tasks_blocked()
            first, second = stub.running
            second.end()
            await trio.testing.wait_all_tasks_blocked()
            assert seen == ([] if ordered else ["1"])
            first.end()
        assert seen == expected


@pytest.mark.parametrize("ordered", [False, True])
async def test_several_tasks_share_the_completions(autojump_clock: MockClock, ordered: bool) -> None:
    stub, seen = StubEngine(), list[str]()
    with trio.fail_after(60):
        async with mapped(stub, requests(20), ordered=ordered) as results, trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(read_into, seen, results)
    assert len(seen) == 20


async def test_no_requests_are_no_completions() -> None:
    async with mapped(StubEngine(), []) as results:
        assert [result async for result in results] == []


async def test_the_error_of_an_unsendable_request_names_the_field() -> None:
    async with ms.open_engine([ms.OpenAIChat("key", "http://127.0.0.1:1/v1")]) as engine:
        wrong = [ms.Request("m", "hi", temperature=-1.0), ms.Request("m", [])]
        async with engine.map(wrong, ordered=True) as results:
            completions = [completion async for _, completion in results]
    assert [completion.error_category for completion in completions] == [ms.ErrorCategory.INVALID_ARG] * 2
    assert [(completion.error_message or "").partition(":")[0] for completion in completions] == [
        "temperature",
        "messages",
    ]
    assert not any(completion.success or completion.attempts for completion in completions)


async def test_the_error_of_an_unsendable_request_comes_at_once(autojump_clock: MockClock) -> None:
    async def source() -> AsyncGenerator[ms.Request, None]:
        await trio.testing.wait_all_tasks_blocked()  # the program waits for a completion
        yield ms.Request("m", "hi", temperature=-1.0)
        await trio.sleep_forever()

    async with ms.open_engine([ms.OpenAIChat("key", "http://127.0.0.1:1/v1")]) as engine:
        with trio.fail_after(60):
            async with engine.map(source()) as results:
                _, completion = await results.__anext__()
    assert completion.error_category is ms.ErrorCategory.INVALID_ARG


async def test_an_item_that_is_not_a_request_gets_an_error() -> None:
    async with mapped(StubEngine(), ["hello"]) as results:
        found = [(str(key), completion.error_message) async for key, completion in results]
    assert found == [("hello", "request: must be a Request, not str")]


# --- bounds ---


@pytest.mark.parametrize("size", [0, 1, 3])
async def test_a_tuple_that_is_no_pair_gets_an_error(size: int) -> None:
    item = (ms.Request("m", [ms.Message.user("hello")]),) * size
    pair = ("key", ms.Request("m", [ms.Message.user("hello")]))
    results: CallMap[object] = CallMap(here(), TRIO, StubEngine().start, [item, pair], 2, ordered=True)
    async with results:
        found = [(key, completion.error_message) async for key, completion in results]
    wrong = f"requests: an item must be a Request or a pair of a key and a Request, not a tuple of {size}"
    assert found == [(item, wrong), ("key", None)]


async def test_a_slow_program_holds_back_the_source() -> None:
    stub, read = StubEngine(), list[int]()
    async with mapped(stub, requests(1000, read), concurrency=5) as results:
        await trio.testing.wait_all_tasks_blocked()
        assert len(read) == 10  # twice the concurrency, all ended, none taken
        taken = 0
        async for _ in results:
            taken += 1
            assert len(read) - taken <= 10
    assert (taken, stub.most) == (1000, 5)


async def test_ordered_holds_no_more_behind_a_slow_first_call() -> None:
    stub, read = StubEngine(ends_by_itself=False), list[int]()
    async with mapped(stub, requests(1000, read), concurrency=5, ordered=True):
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(100):
            last = list(stub.running)[-1]
            if len(stub.running) > 1:
                last.end()
            await trio.testing.wait_all_tasks_blocked()
        assert len(read) == 10


async def test_the_source_is_not_read_before_there_is_room() -> None:
    stub, read = StubEngine(ends_by_itself=False), list[int]()
    async with mapped(stub, requests(1000, read)):
        await trio.testing.wait_all_tasks_blocked()
        assert len(read) == 3


async def test_map_waits_for_a_full_engine_while_its_own_calls_run() -> None:
    stub = StubEngine(places=2)
    async with mapped(stub, requests(20), concurrency=10) as results:
        assert len([result async for result in results]) == 20
    assert stub.most == 2


async def test_one_task_serves_all_calls() -> None:
    stub = StubEngine(ends_by_itself=False)
    before = trio.lowlevel.current_statistics().tasks_living
    async with mapped(stub, requests(200), concurrency=100):
        await trio.testing.wait_all_tasks_blocked()
        assert (len(stub.running), trio.lowlevel.current_statistics().tasks_living - before) == (100, 1)


async def hold(count: int, concurrency: int) -> tuple[int, int]:
    """Map so many requests; how many came back, and by how many KiB the process grew after the first tenth."""
    stub, taken, before = StubEngine(), 0, 0
    async with mapped(stub, requests(count), concurrency=concurrency) as results:
        async for _ in results:
            taken += 1
            if taken == count // 10:
                gc.collect()
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert stub.most <= concurrency
    return taken, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before


async def test_twenty_thousand_requests_need_no_more_memory_than_2000() -> None:
    taken, growth = await hold(20_000, 200)
    assert taken == 20_000
    assert growth < 8 * 1024


@pytest.mark.soak
async def test_400_000_requests_need_no_more_memory_than_40_000() -> None:
    taken, growth = await hold(400_000, 2_000)
    assert taken == 400_000
    assert growth < 6 * 1024  # 17 bytes for each request


# --- the end ---


async def test_an_exception_in_the_source_comes_after_what_was_started() -> None:
    def source() -> Iterator[ms.Request]:
        yield from requests(5)
        raise OSError("the disk is gone")

    seen: list[str] = []
    async with mapped(StubEngine(), source()) as results:
        with pytest.raises(OSError, match="the disk is gone"):
            await read_into(seen, results)
    assert sorted(seen) == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_what_ends_the_program_leaves_at_once_and_alone(kind: type[BaseException], asynchronous: bool) -> None:
    def source() -> Iterator[ms.Request]:
        yield from requests(2)
        raise kind

    async def asynchronous_source() -> AsyncGenerator[ms.Request, None]:
        for request in source():
            yield request

    stub = StubEngine(ends_by_itself=False)
    with pytest.raises(kind):
        async with mapped(stub, asynchronous_source() if asynchronous else source()) as results:
            await read_into([], results)
    assert stub.cancelled == 2


async def test_an_error_of_opening_the_source_is_raised_by_iteration() -> None:
    class Broken:
        def __iter__(self) -> Iterator[ms.Request]:
            raise OSError("no file")

    async with mapped(StubEngine(), Broken()) as results:
        with pytest.raises(OSError, match="no file"):
            await results.__anext__()


async def test_leaving_the_block_cancels_calls_and_closes_the_source() -> None:
    closed: list[bool] = []

    async def source() -> AsyncGenerator[ms.Request, None]:
        try:
            for request in requests(1000):
                yield request
        finally:
            closed.append(True)

    stub = StubEngine(ends_by_itself=False)
    async with mapped(stub, source()):
        await trio.testing.wait_all_tasks_blocked()
    assert (stub.cancelled, stub.started, closed) == (3, 3, [True])


async def test_a_source_that_fails_as_it_is_closed_is_raised() -> None:
    async def source() -> AsyncGenerator[ms.Request, None]:
        try:
            for request in requests(10):
                yield request
        finally:
            raise OSError("the file is gone")

    for leave, context in ((leave_after_one, GeneratorExit), (leave_by_exception, KeyError)):
        with pytest.raises(OSError, match="the file is gone") as raised:
            await leave(mapped(StubEngine(), source()))
        assert isinstance(raised.value.__context__, context)


async def test_an_exception_of_the_block_is_raised_as_it_is() -> None:
    stub = StubEngine(ends_by_itself=False)
    with pytest.raises(KeyError, match="mine"):
        await leave_by_exception(mapped(stub, requests(10)))
    assert stub.cancelled == 3


async def test_cancelling_the_program_cancels_what_runs() -> None:
    stub = StubEngine(ends_by_itself=False)
    with trio.CancelScope() as scope:
        async with mapped(stub, requests(10)) as results:
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
            await results.__anext__()
    assert scope.cancelled_caught
    assert stub.cancelled == 3


async def test_an_engine_that_drains_ends_the_map_after_what_runs() -> None:

    async with open_peer(replies(answer(chat_answer("Hello")))) as peer, ms.open_engine([peer.chat]) as engine:
        seen: list[str] = []
        async with engine.map((ms.Request("m", "hi") for _ in range(1000)), concurrency=2) as results:
            await results.__anext__()
            finished = engine.drain(10)
            with pytest.raises(ms.EngineClosedError):
                await read_into(seen, results)
            assert await finished
        assert len(seen) <= 4


async def test_real_calls_come_back_with_their_answers() -> None:

    async with open_peer(replies(answer(chat_answer("Hello")))) as peer, ms.open_engine([peer.chat]) as engine:
        pairs = ((number, ms.Request("m", f"number {number}")) for number in range(60))
        async with engine.map(pairs, concurrency=7, ordered=True) as results:
            answers = [(key, completion.response and completion.response.text) async for key, completion in results]
        assert answers == [(number, "Hello") for number in range(60)]
        assert engine.statistics().opened <= 7


# --- misuse ---


async def test_reading_without_the_block_says_how_to_write_it() -> None:
    results = mapped(StubEngine(), requests(3))
    with pytest.raises(RuntimeError, match=r"async with engine\.map"):
        await results.__anext__()


async def test_a_map_is_entered_once() -> None:
    results = mapped(StubEngine(), requests(3))
    async with results:
        with pytest.raises(RuntimeError, match="entered already"):
            await results.__aenter__()


@pytest.mark.parametrize(
    ("source", "concurrency", "ordered", "field"),
    [
        (ms.Request("m", "hi"), 1, False, "requests"), (None, 1, False, "requests"), ("hi", 1, False, "requests"),
        (b"hi", 1, False, "requests"), ({"a": ms.Request("m", "hi")}, 1, False, "requests"),
        ([], 0, False, "concurrency"), ([], 1.5, False, "concurrency"), ([], 1, None, "ordered"), ([], 1, 1, "ordered"),
    ],
)  # fmt: skip
async def test_arguments_that_cannot_work_are_refused_by_name(
    source: object, concurrency: int, ordered: bool, field: str
) -> None:
    with pytest.raises(ms.InvalidRequestError) as caught:
        mapped(StubEngine(), source, concurrency=concurrency, ordered=ordered)
    assert caught.value.field == field
