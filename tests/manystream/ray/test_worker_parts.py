"""A worker without its thread: how long an exchange waits, what ends the wait, and the options of its batch."""

from __future__ import annotations

import math
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

import manystream as ms
from manystream.batch import BatchError, Counters
from manystream.batch.lines import ModelChoice
from manystream.cost import CostExtraError, PriceTable, price
from manystream.engine.traffic.budgets.leases import LeasedBudget
from manystream.providers.errors import InvalidRequestError
from manystream.ray import worker
from manystream.ray.exchange import Answer, Offer, Reply, Row
from manystream.ray.rate_leases import LeaseRequest
from manystream.ray.worker import Worker, WorkerOptions

PROVIDER = ms.OpenAIChat("key", "http://127.0.0.1:9/v1", name="sim")
CHOICE = ModelChoice("sim", default="m")


def options(concurrency: int = 6, **changes: Any) -> WorkerOptions:
    return WorkerOptions((PROVIDER,), CHOICE, concurrency, 3, True, "p.jsonl", **changes)


def rows(count: int) -> tuple[Row, ...]:
    return tuple(Row(f"q{number}", number, b"{}") for number in range(1, count + 1))


def answer(number: int) -> Answer:
    return Answer(f"q{number}", b"{}", failed=False)


class Condition:
    """A condition of a worker. It notes what is waited for, and how often it is notified."""

    def __init__(self, log: list[tuple[str, float, bool]], name: str) -> None:
        self.log = log
        self.name = name
        self.notified = 0

    def wait_for(self, predicate: Callable[[], bool], seconds: float) -> bool:
        self.log.append((self.name, round(seconds, 9), predicate()))
        return predicate()

    def notify_all(self) -> None:
        self.notified += 1


class Part:
    """A worker whose thread does not run. waits: the waits of its exchanges, each with whether its end was reached."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, given: WorkerOptions) -> None:
        started: list[dict[str, object]] = []

        def thread(**how: object) -> SimpleNamespace:
            started.append(how)
            return SimpleNamespace(start=lambda: None, join=lambda: None)

        with monkeypatch.context() as patch:
            patch.setattr(threading, "Thread", thread)
            self.worker: Any = Worker(given, lambda: self.now)
        ((self.run, daemon),) = [(how["target"], how["daemon"]) for how in started]
        assert daemon is True
        self.waits: list[tuple[str, float, bool]] = []
        for name in ("first", "failed", "urgent"):
            setattr(self.worker, f"_{name}", Condition(self.waits, name))

    now = 10.0

    def exchange(self, offer: Offer) -> tuple[str, ...]:
        """Exchange, and return the ids of the answers."""
        self.waits.clear()
        return tuple(str(each.id) for each in self.worker.exchange(offer).reply.answers)

    def notified(self) -> tuple[int, int, int]:
        found = tuple(getattr(self.worker, f"_{name}") for name in ("first", "failed", "urgent"))
        counts = tuple(condition.notified for condition in found)
        for condition in found:
            condition.notified = 0
        return counts[0], counts[1], counts[2]


@pytest.fixture
def part(monkeypatch: pytest.MonkeyPatch) -> Part:
    return Part(monkeypatch, options())


IDLE = [("first", 1.0, True), ("failed", 0.04, False), ("urgent", 0.06, False)]


def test_an_exchange_of_an_idle_worker_gathers_for_a_tenth(part: Part) -> None:
    assert part.exchange(Offer(1, ())) == ()
    assert part.waits == IDLE


def test_an_exchange_waits_a_second_for_a_first_answer(part: Part) -> None:
    part.exchange(Offer(1, rows(2)))
    assert part.waits == [("first", 1.0, False)], "rows wait to start"
    part.worker._rows.clear()
    part.worker._counters.running = 1
    part.exchange(Offer(2, ()))
    assert part.waits == [("first", 1.0, False)], "a call runs"
    part.worker._add(answer(1))
    assert part.exchange(Offer(3, ())) == ("q1",)
    assert part.waits == IDLE


def test_a_call_that_needs_more_of_the_budget_ends_the_wait_once(part: Part) -> None:
    part.worker._holder = SimpleNamespace(report=lambda: "what it needs")
    part.worker._counters.running = 1
    part.worker._need()
    assert (part.worker._amounts, part.notified()) == ("what it needs", (1, 0, 0))
    assert part.worker.exchange(Offer(1, ())).amounts is None, "what came with it is not in use yet"
    assert part.waits == IDLE
    part.waits.clear()
    part.worker._in_use = 2
    assert part.worker.exchange(Offer(2, ())).amounts == "what it needs"
    assert part.waits == IDLE
    part.exchange(Offer(3, ()))
    assert part.waits == [("first", 1.0, False)]


def test_answers_that_hold_calls_back_return_at_once(part: Part) -> None:
    """Six calls at a time and one more: seven calls and unconfirmed answers together start no further call."""
    part.exchange(Offer(1, rows(9)))
    part.worker._counters.running = 5
    part.worker._exchange.receive(Offer(2, ()), 10.0)
    part.worker._add(answer(1))
    assert part.notified() == (1, 0, 0)
    part.worker._add(answer(2))
    assert part.notified() == (0, 0, 1), "it is not the first, and now there are seven"
    part.exchange(Offer(2, ()))
    assert part.waits == [("first", 1.0, True), ("failed", 0.04, False), ("urgent", 0.06, True)]
    part.worker._counters.running = 4
    part.worker._add(answer(3))
    assert part.notified() == (0, 0, 1), "answers that were sent are unconfirmed, too"
    part.exchange(Offer(3, ()))
    part.worker._rows.clear()
    part.worker._add(answer(4))
    part.worker._add(answer(5))
    assert part.notified() == (0, 0, 0), "no row waits for it"


def test_a_reply_has_the_figures_of_its_time(part: Part) -> None:
    counters = Counters(lines=3, running=1, cost={"USD": Decimal(1)}, failures={"server": 2})
    part.worker._counters = counters
    part.worker._request, part.worker._in_use = LeaseRequest("e", 9.0, (), ()), 1
    part.worker._add(answer(1))
    reply = part.worker.exchange(Offer(1, ()))
    counters.cost["USD"] = Decimal(2)
    counters.lines = 4
    assert reply.counters == Counters(lines=3, running=1, cost={"USD": Decimal(1)})
    assert reply.reply == Reply(1, (answer(1),), 10.0)
    assert (reply.failure, reply.final, reply.request, reply.amounts) == (
        "",
        False,
        LeaseRequest("e", 10.0, (), ()),
        None,
    )
    assert part.worker.exchange(Offer(2, ())).request is None, "its lease may not be in use yet"


async def test_an_exchange_brings_its_lease_and_part_to_the_thread(part: Part) -> None:
    log: list[tuple[object, ...]] = []
    part.worker._rates = SimpleNamespace(
        receive=lambda lease, until, now, engine_now: log.append(("lease", lease, until, now, engine_now)),
        ask=lambda now, engine_now: LeaseRequest("e", now, (), ()),
    )
    part.worker._holder = SimpleNamespace(receive=lambda of: log.append(("part", of)), report=lambda: len(log))
    part.worker._batch = SimpleNamespace(count_waiting=lambda: log.append(("waiting",)))
    part.worker._token = trio.lowlevel.current_trio_token()
    wakeup, started = part.worker._wakeup, trio.current_time()
    part.exchange(Offer(1, ()))
    await wait_all_tasks_blocked()
    part.now = 11.0
    part.exchange(Offer(2, (), 10.5, "new", "more"))  # type: ignore[arg-type]
    await wait_all_tasks_blocked()
    assert [entry[:4] for entry in log] == [
        ("lease", None, -math.inf, 10.0), ("waiting",), ("lease", "new", 13.5, 11.0), ("part", "more"), ("waiting",),
    ]  # fmt: skip
    assert all(started <= entry[4] <= trio.current_time() for entry in log if entry[0] == "lease")  # type: ignore[operator]
    assert (part.worker._amounts, part.worker._request, wakeup.is_set()) == (4, LeaseRequest("e", 11.0, (), ()), True)


# --- the batch ---


class Batch:
    """The batch that a worker opens. It reads all rows."""

    made: Batch

    def __init__(self, engine: object, collector: Any, choose_model: object, **how: object) -> None:
        Batch.made = self
        self.given = (engine, choose_model)
        self.collector = collector
        self.how = how
        self.counters = Counters()
        self.lines: list[tuple[int, bytes]] = []
        self.is_stopped = False
        self.failure: Exception | None = None

    async def run(self, lines: AsyncGenerator[list[tuple[int, bytes]], None]) -> None:
        async for some in lines:
            self.lines += some
        if self.failure is not None:
            raise self.failure

    def stop(self) -> None:
        self.is_stopped = True

    def count_waiting(self) -> None:
        pass


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, dict[str, Any]]]:
    """Return the engines that are opened: providers and options."""
    opened: list[tuple[object, dict[str, Any]]] = []

    @asynccontextmanager
    async def open_engine(providers: object, **how: Any) -> AsyncIterator[str]:
        opened.append((providers, how))
        yield "engine"

    monkeypatch.setattr(worker, "open_engine", open_engine)
    monkeypatch.setattr(worker, "Batch", Batch)
    return opened


Engines = list[tuple[object, dict[str, Any]]]


def test_a_batch_has_the_options_of_the_command(part: Part, engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    part.worker._ended = True
    part.run()
    ((providers, how),) = engines
    traffic = how.pop("traffic")
    assert (providers, how) == (
        (PROVIDER,),
        {"retry": ms.Retry(max_attempts=3, cap=60.0), "proxy": None, "monitor": False},
    )
    assert (list(traffic.rates), traffic.rates["*"].concurrent, traffic.routes, traffic.adaptive) == (
        ["*"], 6, (), True,
    )  # fmt: skip
    assert (traffic.budgets, traffic.price) == ((), None)
    made = Batch.made
    cost = made.how.pop("price")
    assert made.given == ("engine", CHOICE)
    how = {"concurrency": 6, "stream": True, "source": "p.jsonl", "provider": "sim", "budget": None, "options": {}}
    assert made.how == how
    assert (cost is not None, made.is_stopped) == (True, True)
    assert (made.collector.answered, made.collector.failed) == (set(), set())
    assert made.collector.answers_path == made.collector.errors_path == Path("the rows of this worker")
    assert (part.worker._failure, part.worker._final, part.worker._token) == ("its batch has ended", False, None)
    assert part.notified() == (1, 1, 1)


def test_a_worker_uses_what_its_options_say(monkeypatch: pytest.MonkeyPatch, engines: Engines) -> None:
    route = ms.Route("best", ["sim/m"])
    limit = ms.RateLimit(requests_per_minute=60)
    table = PriceTable({"m": {"input": 1, "output": 1}})
    given = options(
        routes=(route,), limit=limit, adaptive=False, outage=60.0, proxy="", monitor=True, priced=False, budgeted=True,
        prices=table,
    )  # fmt: skip
    part = Part(monkeypatch, given)
    part.worker._ended = True
    part.run()
    ((_, how),) = engines
    traffic = how["traffic"]
    assert (how["proxy"], how["monitor"]) == ("", True)
    assert (traffic.rates["*"].requests_per_minute, traffic.rates["*"].concurrent) == (60, None)
    assert (traffic.routes, traffic.adaptive, traffic.outage) == ((route,), False, 60.0)
    assert (traffic.price.func, traffic.price.keywords) == (price, {"table": table})
    (budget,) = traffic.budgets
    assert isinstance(budget, LeasedBudget)
    assert budget.lease.members[0].on_need is not None
    assert Batch.made.how["price"] is None
    batch_budget: Any = Batch.made.how["budget"]
    assert (batch_budget.usd, batch_budget.unpaid_in_a_row) == (math.inf, math.inf)
    assert batch_budget.price is traffic.price


@pytest.mark.parametrize(
    ("error", "failure", "final"),
    [
        (BatchError("the key was refused"), "the key was refused", True),
        (InvalidRequestError("proxy", "must be a URL"), "proxy: must be a URL", True),
        (ZeroDivisionError("by zero"), "its batch ended with ZeroDivisionError('by zero')", False),
    ],
)
def test_the_end_of_a_batch_is_the_worker_s_failure(
    error: Exception, failure: str, final: bool, part: Part, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(Batch):
        async def run(self, lines: AsyncGenerator[list[tuple[int, bytes]], None]) -> None:
            raise error

    monkeypatch.setattr(worker, "Batch", Failing)
    part.run()
    assert (part.worker._failure, part.worker._final) == (failure, final)


def test_prices_that_are_missing_end_the_worker(monkeypatch: pytest.MonkeyPatch, engines: Engines) -> None:
    def missing() -> None:
        raise CostExtraError("prices need the extra `cost`")

    monkeypatch.setattr(worker, "check_installed", missing)
    part = Part(monkeypatch, options(budgeted=True))
    part.run()
    assert part.worker._failure == "--budget, on a worker's machine: prices need the extra `cost`"
    assert (part.worker._final, engines) == (True, [])


# --- records ---


def test_records_leave_as_answers(part: Part) -> None:
    found: list[Answer] = []
    budget: Any = SimpleNamespace(of_line=lambda id, dollars: 0.25 if id == "b" else dollars)
    for budgeted in (None, budget):
        collector = worker._Collector(found.append, budgeted)
        collector.record_answer("a", {"id": "a", "text": "é", "spent_usd": 0.5})
        collector.record_failure({"id": "b", "error": {}, "spent_usd": 0.5})
        collector.record_failure({"id": 3, "error": {}, "spent_usd": None})
        collector.leave_unpaid("c")
    records = [
        ("a", '{"id":"a","text":"é","spent_usd":0.5}'.encode(), False),
        ("b", b'{"id":"b","error":{},"spent_usd":0.5}', True),
        (3, b'{"id":3,"error":{},"spent_usd":null}', True),
        ("c", b"", True),
    ]
    assert [(each.id, each.record, each.failed) for each in found] == records * 2
    assert [each.dollars for each in found] == [0.0, 0.0, 0.0, 0.0, 0.5, 0.25, 0.0, 0.0]
