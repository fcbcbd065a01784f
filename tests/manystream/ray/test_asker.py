"""The asker of an actor: blocks from several threads share one engine, and end when their answers are recorded."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

import manystream as ms
from manystream.batch.lines import LineId
from manystream.ray.answers import AnswerKeeper
from manystream.ray.asker import Asker, Journal
from manystream.ray.exchange import Answer
from manystream.ray.rows import AskedRow, AskError, gained_of
from manystream.simulator import Simulator, open_simulator
from tests.support.waiting import until


@pytest.fixture(scope="module")
def counted() -> Iterator[Simulator]:
    with open_simulator("events=2", limits=["requests-per-minute=1000000000"]) as simulator:
        yield simulator


@pytest.fixture
def sim(counted: Simulator) -> ms.Provider:
    return ms.OpenAIChat("5ecret", counted.base_urls["openai-chat"], name="sim")


def requests(simulator: Simulator) -> int:
    return simulator.limit_counts()[0].accepted


def rows(*prompts: str, ids: Sequence[LineId] = ()) -> list[AskedRow]:
    retry = ms.Retry(max_attempts=1)
    return [
        AskedRow(number, ids[number] if ids else "", ms.Request("sim/sim-text", prompt, retry=retry))
        for number, prompt in enumerate(prompts)
    ]


def asker(provider: ms.Provider, concurrency: int = 4, journal: Journal | None = None) -> closing[Asker]:
    return closing(Asker([provider], concurrency, journal, {}))


def errors(asked: Sequence[AskedRow]) -> list[object]:
    found = [gained_of(row.record or {}).error for row in asked]
    return [error and error["category"] for error in found]


def test_blocks_of_several_threads_keep_their_order(sim: ms.Provider) -> None:
    blocks = [rows(*(f"{block} {number}" for number in range(100))) for block in range(4)]
    with asker(sim, 30) as one:
        threads = [threading.Thread(target=one.ask, args=[block]) for block in blocks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for block in blocks:
        assert errors(block) == [None] * 100
        assert all(gained_of(row.record or {}).text for row in block)
        assert [row.number for row in block] == list(range(100))


def test_a_failure_is_in_its_row(sim: ms.Provider) -> None:
    asked = rows("good", "simulate: fail=400", "simulate: fail=401", "simulate: fail=500", "good")
    asked.append(AskedRow(5, "", ms.Request("sim/", "no model")))
    with asker(sim) as one:
        one.ask(asked)
        one.ask([])
    assert errors(asked) == [None, "invalid_arg", "auth", "server", None, "invalid_arg"]


def test_the_bound_holds_for_all_blocks_together(sim: ms.Provider) -> None:
    """The observer counts the calls that run."""
    highest = running = 0

    class Count(ms.Observer):
        def call_started(self, call: ms.Call, start: ms.CallStart) -> None:
            nonlocal highest, running
            running += 1
            highest = max(highest, running)

        def call_ended(self, call: ms.Call, completion: ms.Completion) -> None:
            nonlocal running
            running -= 1

    with closing(Asker([sim], 7, None, {"observer": Count()})) as one:
        threads = [threading.Thread(target=one.ask, args=[rows(*"abcdefghijkl")]) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (highest, running) == (7, 0)


def test_nothing_that_was_answered_is_asked_again(sim: ms.Provider, counted: Simulator, tmp_path: Path) -> None:
    ids = ["a", "b", 3]
    first, second = (rows("one", "simulate: fail=400", "three", ids=ids) for _ in range(2))
    before = requests(counted)
    with closing(AnswerKeeper(str(tmp_path / "a.jsonl"))) as keeper, asker(sim, journal=keeper) as one:
        one.ask(first)
        one.ask(second)
    assert [row.record for row in second] == [json.loads(json.dumps(row.record)) for row in first]
    third = rows("one", "simulate: fail=400", "three", "four", ids=[*ids, "d"])
    with closing(AnswerKeeper(str(tmp_path / "a.jsonl"))) as keeper, asker(sim, journal=keeper) as one:
        one.ask(third)
    assert [row.record for row in third[:3]] == [row.record for row in second]
    assert errors(third) == [None, "invalid_arg", None, None]
    assert requests(counted) - before == 3, "the simulator does not count the row that fails"
    record = json.loads((tmp_path / "a.jsonl").read_bytes().splitlines()[0])
    assert record["provider"] == "sim"
    assert "line" not in json.loads((tmp_path / "a.errors.jsonl").read_bytes())


def test_a_refused_key_is_not_recorded(sim: ms.Provider, tmp_path: Path) -> None:
    """The next run has another key and must ask the rows again."""
    asked = rows("simulate: fail=401", "good", ids=["a", "b"])
    with closing(AnswerKeeper(str(tmp_path / "a.jsonl"))) as keeper, asker(sim, journal=keeper) as one:
        one.ask(asked)
        assert errors(asked) == ["auth", None]
        assert keeper.lookup(["a", "b"]).keys() == {"b"}


class Slow:
    """A journal that another actor writes, too, and that acknowledges when the test allows it."""

    def __init__(self) -> None:
        self.acknowledge = threading.Event()
        self.asked: list[LineId] = []
        self.failure: Exception | None = None

    def lookup(self, ids: Sequence[LineId]) -> dict[LineId, bytes]:
        return {}

    def record(self, answers: Sequence[Answer]) -> dict[LineId, bytes]:
        self.asked += [answer.id for answer in answers]
        self.acknowledge.wait()
        if self.failure is not None:
            raise self.failure
        return {"a": b'{"id": "a", "text": "from another actor", "error": null}'}


def test_a_block_has_what_the_journal_has_recorded(sim: ms.Provider) -> None:
    journal = Slow()
    asked = rows("one", "two", ids=["a", "b"])
    with asker(sim, journal=journal) as one:
        thread = threading.Thread(target=one.ask, args=[asked])
        thread.start()
        until(lambda: bool(journal.asked))
        assert thread.is_alive()
        assert asked[0].record is None
        journal.acknowledge.set()
        thread.join()
    texts = [gained_of(row.record or {}).text for row in asked]
    assert texts[0] == "from another actor"
    assert texts[1] not in (None, texts[0])


def test_a_journal_that_cannot_be_written_ends_the_block(sim: ms.Provider) -> None:
    journal = Slow()
    journal.failure = AskError("cannot write a.jsonl: No space left on device")
    journal.acknowledge.set()
    with asker(sim, journal=journal) as one:
        for _ in range(2):
            with pytest.raises(AskError, match="No space left"):
                one.ask(rows(*"abcdefgh", ids="abcdefgh"))


def test_a_block_of_an_engine_that_has_ended_fails(sim: ms.Provider) -> None:
    one = Asker([sim], 1, None, {})
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            one.ask(rows("simulate: delay=60", "second", "third"))
        except AskError as error:
            failures.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    until(lambda: one.running > 0)
    one.close()
    thread.join()
    with pytest.raises(AskError, match="the engine of this actor has ended"):
        one.ask(rows("later"))
    assert len(failures) == 1
