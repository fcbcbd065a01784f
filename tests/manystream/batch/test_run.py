"""Batches without the command line: recorded answers and failures, resuming, traffic control, memory and cost."""

import json
import tracemalloc
from collections.abc import AsyncGenerator, Callable
from decimal import Decimal
from pathlib import Path
from typing import cast

import pytest
import trio
import trio.testing

import manystream as ms
from manystream.batch import Batch, BatchError, Journal, JournalError, read_lines
from manystream.cost import Cost, Unpriced
from manystream.engine import Engine
from tests.support.batches import line, model, records, run, write
from tests.support.peers import Peer, open_peer
from tests.support.targets import Fault, Server, failing


class Running(ms.Observer):
    """Counts the calls that run, and the most that ever ran. `reached` is set when `goal` calls have started."""

    def __init__(self, goal: int) -> None:
        self.goal = goal
        self.running = self.most = self.started = 0
        self.reached = trio.Event()

    def call_started(self, call: ms.Call, start: ms.CallStart) -> None:
        self.started += 1
        self.running += 1
        self.most = max(self.most, self.running)
        if self.started == self.goal:
            self.reached.set()

    def call_ended(self, call: ms.Call, completion: ms.Completion) -> None:
        self.running -= 1


# --- batches ---


async def test_every_line_has_its_answer_under_its_id(provider: ms.Provider, tmp_path: Path) -> None:
    prompts = write(tmp_path / "p.jsonl", [line(f"q{n}") for n in range(50)] + [line(7)])
    batch = await run(provider, prompts, tmp_path / "a.jsonl", concurrency=8)
    answers = records(tmp_path / "a.jsonl")
    assert {answer["id"] for answer in answers} == {*(f"q{n}" for n in range(50)), 7}
    assert len(answers) == 51
    first = answers[0]
    assert first["text"]
    assert first["finish_reason"] == "stop"
    assert cast("dict[str, int]", first["usage"])["output_tokens"] > 0
    assert (first["error"], first["tool_calls"], first["attempts"]) == (None, [], 1)
    assert (batch.counters.answered, batch.counters.failed, batch.counters.running) == (51, 0, 0)
    assert batch.counters.output_tokens > 0
    assert not (tmp_path / "a.errors.jsonl").exists()


async def test_streamed_answers_are_the_same(provider: ms.Provider, tmp_path: Path) -> None:
    prompts = write(tmp_path / "p.jsonl", [line("a", "simulate: kind=mixed,calls=2,seed=1")])
    await run(provider, prompts, tmp_path / "a.jsonl")
    await run(provider, prompts, tmp_path / "b.jsonl", stream=True)
    (whole,), (streamed,) = records(tmp_path / "a.jsonl"), records(tmp_path / "b.jsonl")
    for name in ("text", "thinking", "finish_reason", "usage"):
        assert whole[name] == streamed[name]
    assert len(cast("list[object]", whole["tool_calls"])) == 2


async def test_no_more_calls_run_than_the_concurrency_allows(provider: ms.Provider, tmp_path: Path) -> None:
    prompts = write(tmp_path / "p.jsonl", [line(str(n), "simulate: delay=0.02") for n in range(30)])
    running = Running(goal=30)
    with Journal(tmp_path / "a.jsonl") as journal:
        async with ms.open_engine([provider], observer=running) as engine:
            await Batch(engine, journal, model, concurrency=5).run(read_lines(prompts))
    assert (running.most, running.started) == (5, 30)


async def test_failures_are_in_a_file_of_their_own_with_reasons(provider: ms.Provider, tmp_path: Path) -> None:
    prompts = write(
        tmp_path / "p.jsonl", [line("good"), line("bad", "simulate: fail=404"), line("cut", "simulate: cut=0")]
    )
    batch = await run(provider, prompts, tmp_path / "a.jsonl")
    assert [answer["id"] for answer in records(tmp_path / "a.jsonl")] == ["good"]
    failures = {failure["id"]: failure for failure in records(tmp_path / "a.errors.jsonl")}
    error = cast("dict[str, object]", failures["bad"]["error"])
    assert (error["category"], error["http_status"], error["retryable"]) == ("not_found", 404, False)
    assert failures["bad"]["line"] == 2
    assert cast("dict[str, object]", failures["cut"]["error"])["category"] == "network"
    assert batch.counters.failures == {"not_found": 1, "network": 1}


async def test_invalid_lines_are_reported_and_others_are_sent(provider: ms.Provider, tmp_path: Path) -> None:
    lines = ["{oh", line("a"), line("a"), line("b", temprature=1), line("c", max_output_tokens=-1), line("d")]
    batch = await run(provider, write(tmp_path / "p.jsonl", lines), tmp_path / "a.jsonl")
    assert {answer["id"] for answer in records(tmp_path / "a.jsonl")} == {"a", "d"}
    messages = [cast("dict[str, str]", failure["error"])["message"] for failure in records(tmp_path / "a.errors.jsonl")]
    assert messages[0].startswith("p.jsonl line 1: malformed JSON")
    assert messages[1] == "p.jsonl line 3: id: 'a' is used twice, first on line 2"
    assert messages[2].startswith(
        "p.jsonl line 4: temprature: is not a member of this form; did you mean 'temperature'"
    )
    assert messages[3].startswith(
        "p.jsonl line 5: max_output_tokens: must be a whole number of at least 0 and at most 63 bits, not -1"
    )
    assert batch.counters.invalid == 4


async def test_a_second_run_sends_only_unanswered_lines(provider: ms.Provider, tmp_path: Path) -> None:
    answers = tmp_path / "a.jsonl"
    await run(provider, write(tmp_path / "p.jsonl", [line("a"), line("b", "simulate: fail=404")]), answers)
    before = answers.read_bytes()
    prompts = write(tmp_path / "p.jsonl", [line("a"), line("b", "simulate: fail=404"), line("c")])
    batch = await run(provider, prompts, answers)
    assert (batch.counters.answered, batch.counters.answered_before, batch.counters.failed_before) == (1, 1, 1)
    assert answers.read_bytes().startswith(before)
    assert [answer["id"] for answer in records(answers)] == ["a", "c"]
    assert [failure["id"] for failure in records(tmp_path / "a.errors.jsonl")] == ["b"]


async def test_failed_lines_are_sent_again_with_retry_failed(provider: ms.Provider, tmp_path: Path) -> None:
    answers, errors = tmp_path / "a.jsonl", tmp_path / "a.errors.jsonl"
    lines = [line("a", "simulate: fail=500,times=1,key=again"), line("b", "simulate: fail=404")]
    prompts = write(tmp_path / "p.jsonl", lines)
    await run(provider, prompts, answers)
    assert {failure["id"] for failure in records(errors)} == {"a", "b"}
    batch = await run(provider, prompts, answers, retry_failed=True)
    assert (batch.counters.answered, batch.counters.failed) == (1, 1)
    assert [answer["id"] for answer in records(answers)] == ["a"]
    assert [failure["id"] for failure in records(errors)] == ["b"]


async def test_a_corrected_line_leaves_no_failure_record(provider: ms.Provider, tmp_path: Path) -> None:
    answers = tmp_path / "a.jsonl"
    await run(provider, write(tmp_path / "p.jsonl", ["{oh"]), answers)
    assert len(records(tmp_path / "a.errors.jsonl")) == 1
    await run(provider, write(tmp_path / "p.jsonl", [line("a")]), answers)
    assert not (tmp_path / "a.errors.jsonl").exists()


async def test_a_stopped_batch_records_only_its_answers(provider: ms.Provider, tmp_path: Path) -> None:
    quick = [line(f"q{n}") for n in range(5)]
    prompts = write(tmp_path / "p.jsonl", [*quick, *(line(f"s{n}", "simulate: delay=60") for n in range(20))])
    answers = tmp_path / "a.jsonl"
    running = Running(goal=15)  # the five quick ones, and as many slow ones as may run
    with Journal(answers) as journal:
        async with ms.open_engine([provider], observer=running) as engine, trio.open_nursery() as nursery:
            batch = Batch(engine, journal, model, concurrency=10)

            async def stop() -> None:
                await running.reached.wait()
                assert (batch.counters.answered, batch.counters.running) == (5, 10)
                batch.stop()

            nursery.start_soon(stop)
            await batch.run(read_lines(prompts))
    assert len(records(answers)) == 5
    assert not (tmp_path / "a.errors.jsonl").exists()
    assert batch.counters.running == 0


async def test_a_refused_key_ends_the_batch_without_failed_lines(provider: ms.Provider, tmp_path: Path) -> None:
    prompts = write(tmp_path / "p.jsonl", [line(str(n), "simulate: fail=401") for n in range(500)])
    with pytest.raises(BatchError, match="the key was refused"):
        await run(provider, prompts, tmp_path / "a.jsonl", concurrency=4)
    assert not (tmp_path / "a.errors.jsonl").exists()


async def test_an_exhausted_quota_ends_the_batch(provider: ms.Provider, tmp_path: Path) -> None:
    lines = [line(str(n), "simulate: fail=429,code=insufficient_quota") for n in range(500)]
    with pytest.raises(BatchError, match="the quota is exhausted"):
        await run(provider, write(tmp_path / "p.jsonl", lines), tmp_path / "a.jsonl", concurrency=4)
    assert len(records(tmp_path / "a.errors.jsonl")) < 20


# --- the files ---


def test_an_incomplete_last_line_is_repaired(tmp_path: Path) -> None:
    whole = b'{"id":"a","text":"x"}\n'
    last = '{"id":"b","text":"naïve {\\"}"}\n'.encode()
    for cut in range(len(last) + 1):
        path = tmp_path / f"{cut}.jsonl"
        path.write_bytes(whole + last[:cut])
        with Journal(path) as journal:
            complete = cut >= len(last) - 1  # only the line's end is missing
            assert set(journal.answered) == ({"a", "b"} if complete else {"a"})
        assert path.read_bytes() == whole + (last if complete else b"")


def test_an_incomplete_line_longer_than_a_read_is_repaired(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"id":"a"}\n{"id":"' + b"b" * 200_000)
    with Journal(path) as journal:
        assert set(journal.answered) == {"a"}
    assert path.read_bytes() == b'{"id":"a"}\n'


def test_an_incomplete_failure_record_is_repaired(tmp_path: Path) -> None:
    (tmp_path / "a.errors.jsonl").write_bytes(b'{"id":"a","error":{}}\n{"id":"b","err')
    with Journal(tmp_path / "a.jsonl") as journal:
        assert set(journal.failed) == {"a"}


def test_a_file_of_another_program_is_refused_and_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(b"milk\neggs\n")
    with pytest.raises(JournalError, match=r"notes\.txt line 1 was not written by a batch"), Journal(path):
        raise AssertionError
    assert path.read_bytes() == b"milk\neggs\n"


def test_two_batches_cannot_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with Journal(path), pytest.raises(JournalError, match="another batch is writing this file"), Journal(path):
        raise AssertionError
    with Journal(path):
        pass


def test_the_error_names_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"cannot write .*No such file"), Journal(tmp_path / "nowhere" / "a.jsonl"):
        raise AssertionError


# --- traffic control ---


def failing_first(failures: int, status: str = "429 Too Many Requests") -> Fault:
    failure = failing(status, "Rate limit reached")
    return lambda server: failure(server) if server.sent <= failures else None


def target(peer: Peer, name: str = "sim") -> ms.OpenAIChat:
    return ms.OpenAIChat("k", peer.url, name=name, profile="openai-chat")


async def test_a_declared_limit_paces_a_batch(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    prompts = write(tmp_path / "p.jsonl", [line(str(n), model="m") for n in range(21)])
    server = Server("sim")
    traffic = ms.Traffic(rates={"*": ms.RateLimit(requests_per_second=2)})
    async with open_peer(server.serve) as peer:
        batch = await run(target(peer), prompts, tmp_path / "a.jsonl", traffic=traffic, concurrency=50)
    assert batch.counters.answered == 21
    assert server.at[-1] - server.at[0] == pytest.approx(9.5, abs=0.2)  # two at once, then two in each second


async def test_refusals_are_no_attempts_of_a_line(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    prompts = write(tmp_path / "p.jsonl", [line(str(n), model="m") for n in range(100)])
    server = Server("sim", fault=failing_first(15))
    async with open_peer(server.serve) as peer:
        batch = await run(target(peer), prompts, tmp_path / "a.jsonl", traffic=ms.Traffic())
    assert (batch.counters.answered, batch.counters.failed) == (100, 0)
    assert len(server.at) == 115


async def test_waiting_lines_are_counted(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    prompts = write(tmp_path / "p.jsonl", [line(str(n), model="m") for n in range(20)])
    server = Server("sim", seconds=1.0)
    traffic = ms.Traffic(rates={"*": ms.RateLimit(requests_per_minute=3)})
    async with open_peer(server.serve) as peer, ms.open_engine([target(peer)], traffic=traffic) as engine:
        with Journal(tmp_path / "a.jsonl") as journal:
            batch = Batch(engine, journal, model, concurrency=10)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(batch.run, read_lines(prompts))
                while batch.counters.running < 10:  # a thread reads the file, and no time passes meanwhile
                    await trio.lowlevel.checkpoint()
                await trio.testing.wait_all_tasks_blocked()
                batch.count_waiting()
                assert (batch.counters.running, batch.counters.waiting) == (10, 7)
                batch.stop()
        batch.count_waiting()
        assert (batch.counters.running, batch.counters.waiting) == (0, 0)


async def test_lines_larger_than_a_limit_fail_alone(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    large = [line(f"large {n}", "word " * 500, model="m") for n in range(30)]
    prompts = write(tmp_path / "p.jsonl", [*large, line("small", model="m")])
    server = Server("sim")
    traffic = ms.Traffic(rates={"*": ms.RateLimit(tokens_per_minute=400)})
    async with open_peer(server.serve) as peer:
        batch = await run(target(peer), prompts, tmp_path / "a.jsonl", traffic=traffic)
    assert (batch.counters.answered, batch.counters.failures) == (1, {"rate_limit": 30})
    assert "larger than the whole limit" in str(records(tmp_path / "a.errors.jsonl")[0]["error"])


async def test_an_answers_record_names_the_target_that_answered(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    one, two = Server("one", fault=failing_first(1, "503 Service Unavailable")), Server("two")
    route = ms.Route("fast", ["one/m", "two/n"])
    asked: list[str] = []

    def price(request: ms.Request, response: ms.Response) -> Cost | Unpriced:
        asked.append(request.model)
        return Unpriced("none")

    prompts = write(tmp_path / "p.jsonl", [line("a")])
    async with (
        open_peer(one.serve) as first,
        open_peer(two.serve) as second,
        ms.open_engine([target(first, "one"), target(second, "two")], traffic=ms.Traffic(routes=[route])) as engine,
    ):
        with Journal(tmp_path / "a.jsonl") as journal:
            batch = Batch(engine, journal, lambda named: "fast", provider="one", price=price)
            await batch.run(read_lines(prompts))
    (record,) = records(tmp_path / "a.jsonl")
    assert (record["provider"], record["attempts"]) == ("two", 2)
    assert asked == ["two/n"]


# --- memory ---


class StubEngine:
    """An engine that answers at once, so that only the batch's own memory is measured."""

    def start_request(self, request: ms.Request, on_completion: Callable[[ms.Completion], object]) -> object:
        response = ms.Response([ms.Text("yes")], ms.FinishReason.STOP)
        completion = ms.Completion(success=True, http_status=200, response=response, attempts=1)
        trio.lowlevel.current_trio_token().run_sync_soon(on_completion, completion)
        return object()


@pytest.mark.parametrize("count", [3_000, pytest.param(50_000, marks=pytest.mark.soak)])
async def test_any_number_of_lines_needs_bounded_memory(count: int, tmp_path: Path) -> None:
    padding = "x" * 5000

    async def lines() -> AsyncGenerator[list[tuple[int, bytes]], None]:
        for first in range(1, count + 1, 50):
            yield [(n, json.dumps(line(f"question-{n}", padding)).encode()) for n in range(first, first + 50)]

    with Journal(tmp_path / "a.jsonl") as journal:
        batch = Batch(cast("Engine", StubEngine()), journal, model, concurrency=200)
        tracemalloc.start()
        try:
            await batch.run(lines())
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert batch.counters.answered == count
    # Of the 5 KB of each line only the id is kept, besides the two hundred lines that run.
    assert peak < 6 * 2**20 + count * 300


# --- cost ---


def cent(request: ms.Request, response: ms.Response) -> Cost | Unpriced:
    """Price every answer at one cent, except tool calls."""
    if response.tool_calls:
        return Unpriced("tools have no price")
    zero = Decimal(0)
    return Cost("USD", Decimal("0.01"), zero, zero, zero, zero, Decimal("0.01"), request.model, "mill")


async def test_answers_have_their_cost_and_counters_the_sum(provider: ms.Provider, tmp_path: Path) -> None:
    lines = [line(str(n)) for n in range(3)] + [line("tool", "simulate: kind=tools"), line("bad", "simulate: fail=404")]
    batch = await run(provider, write(tmp_path / "p.jsonl", lines), tmp_path / "a.jsonl", price=cent)
    costs = {answer["id"]: answer["cost"] for answer in records(tmp_path / "a.jsonl")}
    assert costs == {**{id: {"currency": "USD", "total": 0.01} for id in "012"}, "tool": None}
    counters = batch.counters
    assert (counters.cost, counters.unpriced, counters.unpriced_reason) == (
        {"USD": Decimal("0.03")},
        1,
        "tools have no price",
    )


async def test_a_failing_price_list_loses_no_answer(provider: ms.Provider, tmp_path: Path) -> None:
    def broken(request: ms.Request, response: ms.Response) -> Cost | Unpriced:
        raise KeyError("no such thing")

    batch = await run(provider, write(tmp_path / "p.jsonl", [line("a")]), tmp_path / "a.jsonl", price=broken)
    (answer,) = records(tmp_path / "a.jsonl")
    assert (answer["id"], answer["cost"]) == ("a", None)
    assert (batch.counters.answered, batch.counters.unpriced) == (1, 1)
    assert "no such thing" in batch.counters.unpriced_reason
