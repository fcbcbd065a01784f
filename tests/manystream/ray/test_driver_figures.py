"""The driver's figures, its records, its part of a budget, and the last replies of a batch that is stopped."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from trio.testing import MockClock

from manystream.batch import BatchBudget, BatchError, Counters, Journal
from manystream.batch.line_file import JournalError
from manystream.engine.traffic.budgets.leases import UNITS_PER_USD, AmountReport, Gift
from manystream.ray.cluster import Died
from manystream.ray.driver import ClusterBatch
from manystream.ray.shared_budget import SharedBudget
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


async def test_a_gift_goes_to_a_worker_with_its_next_call(tmp_path: Path, mock_clock: MockClock) -> None:
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
        look(reply(0, 1, amounts=AmountReport("w0"))),
        look(reply(0, 2, amounts=AmountReport("w0", needed=10 * CENT, wanted=20 * CENT))),
        look(reply(0, 3, answer("q1", 0.04), amounts=AmountReport("w0", 20 * CENT, 4 * CENT))),
        look(reply(0, 4, failure("q2", dollars=0.03), amounts=AmountReport("w0", 20 * CENT, 7 * CENT))),
        count=2,
        made=made,
    )
    assert [offer.gift for _, offer in cluster.all_offers] == [
        None, Gift("w0", 0, 100 * CENT), Gift("w0", 20 * CENT, 100 * CENT), Gift("w0", 20 * CENT, 100 * CENT),
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
        events(reply(0, 2, amounts=AmountReport("w0", needed=30 * CENT, wanted=30 * CENT))),
        events(Died(0, "its machine has died")),
        events(reply(1, 1, amounts=AmountReport("w1", needed=10 * CENT, wanted=10 * CENT))),
        events(reply(1, 2, answer("q1", 0.05), answer("q2", 0.05), amounts=AmountReport("w1", 10 * CENT, 10 * CENT))),
        count=2,
        made=made,
    )
    assert cluster.all_offers[-1][1].gift == Gift("w1", 10 * CENT, 70 * CENT)
    assert (batch.counters.spent, batch.counters.lost_usd) == (0.4, 0.3)
    assert unrecorded(tmp_path / "a.jsonl") == 0.3


async def test_the_late_answers_of_a_lost_worker_say_what_it_spent(tmp_path: Path, mock_clock: MockClock) -> None:
    """What it could not pay is asked again. When it has answered all its rows, it spends no more."""
    batch, cluster = await run_paid(
        tmp_path,
        1.0,
        events(reply(0, 1)),
        events(reply(0, 2, amounts=AmountReport("w0", needed=30 * CENT, wanted=30 * CENT))),
        events(Died(0, "it is silent")),
        events(reply(0, 3, answer("q1", 0.12), unpaid("q2"), amounts=AmountReport("w0", 30 * CENT, 12 * CENT))),
        events(reply(1, 1)),
        events(reply(1, 2, answer("q2", 0.05), amounts=AmountReport("w1", 0, 5 * CENT))),
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
        events(reply(0, 1, amounts=AmountReport("w0", needed=30 * CENT, wanted=30 * CENT)), reply(1, 1)),
        stop(made, reply(0, 2, answer("q1", 0.05), amounts=AmountReport("w0", 30 * CENT, 5 * CENT, needed=9))),
        events(reply(0, 3, amounts=AmountReport("w0", 30 * CENT, 5 * CENT, returned=15 * CENT)), reply(1, 2)),
        events(reply(1, 3)),
        count=4,
        concurrency=(2, 2),
        made=made,
    )
    assert [(worker, offer.seq, offer.gift) for worker, offer in cluster.all_offers[2:]] == [
        (0, 2, Gift("w0", 30 * CENT, 100 * CENT)), (1, 2, None),
        (0, 3, Gift("w0", 30 * CENT, 100 * CENT, recalled=True)), (1, 3, None),
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
        await run_paid(
            tmp_path, 1.0, events(reply(0, 1, amounts=AmountReport("w0"))), ScriptedCluster.answer_all, count=1
        )
    assert str(caught.value) == f"cannot write {tmp_path / 'a.jsonl'} or a file beside it: No space left on device"


async def test_a_spent_budget_sends_nothing_that_waits(tmp_path: Path, mock_clock: MockClock) -> None:
    batch, cluster = await run_paid(
        tmp_path, 1.0, events(reply(0, 1)), events(reply(0, 2, *(unpaid(f"q{number}") for number in range(1, 11)))),
        events(reply(0, 3, *(answer(f"q{number}") for number in range(11, 16)))), input=lines(40), concurrency=(10,),
    )  # fmt: skip
    assert len(cluster.rows_at(0)) == 15
    assert (batch.counters.unpaid, batch.counters.answered, batch.counters.lines) == (10 + 25, 5, 40)
