"""A worker: rows come from exchanges, and the answers of an ordinary batch leave in them."""

import json
import pickle
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

import manystream as ms
from manystream.batch.lines import LineId, ModelChoice
from manystream.ray.exchange import CONFIRMED_SECONDS, Answer, DriverExchange, ExchangeError, Row
from manystream.ray.worker import Worker, WorkerOptions, WorkerReply
from manystream.simulator import Simulator, open_simulator
from tests.support.batches import line

MOST_EXCHANGES = 60


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with open_simulator("events=2") as simulator:
        yield simulator


def options(simulator: Simulator, concurrency: int = 4) -> WorkerOptions:
    provider = ms.OpenAIChat("5ecret", simulator.base_urls["openai-chat"], name="sim")
    return WorkerOptions(
        (provider,), ModelChoice("sim", default="sim-text"), concurrency, 1, False, "p.jsonl", proxy=""
    )


def rows(*lines: dict[str, object]) -> tuple[Row, ...]:
    return tuple(Row(str(entry["id"]), number, json.dumps(entry).encode()) for number, entry in enumerate(lines, 1))


class Driver:
    """A driver of one worker."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.link = DriverExchange()
        self.answers: dict[LineId, Answer] = {}

    def exchange(self, *rows: Row) -> WorkerReply:
        reply = self.worker.exchange(self.link.offer(rows))
        assert self.link.accept(reply.reply)
        for answer in reply.reply.answers:
            assert answer.id not in self.answers
            self.answers[answer.id] = answer
        return reply

    def until(self, count: int) -> WorkerReply:
        """Exchange until there are so many answers."""
        for _ in range(MOST_EXCHANGES):
            reply = self.exchange()
            if len(self.answers) >= count or reply.failure:
                return reply
        raise AssertionError(self.answers)


@contextmanager
def driver(options: WorkerOptions) -> Iterator[Driver]:
    with closing(Worker(options)) as worker:
        yield Driver(worker)


def test_rows_are_answered_with_the_records_of_a_batch(simulator: Simulator) -> None:
    with driver(options(simulator)) as one:
        assert one.exchange().failure == ""
        one.exchange(*rows(*(line(f"q{number}") for number in range(20))))
        reply = one.until(20)
    assert sorted(one.answers) == sorted(f"q{number}" for number in range(20))
    record = json.loads(one.answers["q3"].record)
    assert (record["id"], record["provider"], record["error"]) == ("q3", "sim", None)
    assert record["text"]
    assert (reply.counters.running, reply.counters.answered, reply.failure) == (0, 20, "")


def test_failed_and_invalid_rows_have_their_line_numbers(simulator: Simulator) -> None:
    with driver(options(simulator)) as one:
        one.exchange(*rows(line("good"), line("bad", "simulate: fail=400"), line("invalid", temprature=1)))
        one.until(3)
    assert {id: answer.failed for id, answer in one.answers.items()} == {"good": False, "bad": True, "invalid": True}
    invalid = json.loads(one.answers["invalid"].record)
    assert (invalid["line"], invalid["error"]["category"]) == (3, "invalid_line")
    assert invalid["error"]["message"].startswith("p.jsonl line 3: temprature: is not a member")
    assert json.loads(one.answers["bad"].record)["line"] == 2


def test_a_repeated_exchange_asks_no_row_twice(simulator: Simulator) -> None:
    with driver(options(simulator)) as one:
        one.exchange()
        offer = one.link.offer(rows(line("a"), line("b")))
        replies = [one.worker.exchange(offer) for _ in range(3)]
        assert len({reply.reply.answers for reply in replies}) == 1
        one.link.accept(replies[0].reply)
        one.answers = {answer.id: answer for answer in replies[0].reply.answers}
        reply = one.until(2)
        with pytest.raises(ExchangeError):
            one.worker.exchange(offer)
    assert (sorted(one.answers), reply.counters.answered, reply.counters.lines) == (["a", "b"], 2, 2)


def test_calls_and_unconfirmed_answers_are_bounded(simulator: Simulator) -> None:
    with driver(options(simulator, concurrency=8)) as one:
        one.exchange()
        offer = one.link.offer(rows(*(line(f"q{number}") for number in range(30))))
        replies = [one.worker.exchange(offer) for _ in range(MOST_EXCHANGES // 2)]
        assert replies[-1].counters.lines == 8 + 2
        one.link.accept(replies[-1].reply)
        one.answers = {answer.id: answer for answer in replies[-1].reply.answers}
        one.until(30)
    assert len(one.answers) == 30


def test_a_worker_without_a_confirmed_reply_starts_nothing(simulator: Simulator) -> None:
    now = 0.0
    with closing(Worker(options(simulator), lambda: now)) as worker:
        one = Driver(worker)
        one.exchange(*rows(line("a")))
        assert not one.answers, "the driver has not confirmed a reply yet"
        one.until(1)
        offer = one.link.offer(rows(line("b")))
        now += CONFIRMED_SECONDS + 1  # the machine was frozen, and goes on
        reply = worker.exchange(offer)
        assert (reply.reply.answers, reply.counters.lines) == ((), 1)
        one.link.accept(reply.reply)
        one.until(2)
    assert sorted(one.answers) == ["a", "b"]


def test_a_refused_key_ends_the_worker_with_its_reason(simulator: Simulator) -> None:
    with driver(options(simulator)) as one:
        one.exchange(*rows(line("a", "simulate: fail=401")))
        reply = one.until(1)
    assert reply.failure.startswith("the key was refused: ")
    assert (reply.final, one.answers) == (True, {})
    assert "5ecret" not in reply.failure


def test_options_can_be_sent_and_show_no_key(simulator: Simulator) -> None:
    given = options(simulator)
    assert pickle.loads(pickle.dumps(given)) == given
    assert "5ecret" not in repr(given)


def test_a_closed_worker_leaves_no_thread(simulator: Simulator) -> None:
    worker = Worker(options(simulator))
    one = Driver(worker)
    one.exchange(*rows(line("slow", "simulate: delay=600")))
    one.exchange()
    worker.close()
    assert not worker._thread.is_alive()
    assert one.exchange().failure == "its batch has ended"
