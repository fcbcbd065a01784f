"""The driver's calls, one by one and with their times: when workers are called, repeated, given up and replaced."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

import manystream as ms
from manystream.batch import BatchError
from manystream.engine.traffic.limits.leases import Lease, LeaseNumber, LeaseRequest
from manystream.ray import driver
from manystream.ray.cluster import ClusterError, Died, Unreachable
from manystream.ray.driver import ClusterBatch
from manystream.ray.exchange import Row
from tests.manystream.ray.scripted_cluster import TICK, Events, ScriptedCluster, answer, lines, reply, run
from tests.support.batches import records

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
    held = {0: LeaseNumber(0, 7), 1: LeaseNumber()}

    def happen(cluster: ScriptedCluster) -> Events:
        offers, cluster.offers = cluster.offers, []
        events: Events = []
        for worker, offer in offers:
            request = LeaseRequest(f"w{worker}", cluster.now, held[worker], 2.5 if worker == 0 else 0.0, 4.0)
            answers = [answer(row.id) for row in cluster.rows_at(worker)] if cluster.now > 4.1 else []
            events.append(reply(worker, offer.seq, *answers, requests=(request,)))
        return events

    limit = ms.RateLimit(requests_per_second=10)
    _, cluster = await run(tmp_path, happen, count=2, concurrency=(1, 1), limit=limit)
    first = [(worker, offer.leases) for worker, offer in cluster.all_offers[:4]]
    assert first == [
        (0, ()), (1, ()), (0, (Lease(LeaseNumber(1, 1), TICK, 2.5, LeaseNumber(0, 7)),)),
        (1, (Lease(LeaseNumber(1, 2), TICK, 0.0, LeaseNumber()),)),
    ]  # fmt: skip
    last = [(worker, offer.leases[0].rate) for worker, offer in cluster.all_offers[-2:]]
    assert last == [(0, 5.0), (1, 5.0)]


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
