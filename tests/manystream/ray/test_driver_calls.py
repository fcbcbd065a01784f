"""The driver's calls one by one with their times, its figures, records and budget, and its last replies."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

import manystream as ms
from manystream.batch import BatchBudget, BatchError, Counters, Journal
from manystream.batch.line_file import JournalError
from manystream.engine.traffic.budgets.leases import UNITS_PER_USD
from manystream.ray import driver
from manystream.ray.cluster import ClusterError, Died, Unreachable
from manystream.ray.driver import ClusterBatch
from manystream.ray.exchange import Row
from manystream.ray.rate_leases import Lease, LeaseRequest
from manystream.ray.shared_budget import AmountPart, AmountReport, SharedBudget
from tests.manystream.ray.scripted_cluster import (
    TICK,
    Events,
    ScriptedCluster,
    answer,
    failure,
    lines,
    reply,
    run,
    unpaid,
)
from tests.support.batches import records, unrecorded

Made = list[tuple[ClusterBatch, ScriptedCluster]]


async def test_ready_workers_get_one_and_a_half_of_their_calls(tmp_path: Path, mock_clock: MockClock) -> None:
    batch, cluster = await run(tmp_path, count=7, concurrency=(2, 1))
    assert cluster.log == [
        (0, "start", 0, 2, None), (0, "call", 0, 1), (0, "start", 1, 1, None), (0, "call", 1, 1),
        (TICK, "call", 0, 2, "q1", "q2", "q3"), (TICK, "call", 1, 2, "q4"), (2 * TICK, "call", 0, 3, "q5", "q6"),
        (2 * TICK, "call", 1, 3, "q7"), (3 * TICK, "kill", 0), (3 * TICK, "kill", 1),
    ]  # fmt: skip
    assert [offer.confirms for _, offer in cluster.all_offers] == [None, None, 0.5, 0.5, 1.0, 1.0]
    assert cluster.all_offers[3][1].rows == (
        Row("q4", 4, b'{"id": "q4", "messages": [{"role": "user", "content": "hello"}]}'),
    )
    assert records(tmp_path / "a.jsonl") == [{"id": f"q{number}", "text": "yes"} for number in range(1, 8)]
    assert (batch.counters.lines, batch.counters.answered) == (7, 7)


async def test_a_worker_without_rows_is_called_each_second(tmp_path: Path, mock_clock: MockClock) -> None:
    _, cluster = await run(tmp_path, input=lines(3, every=1.5), concurrency=(2, 1))
    assert cluster.log[4:] == [
        (1 / 16, "call", 0, 2, "q1"), (17 / 16, "call", 1, 2), (18 / 16, "call", 0, 3), (24 / 16, "call", 0, 4, "q2"),
        (34 / 16, "call", 1, 3), (41 / 16, "call", 0, 5), (48 / 16, "call", 0, 6, "q3"), (51 / 16, "call", 1, 4),
        (65 / 16, "call", 0, 7), (68 / 16, "call", 1, 5), (72 / 16, "kill", 0), (72 / 16, "kill", 1),
    ]  # fmt: skip


async def test_a_worker_with_rows_is_called_again_at_once(tmp_path: Path, mock_clock: MockClock) -> None:
    def happen(cluster: ScriptedCluster) -> Events:
        offers, cluster.offers = cluster.offers, []
        answers = [answer("q1")] if cluster.ticks == 4 else []
        return [reply(worker, offer.seq, *answers) for worker, offer in offers]

    _, cluster = await run(tmp_path, happen, count=1)
    assert cluster.log[1:] == [
        (0, "call", 0, 1), (1 / 16, "call", 0, 2, "q1"), (2 / 16, "call", 0, 3), (3 / 16, "call", 0, 4),
        (4 / 16, "kill", 0),
    ]  # fmt: skip


async def test_a_call_that_failed_is_repeated_after_a_quarter_second(tmp_path: Path, mock_clock: MockClock) -> None:
    def happen(cluster: ScriptedCluster) -> Events:
        if cluster.ticks == 2:
            cluster.offers.clear()
            return [Unreachable(0)]
        return cluster.answer_all()

    _, cluster = await run(tmp_path, happen, count=1)
    assert cluster.log[1:] == [
        (0, "call", 0, 1), (1 / 16, "call", 0, 2, "q1"), (6 / 16, "call", 0, 2, "q1"), (7 / 16, "kill", 0),
    ]  # fmt: skip


async def test_a_silent_worker_is_given_up_after_five_seconds(tmp_path: Path, mock_clock: MockClock) -> None:
    def happen(cluster: ScriptedCluster) -> Events:
        if cluster.ticks == 1:
            return cluster.answer_all()
        if cluster.ticks < 83:
            return []
        if cluster.ticks == 83:  # the new worker is ready, and gets the rows again
            return [reply(1, 1)]
        if cluster.ticks == 84:  # the former one answers a row nevertheless
            return [reply(0, 2, answer("q1"))]
        if cluster.ticks == 85:
            return [reply(1, 2, answer("q1"), answer("q2"))]
        raise AssertionError

    batch, cluster = await run(tmp_path, happen, count=2)
    assert cluster.log[1:] == [
        (0, "call", 0, 1), (1 / 16, "call", 0, 2, "q1", "q2"), (81 / 16, "kill", 0), (81 / 16, "start", 1, 2, 0),
        (81 / 16, "call", 1, 1), (83 / 16, "call", 1, 2, "q1", "q2"), (85 / 16, "kill", 1),
    ]  # fmt: skip
    counters = batch.counters
    assert (counters.lost, counters.asked_again, counters.late, counters.answered) == (1, 2, 1, 2)
    assert [record["id"] for record in records(tmp_path / "a.jsonl")] == ["q1", "q2"]


def half(cluster: ScriptedCluster) -> Events:
    """Answer as worker 0, which has its row answered after 950 seconds. No other worker ever replies."""
    offers, cluster.offers = cluster.offers, []
    answers = [answer("q1")] if cluster.now > 950 else []
    return [reply(0, offer.seq, *answers) for worker, offer in offers if worker == 0]


async def test_a_worker_that_finds_no_place_gets_more_and_more_time(tmp_path: Path, mock_clock: MockClock) -> None:
    batch, cluster = await run(tmp_path, half, count=1, concurrency=(2, 1), tick=1.0)
    assert [entry for entry in cluster.log if entry[1] != "call"] == [
        (0, "start", 0, 2, None), (0, "start", 1, 1, None), (20, "kill", 1), (20, "start", 2, 1, None),
        (60, "kill", 2), (60, "start", 3, 1, None), (140, "kill", 3), (140, "start", 4, 1, None), (300, "kill", 4),
        (300, "start", 5, 1, None), (620, "kill", 5), (620, "start", 6, 1, None), (940, "kill", 6),
        (940, "start", 7, 1, None), (951, "kill", 0), (951, "kill", 7),
    ]  # fmt: skip
    assert (batch.counters.lost, batch.counters.asked_again) == (0, 0)


async def test_without_any_place_the_batch_ends_after_20_seconds(tmp_path: Path, mock_clock: MockClock) -> None:
    made: Made = []
    with pytest.raises(ClusterError) as caught:
        await run(tmp_path, lambda cluster: [], count=1, concurrency=(2, 1), made=made)
    assert str(caught.value) == "no worker has started: one has no place"
    assert made[0][1].log[-2:] == [(20, "kill", 0), (20, "kill", 1)]


async def test_one_of_two_that_starts_late_is_waited_for(tmp_path: Path, mock_clock: MockClock) -> None:
    """Worker 0 is reported dead, so its successor has more time than worker 1, which has none left."""

    def happen(cluster: ScriptedCluster) -> Events:
        if cluster.ticks == 1:
            return [Died(0, "its node has died")]
        if cluster.now < 30:
            return []
        return [event for event in cluster.answer_all() if event.worker == 2]

    batch, cluster = await run(tmp_path, happen, count=1, concurrency=(2, 1))
    assert [entry for entry in cluster.log if entry[1] == "start"] == [
        (0, "start", 0, 2, None), (0, "start", 1, 1, None), (1 / 16, "start", 2, 2, None), (20, "start", 3, 1, None),
    ]  # fmt: skip
    assert batch.counters.lost == 0


@pytest.mark.parametrize("answered", [False, True])
async def test_workers_lost_in_a_row_end_the_batch(answered: bool, tmp_path: Path, mock_clock: MockClock) -> None:
    """Two places: the seventh loss ends the batch. An answer begins the count again."""
    dead: list[int] = []

    def happen(cluster: ScriptedCluster) -> Events:
        events = cluster.answer_ready()
        worker = next((worker for worker, offer in cluster.offers if worker not in dead), None)
        if worker is not None:
            if answered and len(dead) == 1:
                events.append(reply(worker, 2, answer(cluster.rows_at(worker)[0].id)))
            dead.append(worker)
            events.append(Died(worker, f"out of memory {len(dead)}"))
        return events

    with pytest.raises(BatchError) as caught:
        await run(tmp_path, happen, count=40, concurrency=(2, 2))
    reason = f"out of memory {8 if answered else 7}"
    assert str(caught.value) == f"7 workers were lost in a row, without an answer between them: {reason}"


async def test_a_failed_worker_is_replaced_and_a_final_one_ends_all(tmp_path: Path, mock_clock: MockClock) -> None:
    def happen(cluster: ScriptedCluster) -> Events:
        if cluster.ticks == 2:
            return [reply(0, 2, answer("q1"), failure="its batch has ended")]
        if cluster.ticks == 4:
            return [reply(1, 2, answer("q2"), failure="the key was refused", final=True)]
        return cluster.answer_ready()

    made: Made = []
    with pytest.raises(BatchError) as caught:
        await run(tmp_path, happen, count=3, made=made)
    assert str(caught.value) == "the key was refused"
    batch, cluster = made[0]
    assert cluster.log[2:] == [
        (1 / 16, "call", 0, 2, "q1", "q2", "q3"), (2 / 16, "kill", 0), (2 / 16, "start", 1, 2, 0),
        (2 / 16, "call", 1, 1), (3 / 16, "call", 1, 2, "q2", "q3"), (4 / 16, "kill", 1),
    ]  # fmt: skip
    assert [record["id"] for record in records(tmp_path / "a.jsonl")] == ["q1", "q2"]
    assert (batch.counters.answered, batch.counters.lost, batch.counters.asked_again) == (2, 1, 2)


# --- leases ---


async def test_leases_go_to_a_worker_with_its_next_exchange(tmp_path: Path, mock_clock: MockClock) -> None:
    """For 4 seconds, only leases of an earlier driver are renewed."""
    held = {0: 2.5, 1: 0.0}

    def happen(cluster: ScriptedCluster) -> Events:
        offers, cluster.offers = cluster.offers, []
        events: Events = []
        for worker, offer in offers:
            request = LeaseRequest(f"w{worker}", cluster.now, (held[worker],), (4.0,))
            answers = [answer(row.id) for row in cluster.rows_at(worker)] if cluster.now > 4.1 else []
            events.append(reply(worker, offer.seq, *answers, request=request))
        return events

    limit = ms.RateLimit(requests_per_second=10)
    _, cluster = await run(tmp_path, happen, count=2, concurrency=(1, 1), limit=limit)
    first = [(worker, offer.lease) for worker, offer in cluster.all_offers[:4]]
    assert first == [
        (0, None), (1, None), (0, Lease(TICK, (2.5,))), (1, Lease(TICK, (0.0,))),
    ]  # fmt: skip
    last = [(worker, offer.lease.rates if offer.lease is not None else ()) for worker, offer in cluster.all_offers[-2:]]
    assert last == [(0, (5.0,)), (1, (5.0,))]


# --- the input ---


async def test_the_input_is_read_16_mib_ahead(tmp_path: Path, mock_clock: MockClock) -> None:
    assert driver.AHEAD_BYTES == 16 * 1024 * 1024
    read: list[tuple[int, int]] = []
    piece = b"x" * (6 * 1024 * 1024)

    async def pieces() -> AsyncGenerator[list[tuple[int, bytes]], None]:
        for number in range(1, 7):
            read.append((number, input.taken_pieces))
            yield [(number, piece)]

    class Input(driver._Input):
        taken_pieces = 0

    input = Input()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(input.read, pieces())
        await trio.testing.wait_all_tasks_blocked()
        assert len(read) == 3, "12 MiB are not enough, and 18 are"
        while (some := input.take()) is not None:
            assert some[0][1] is piece
            input.taken_pieces += 1
            assert not input.ended
            await trio.testing.wait_all_tasks_blocked()
    assert read == [(1, 0), (2, 0), (3, 0), (4, 1), (5, 2), (6, 3)]
    assert (input.ended, input.failure, input._bytes) == (True, None, 0)


async def test_exactly_16_mib_are_read_on(mock_clock: MockClock) -> None:
    read: list[int] = []

    async def pieces() -> AsyncGenerator[list[tuple[int, bytes]], None]:
        for number in range(1, 4):
            read.append(number)
            yield [(number, b"x" * (8 * 1024 * 1024))]

    input = driver._Input()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(input.read, pieces())
        await trio.testing.wait_all_tasks_blocked()
        assert read == [1, 2, 3]
        assert not input.ended
        nursery.cancel_scope.cancel()


async def test_an_input_that_breaks_has_its_lines_answered_first(tmp_path: Path, mock_clock: MockClock) -> None:
    async def broken() -> AsyncGenerator[list[tuple[int, bytes]], None]:
        async for some in lines(3):
            yield some
        raise OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output error"):
        await run(tmp_path, input=broken())
    assert [record["id"] for record in records(tmp_path / "a.jsonl")] == ["q1", "q2", "q3"]


async def test_a_batch_that_is_stopped_does_not_report_its_input(tmp_path: Path, mock_clock: MockClock) -> None:
    async def broken() -> AsyncGenerator[list[tuple[int, bytes]], None]:
        async for some in lines(3):
            yield some
        raise OSError(5, "Input/output error")

    def happen(cluster: ScriptedCluster) -> Events:
        if cluster.ticks == 2:
            made[0][0].stop()
        return cluster.answer_all() if cluster.ticks < 2 else []

    made: Made = []
    _, cluster = await run(tmp_path, happen, input=broken(), made=made)
    assert cluster.log[2:] == [(1 / 16, "call", 0, 2, "q1", "q2", "q3"), (2.125, "kill", 0)]
    assert cluster.ticks == 34, "it has waited 2 seconds for the last replies"


async def test_a_batch_that_is_stopped_does_not_wait_for_its_input(tmp_path: Path, mock_clock: MockClock) -> None:
    async def endless() -> AsyncGenerator[list[tuple[int, bytes]], None]:
        async for some in lines(1):
            yield some
        await trio.sleep_forever()

    def happen(cluster: ScriptedCluster) -> Events:
        if cluster.ticks == 4:
            made[0][0].stop()
        return cluster.answer_all()

    made: Made = []
    batch, cluster = await run(tmp_path, happen, input=endless(), made=made)
    assert (batch.counters.answered, cluster.log[-1]) == (1, (4 / 16, "kill", 0))


def script(*looks: Callable[[ScriptedCluster], Events]) -> Callable[[ScriptedCluster], Events]:
    """Return a script: the first look, the second and so on. The last one is repeated."""
    return lambda cluster: looks[min(cluster.ticks, len(looks)) - 1](cluster)


def events(*some: object) -> Callable[[ScriptedCluster], Events]:
    return lambda cluster: list(some)  # type: ignore[arg-type]


def ready(cluster: ScriptedCluster) -> Events:
    return cluster.answer_ready()


async def test_the_figures_of_all_workers_are_added(tmp_path: Path, mock_clock: MockClock) -> None:
    first = Counters(
        running=3, waiting=2, retries=1, input_tokens=10, output_tokens=20, unpriced=1, cost={"USD": Decimal("0.5")}
    )
    second = Counters(
        running=5, waiting=4, away=7.0, retries=2, input_tokens=30, output_tokens=40, unpriced=2,
        unpriced_reason="no price", cost={"USD": Decimal(1), "EUR": Decimal(2)},
    )  # fmt: skip
    more = replace(first, running=1, waiting=0, retries=5, input_tokens=17, output_tokens=22, unpriced=4)
    more = replace(more, unpriced_reason="another", cost={"USD": Decimal("0.75"), "EUR": Decimal(4)})
    seen: list[Counters] = []

    def look(*found: object) -> Callable[[ScriptedCluster], Events]:
        def happen(cluster: ScriptedCluster) -> Events:
            seen.append(replace(made[0][0].counters, cost=dict(made[0][0].counters.cost)))
            return list(found)  # type: ignore[arg-type]

        return happen

    made: Made = []
    await run(
        tmp_path,
        script(
            ready,
            look(reply(0, 2, counters=replace(first, away=8.0)), reply(1, 2, counters=second)),
            look(reply(0, 3, counters=replace(more))),
            look(Died(0, "it died")),
            look(reply(0, 4, counters=replace(more, running=9, waiting=9, away=9.0, retries=6))),
            look(reply(1, 3, *(answer(f"q{number}") for number in range(1, 5)), counters=Counters())),
        ),
        count=4,
        concurrency=(2, 1),
        made=made,
    )
    dollars = {"USD": Decimal("1.5"), "EUR": Decimal(2)}
    both = Counters(
        lines=4, running=8, retries=3, input_tokens=40, output_tokens=60, cost=dollars, unpriced=3,
        unpriced_reason="no price", waiting=6, away=8.0,
    )  # fmt: skip
    later = replace(both, running=6, away=7.0, waiting=4, retries=7, input_tokens=47, output_tokens=62, unpriced=6)
    later = replace(later, cost={"USD": Decimal("1.75"), "EUR": Decimal(6)})
    without = replace(later, running=5, waiting=4, lost=1, asked_again=3)
    assert seen[1:] == [both, later, without, replace(without, retries=8)]
    assert made[0][0].counters.running == 0


async def test_failures_are_counted_by_their_category(tmp_path: Path, mock_clock: MockClock) -> None:
    replies = [failure("q1"), failure("q2", "invalid_line"), failure("q3", "timeout")]
    batch, _ = await run(
        tmp_path, script(ready, events(reply(0, 2, *replies)), events(reply(0, 3, failure("q4")))), count=4,
        concurrency=(3,),
    )  # fmt: skip
    counters = batch.counters
    assert (counters.failed, counters.invalid, counters.answered) == (3, 1, 0)
    assert counters.failures == {"server": 2, "timeout": 1}
    assert records(tmp_path / "a.errors.jsonl") == [
        {"id": "q1", "error": {"category": "server"}}, {"id": "q2", "error": {"category": "invalid_line"}},
        {"id": "q3", "error": {"category": "timeout"}}, {"id": "q4", "error": {"category": "server"}},
    ]  # fmt: skip


async def test_a_line_that_is_no_request_is_refused_here(tmp_path: Path, mock_clock: MockClock) -> None:
    async def bad() -> AsyncGenerator[list[tuple[int, bytes]], None]:
        yield [(1, b"{}"), (2, b'{"id": "a"}'), (3, b'{"id": "a"}')]

    batch, cluster = await run(tmp_path, input=bad(), source="p.jsonl")
    assert records(tmp_path / "a.errors.jsonl") == [
        {"id": None, "line": 1, "error": {"category": "invalid_line",
        "message": "p.jsonl line 1: id: is missing; each line needs one, to find its answer and to resume the batch"}},
        {"id": "a", "line": 3, "error": {"category": "invalid_line",
        "message": "p.jsonl line 3: id: 'a' is used twice, first on line 2"}},
    ]  # fmt: skip
    assert [row.id for row in cluster.rows_at(0)] == ["a"]
    assert (batch.counters.lines, batch.counters.invalid, batch.counters.answered) == (3, 2, 1)


@pytest.mark.parametrize(
    ("error", "reason"),
    [(OSError(28, "No space left on device"), "No space left on device"), (JournalError("is not open"), "is not open")],
)
async def test_an_answer_that_cannot_be_written_ends_the_batch(
    error: Exception, reason: str, tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(Journal, "record_encoded", fail)
    made: Made = []
    with pytest.raises(BatchError) as caught:
        await run(tmp_path, count=1, made=made)
    assert str(caught.value) == f"cannot write {tmp_path / 'a.jsonl'} or a file beside it: {reason}"
    assert made[0][1].log[-1] == (TICK, "kill", 0)


# --- a batch that is stopped ---


def stop(made: Made, *some: object) -> Callable[[ScriptedCluster], Events]:
    def happen(cluster: ScriptedCluster) -> Events:
        made[0][0].stop()
        return list(some)  # type: ignore[arg-type]

    return happen


async def test_a_stopped_batch_waits_for_the_calls_that_are_open(tmp_path: Path, mock_clock: MockClock) -> None:
    made: Made = []
    looks = script(ready, stop(made), events(), events(reply(0, 2, answer("q1"))), events(reply(1, 2, answer("q4"))))
    batch, cluster = await run(tmp_path, looks, count=9, concurrency=(2, 2, 2), made=made)
    assert cluster.log[6:] == [
        (1 / 16, "call", 0, 2, "q1", "q2", "q3"), (1 / 16, "call", 1, 2, "q4", "q5", "q6"),
        (1 / 16, "call", 2, 2, "q7", "q8", "q9"), (34 / 16, "kill", 0), (34 / 16, "kill", 1), (34 / 16, "kill", 2),
    ]  # fmt: skip
    assert [record["id"] for record in records(tmp_path / "a.jsonl")] == ["q1", "q4"]
    assert (batch.counters.answered, batch.ledger.out) == (2, 7)


async def test_a_stopped_batch_ends_with_the_last_reply(tmp_path: Path, mock_clock: MockClock) -> None:
    """Worker 1 has not started yet. It has no answers, and is not waited for."""
    made: Made = []
    looks = script(events(reply(0, 1)), stop(made), events(reply(0, 2, answer("q1"))))
    _, cluster = await run(tmp_path, looks, count=2, concurrency=(2, 2), made=made)
    assert cluster.log[4:] == [(1 / 16, "call", 0, 2, "q1", "q2"), (3 / 16, "kill", 0), (3 / 16, "kill", 1)]


# --- a budget ---

CENT = UNITS_PER_USD // 100


def no_price(*arguments: object) -> float:
    raise AssertionError("no record needs a price")


def budget_of(folder: Path, usd: float) -> tuple[BatchBudget, Journal]:
    """Return a budget and the journal that was opened with it."""
    budget = BatchBudget(usd, no_price, ())
    return budget, Journal(folder / "a.jsonl", budget=budget)


async def run_paid(
    folder: Path, usd: float, *looks: Callable[[ScriptedCluster], Events], made: Made | None = None, **options: object
) -> tuple[ClusterBatch, ScriptedCluster]:
    budget, journal = budget_of(folder, usd)
    return await run(folder, script(*looks), budget=budget, journal=journal, made=made, **options)  # type: ignore[arg-type]


async def test_a_part_of_the_budget_goes_with_the_next_call(tmp_path: Path, mock_clock: MockClock) -> None:
    written: list[float | None] = []

    def look(*some: object) -> Callable[[ScriptedCluster], Events]:
        def happen(cluster: ScriptedCluster) -> Events:
            written.append(unrecorded(tmp_path / "a.jsonl"))
            return list(some)  # type: ignore[arg-type]

        return happen

    made: Made = []
    batch, cluster = await run_paid(
        tmp_path,
        1.0,
        look(reply(0, 1, amounts=AmountReport())),
        look(reply(0, 2, amounts=AmountReport(needed=10 * CENT, wanted=20 * CENT))),
        look(reply(0, 3, answer("q1", 0.04), amounts=AmountReport(20 * CENT, 4 * CENT))),
        look(reply(0, 4, failure("q2", dollars=0.03), amounts=AmountReport(20 * CENT, 7 * CENT))),
        count=2,
        made=made,
    )
    assert [offer.part for _, offer in cluster.all_offers] == [
        None, AmountPart(0, 100 * CENT), AmountPart(20 * CENT, 100 * CENT), AmountPart(20 * CENT, 100 * CENT),
    ]  # fmt: skip
    assert written == [None, None, pytest.approx(0.201), pytest.approx(0.161)], "it is written down before it is sent"
    counters = batch.counters
    assert (counters.budget, counters.spent, counters.lost_usd, counters.unpaid) == (1.0, 0.07, 0.0, 0)
    assert unrecorded(tmp_path / "a.jsonl") is None


async def test_a_row_says_what_it_has_cost_before(tmp_path: Path, mock_clock: MockClock) -> None:
    (tmp_path / "a.errors.jsonl").write_text(
        '{"id": "q1", "line": 1, "error": {"category": "server"}, "spent_usd": 0.25}\n', "utf-8"
    )
    batch, cluster = await run_paid(tmp_path, 1.0, ScriptedCluster.answer_all, count=2, retry_failed=True)
    assert [(row.id, row.spent) for row in cluster.rows_at(0)] == [("q1", 0.25), ("q2", 0.0)]
    assert (batch.counters.spent, batch.counters.failed_before) == (0.25, 0)


async def test_what_a_lost_worker_was_given_is_spent(tmp_path: Path, mock_clock: MockClock) -> None:
    made: Made = []
    batch, cluster = await run_paid(
        tmp_path,
        1.0,
        events(reply(0, 1)),
        events(reply(0, 2, amounts=AmountReport(needed=30 * CENT, wanted=30 * CENT))),
        events(Died(0, "its machine has died")),
        events(reply(1, 1, amounts=AmountReport(needed=10 * CENT, wanted=10 * CENT))),
        events(reply(1, 2, answer("q1", 0.05), answer("q2", 0.05), amounts=AmountReport(10 * CENT, 10 * CENT))),
        count=2,
        made=made,
    )
    assert cluster.all_offers[-1][1].part == AmountPart(10 * CENT, 70 * CENT)
    assert (batch.counters.spent, batch.counters.lost_usd) == (0.4, 0.3)
    assert unrecorded(tmp_path / "a.jsonl") == 0.3


async def test_the_late_answers_of_a_lost_worker_say_what_it_spent(tmp_path: Path, mock_clock: MockClock) -> None:
    """What it could not pay is asked again. When it has answered all its rows, it spends no more."""
    batch, cluster = await run_paid(
        tmp_path,
        1.0,
        events(reply(0, 1)),
        events(reply(0, 2, amounts=AmountReport(needed=30 * CENT, wanted=30 * CENT))),
        events(Died(0, "it is silent")),
        events(reply(0, 3, answer("q1", 0.12), unpaid("q2"), amounts=AmountReport(30 * CENT, 12 * CENT))),
        events(reply(1, 1)),
        events(reply(1, 2, answer("q2", 0.05), amounts=AmountReport(0, 5 * CENT))),
        count=2,
    )
    assert [row.id for row in cluster.rows_at(1)] == ["q2"]
    counters = batch.counters
    assert (counters.spent, counters.lost_usd, counters.unpaid, counters.late) == (0.17, 0.0, 0, 0)
    assert unrecorded(tmp_path / "a.jsonl") is None


async def test_a_stopped_batch_asks_workers_to_return_their_rest(tmp_path: Path, mock_clock: MockClock) -> None:
    made: Made = []
    batch, cluster = await run_paid(
        tmp_path,
        1.0,
        events(reply(0, 1, amounts=AmountReport(needed=30 * CENT, wanted=30 * CENT)), reply(1, 1)),
        stop(made, reply(0, 2, answer("q1", 0.05), amounts=AmountReport(30 * CENT, 5 * CENT, needed=9))),
        events(reply(0, 3, amounts=AmountReport(15 * CENT, 5 * CENT)), reply(1, 2)),
        events(reply(1, 3)),
        count=4,
        concurrency=(2, 2),
        made=made,
    )
    assert [(worker, offer.seq, offer.part) for worker, offer in cluster.all_offers[2:]] == [
        (0, 2, AmountPart(30 * CENT, 100 * CENT)), (1, 2, None),
        (0, 3, AmountPart(30 * CENT, 100 * CENT, recalled=True)), (1, 3, None),
    ]  # fmt: skip
    assert (cluster.now, batch.counters.spent) == (4 / 16, 0.05)
    assert unrecorded(tmp_path / "a.jsonl") == 0.1, "the row that is out at worker 0 may cost what it has not returned"


@pytest.mark.parametrize("name", ["write", "close"])
async def test_a_budget_that_cannot_be_written_ends_the_batch(
    name: str, tmp_path: Path, mock_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SharedBudget, name, fail)
    with pytest.raises(BatchError) as caught:
        await run_paid(tmp_path, 1.0, events(reply(0, 1, amounts=AmountReport())), ScriptedCluster.answer_all, count=1)
    assert str(caught.value) == f"cannot write {tmp_path / 'a.jsonl'} or a file beside it: No space left on device"


async def test_a_spent_budget_sends_nothing_that_waits(tmp_path: Path, mock_clock: MockClock) -> None:
    batch, cluster = await run_paid(
        tmp_path, 1.0, events(reply(0, 1)), events(reply(0, 2, *(unpaid(f"q{number}") for number in range(1, 11)))),
        events(reply(0, 3, *(answer(f"q{number}") for number in range(11, 16)))), input=lines(40), concurrency=(10,),
    )  # fmt: skip
    assert len(cluster.rows_at(0)) == 15
    assert (batch.counters.unpaid, batch.counters.answered, batch.counters.lines) == (10 + 25, 5, 40)
