"""The order and number of an asker's calls, with an engine whose calls end when the test says so."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

import manystream as ms
from manystream.batch.lines import LineId
from manystream.engine.request.errors import EngineClosedError
from manystream.providers.errors import InvalidRequestError
from manystream.providers.model.provider_error import ErrorCategory, ProviderError
from manystream.ray import asker
from manystream.ray.asker import Asker, is_recorded
from manystream.ray.exchange import Answer
from manystream.ray.rows import AskedRow, AskError
from tests.support.waiting import until

PROVIDER = ms.OpenAIChat("key", name="sim")
OnCompletion = Callable[[ms.Completion], None]


def completed(text: str = "yes") -> ms.Completion:
    return ms.Completion(
        True, 200, ms.Response([ms.Text(text)], ms.FinishReason.STOP, usage=ms.Usage(1, 2), model="sim-text")
    )


def failed(category: ErrorCategory, message: str = "it fails") -> ms.Completion:
    return ms.Completion(False, error=ProviderError(message, category=category))


class FakeEngine:
    """An engine in the test's own thread.

    calls: the calls that have started, with what to call at their end.
    soon: what follows in the next iteration.
    refusal: raised instead of a start.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[ms.Request, OnCompletion]] = []
        self.later: deque[Callable[[], None]] = deque()
        self.refusal: Exception | None = None
        self.at_once: ms.Completion | None = None
        self.is_closed = False
        self.lock = threading.Lock()

    def start_request(self, request: ms.Request, on_completion: OnCompletion) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.calls.append((request, on_completion))
        if self.at_once is not None:
            on_completion(self.at_once)

    def soon(self, function: Callable[[], None]) -> None:
        self.later.append(function)

    def run(self, function: Callable[[], None]) -> None:
        if self.is_closed:
            raise EngineClosedError("it is closed")
        with self.lock:
            function()

    def end(self, number: int, completion: ms.Completion) -> None:
        with self.lock:
            self.calls[number][1](completion)

    def prompts(self) -> list[str]:
        return [request.messages[0].text for request, _ in self.calls]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    engine = FakeEngine()

    @contextmanager
    def open_here(providers: object, shared: object, **options: object) -> Iterator[tuple[FakeEngine, FakeEngine]]:
        assert (shared, options) == (None, {"adaptive": "x"})
        yield engine, engine
        engine.is_closed = True

    monkeypatch.setattr(asker, "open_sharing_thread", open_here)
    return engine


def open_asker(concurrency: int, journal: asker.Journal | None = None) -> Asker:
    return Asker([PROVIDER], concurrency, journal, {"adaptive": "x"})  # type: ignore[typeddict-unknown-key]


def rows(*prompts: str) -> list[AskedRow]:
    return [AskedRow(number, text, ms.Request("sim/sim-text", text)) for number, text in enumerate(prompts)]


class Asking:
    """A block that is asked in a thread of its own."""

    def __init__(self, one: Asker, asked: list[AskedRow]) -> None:
        self.rows = asked
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, args=[one], daemon=True)
        self.thread.start()

    def _run(self, one: Asker) -> None:
        try:
            one.ask(self.rows)
        except BaseException as error:
            self.error = error

    def end(self) -> list[AskedRow]:
        self.thread.join(30)
        assert not self.thread.is_alive()
        return self.rows


def test_calls_start_in_the_order_of_the_blocks(engine: FakeEngine) -> None:
    one = open_asker(3)
    first = Asking(one, rows("a", "b"))
    until(lambda: len(engine.calls) == 2)
    second = Asking(one, rows("c", "d"))
    until(lambda: len(engine.calls) == 3)
    assert (engine.prompts(), one.running) == (["a", "b", "c"], 3)
    engine.end(1, completed("B"))
    assert (engine.prompts(), one.running) == (["a", "b", "c", "d"], 3)
    assert first.thread.is_alive()
    engine.end(0, completed("A"))
    assert one.running == 2
    record = {"id": "a", "provider": "sim", "model": "sim-text", "text": "A", "finish_reason": "stop", "error": None}
    found = first.end()[0].record
    assert record.items() <= found.items()
    engine.end(3, completed())
    assert second.thread.is_alive()
    engine.end(2, completed())
    assert [row.record["text"] for row in second.end() if row.record] == ["yes", "yes"]
    assert (one.running, list(engine.later)) == (0, [])
    one.close()


def test_at_most_64_calls_start_at_once(engine: FakeEngine) -> None:
    one = open_asker(200)
    asking = Asking(one, rows(*(str(number) for number in range(150))))
    for count in (64, 128, 150):
        until(lambda count=count: len(engine.calls) == count)
        until(lambda count=count: len(engine.later) == (count < 150))
        if engine.later:
            engine.run(engine.later.popleft())
    assert engine.prompts() == [str(number) for number in range(150)]
    assert asking.thread.is_alive()
    for number in range(150):
        engine.end(number, completed())
    asking.end()
    one.close()


def test_a_call_that_ends_while_it_starts_is_counted(engine: FakeEngine) -> None:
    one, engine.at_once = open_asker(1), completed()
    for _ in range(2):
        asked = rows("a", "b", "c")
        one.ask(asked)
        assert [row.record["text"] for row in asked if row.record] == ["yes"] * 3
        assert one.running == 0
    one.close()


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        (InvalidRequestError("model", "has no provider"), "model: has no provider"),
        (ZeroDivisionError("by zero"), "cannot be sent: ZeroDivisionError('by zero')"),
    ],
)
def test_a_row_that_is_refused_has_a_record(refusal: Exception, message: str, engine: FakeEngine) -> None:
    one, engine.refusal = open_asker(1), refusal
    asked = rows("a", "b")
    one.ask(asked)
    error = {"category": "invalid_arg", "message": message}
    assert [row.record for row in asked] == [{"id": "a", "error": error}, {"id": "b", "error": error}]
    assert one.running == 0
    one.close()


def test_an_engine_that_has_ended_ends_the_block(engine: FakeEngine) -> None:
    one, engine.refusal = open_asker(1), EngineClosedError("it is closed")
    for _ in range(2):
        with pytest.raises(AskError) as caught:
            one.ask(rows("a", "b"))
        assert (str(caught.value), one.running) == ("the engine of this actor has ended: it is closed", 0)
        engine.is_closed = True
    one.close()


def test_a_cancelled_call_ends_the_block_and_starts_no_more(engine: FakeEngine) -> None:
    one = open_asker(1)
    asking = Asking(one, rows("a", "b"))
    until(lambda: len(engine.calls) == 1)
    engine.end(0, failed(ErrorCategory.CANCELLED, "the engine was closed"))
    asking.end()
    assert str(asking.error) == "the engine of this actor has ended: the engine was closed"
    assert (engine.prompts(), one.running) == (["a"], 0)
    one.close()


def test_a_failure_without_a_journal_is_the_record(engine: FakeEngine) -> None:
    one = open_asker(1)
    asking = Asking(one, rows("a"))
    until(lambda: len(engine.calls) == 1)
    engine.end(0, failed(ErrorCategory.SERVER))
    (row,) = asking.end()
    assert row.record is not None
    assert "line" not in row.record
    assert (row.record["id"], row.record["error"]["category"]) == ("a", "server")  # type: ignore[index,call-overload]
    one.close()


def test_the_answer_of_a_route_names_no_provider(engine: FakeEngine) -> None:
    other = ms.OpenAIChat("key", name="other")
    one = Asker([PROVIDER, other], 2, None, {"adaptive": "x"})  # type: ignore[typeddict-unknown-key]
    engine.at_once = completed()
    asked = [
        AskedRow(number, "", ms.Request(model, "hi"))
        for number, model in enumerate(["other/m", "best", "sim/m", "best"])
    ]
    one.ask(asked)
    assert [row.record["provider"] for row in asked if row.record] == ["other", None, "sim", None]
    one.close()


class Noting:
    """A journal that acknowledges when the test allows it."""

    def __init__(self) -> None:
        self.acknowledge = threading.Semaphore(0)
        self.recorded: list[list[tuple[LineId, bool]]] = []
        self.looked_up: list[list[LineId]] = []

    def lookup(self, ids: Sequence[LineId]) -> dict[LineId, bytes]:
        self.looked_up.append(list(ids))
        return {"known": b'{"id": "known", "text": "before"}'}

    def record(self, answers: Sequence[Answer]) -> dict[LineId, bytes]:
        self.recorded.append([(answer.id, answer.failed) for answer in answers])
        self.acknowledge.acquire()
        return {}


def test_records_that_come_meanwhile_are_written_together(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert asker.RECORDS_AT_ONCE == 1000
    monkeypatch.setattr(asker, "RECORDS_AT_ONCE", 3)
    journal = Noting()
    one = open_asker(9, journal)
    asked = rows("a", "b", "c", "d", "e", "f", "known", "refused")
    asked[-1].record = {"id": "refused"}
    asking = Asking(one, asked)
    until(lambda: len(engine.calls) == 6)
    assert journal.looked_up == [["a", "b", "c", "d", "e", "f", "known"]]
    engine.end(0, completed())
    until(lambda: len(journal.recorded) == 1)
    for number, completion in enumerate([failed(ErrorCategory.SERVER), *[completed()] * 4], 1):
        engine.end(number, completion)
    journal.acknowledge.release()
    until(lambda: len(journal.recorded) == 2)
    assert asked[1].record is None
    for _ in range(2):
        journal.acknowledge.release()
    asking.end()
    assert journal.recorded == [[("a", False)], [("b", True), ("c", False), ("d", False)], [("e", False), ("f", False)]]
    assert asked[6].record == {"id": "known", "text": "before"}
    one.close()
    assert not one._writer.is_alive()


def test_records_are_written_before_it_closes(engine: FakeEngine) -> None:
    """The end is found while records are collected."""
    journal = Noting()
    one = open_asker(9, journal)
    asking = Asking(one, rows("a", "b"))
    until(lambda: len(engine.calls) == 2)
    engine.end(0, completed())
    until(lambda: len(journal.recorded) == 1)
    engine.end(1, completed())
    closing = threading.Thread(target=one.close, daemon=True)
    closing.start()
    until(lambda: engine.is_closed and one._ended.qsize() == 2)
    journal.acknowledge.release()
    journal.acknowledge.release()
    asking.end()
    closing.join(30)
    assert not closing.is_alive()
    assert journal.recorded == [[("a", False)], [("b", False)]]


@pytest.mark.parametrize(
    ("error", "recorded"),
    [
        (ProviderError("x", category=ErrorCategory.AUTH), False),
        (ProviderError("x", category=ErrorCategory.CANCELLED), False),
        (ProviderError("x", category=ErrorCategory.BUDGET), False),
        (ProviderError("x", category=ErrorCategory.RATE_LIMIT, retryable=False), False),
        (ProviderError("x", category=ErrorCategory.RATE_LIMIT, retryable=True), True),
        (ProviderError("x", category=ErrorCategory.SERVER, retryable=False), True),
        (ProviderError("x", category=ErrorCategory.INVALID_ARG), True),
    ],
)
def test_what_says_nothing_about_its_row_is_not_recorded(error: ProviderError, recorded: bool) -> None:
    assert is_recorded(error) == recorded
