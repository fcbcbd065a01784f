"""One call in traffic control, step by step: its waits by reason, its attempts, and what it gives back."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest

import manystream as ms
from manystream.engine.call.attempt import Attempt
from manystream.engine.call.next_step import Limits, Outlook
from manystream.engine.traffic.admission import Admission, Candidate
from manystream.engine.traffic.budgets.amounts import Amounts
from manystream.engine.traffic.budgets.budgets import Budgets, Need, Spending
from manystream.engine.traffic.limits.limiter import DeclaredLimit, Limiter, LimiterState
from manystream.engine.traffic.queue.fair_queue import Permit
from manystream.providers.limits.charging import charging_of
from manystream.providers.limits.limit_reports import reader_of
from manystream.providers.limits.quota_report import Refusal
from tests.engine.unit_runtime import Call, UnitRuntime

INF = math.inf


def lane(runtime: UnitRuntime, kind: str = "openai-chat", **rates: float) -> Limiter:
    limits = [DeclaredLimit("one", ms.RateLimit(**rates), 0.0)] if rates else []  # type: ignore[arg-type]
    scope = LimiterState("one/m", charging_of(kind), limits=limits)
    return Limiter(scope, cast(Any, runtime), kind, reader_of(kind), lambda limit, scope: None)


PREPARED = SimpleNamespace(provider=SimpleNamespace(name="one"), model="m", stream=True)


def admission(lane: Limiter, spending: Spending | None = None, need: Need | None = None) -> Admission:
    candidate = Candidate(10.0, 5, request=cast(Any, PREPARED), need=need)
    candidate.limiter = lane
    return Admission(candidate, spending)


def attempt(call: Call, *, sent: bool = True) -> Attempt:
    """The attempt of a call that was admitted, as admission control sees it."""
    return cast(Any, SimpleNamespace(sent=sent, headers={}, prepared=PREPARED, permit=call.permit))


def error(status: int = 503, *, code: str = "", body: bytes = b"", retryable: bool = True) -> ms.ProviderError:
    category = ms.ErrorCategory.RATE_LIMIT if status == 429 else ms.ErrorCategory.SERVER
    return ms.ProviderError(
        "it failed", category=category, http_status=status, provider_code=code, body=body, retryable=retryable
    )


LIMITED = error(429, code="rate_limit_exceeded")


def test_a_call_that_waits_for_nothing_is_sent_at_once() -> None:
    runtime, call = UnitRuntime(), Call()
    one = admission(lane(runtime))
    assert (one.target, one.attempt_records) == ("one/m", ())
    one.enter(cast(Any, call), INF, 0.0, again=False)
    assert call.reported == ["admitted"]
    assert (one.waited(0.0), one.waiting_for) == ({}, "")


def test_the_seconds_of_a_wait_are_told_apart() -> None:
    runtime, call = UnitRuntime(), Call()
    one_lane = lane(runtime, requests_per_minute=6)
    for _ in range(6):
        admission(one_lane).enter(cast(Any, Call()), INF, 0.0, again=False)
    one = admission(one_lane)
    one.enter(cast(Any, call), INF, 0.0, again=False)
    assert (call.reported, one.waiting_for) == ([], "declared requests_per_minute of one, 0 ahead, about 10 s")
    runtime.go_to(10.0)
    assert call.reported == ["admitted"]
    assert one.waited(10.0) == {"quota": 10.0}
    assert one.waited(12.5) == {"quota": 10.0, "connection": 2.5}


def test_each_attempt_is_recorded_with_its_seconds() -> None:
    runtime, call = UnitRuntime(), Call()
    one = admission(lane(runtime))
    runtime.loop.time = 100.0
    one.enter(cast(Any, call), INF, 100.0, again=False)
    runtime.loop.time = 103.0
    stale = error()
    one.resent(attempt(call), stale)
    runtime.loop.time = 104.0
    failure = error()
    assert one.failed(attempt(call), failure, left=3, may_wait=True) == Outlook(Limits.NONE, failure)
    assert failure.retryable
    one.enter(cast(Any, call), INF, 105.0, again=True)
    one.confirm(attempt(call))
    one.first_content()
    runtime.loop.time = 109.0
    response = ms.Response(usage=ms.Usage(7, 3))
    one.end(ms.Completion(True, response=response), attempt(call))
    one.end(ms.Completion(True, response=response), attempt(call))
    completion = ms.Completion(True)
    one.complete(completion)
    assert [
        (r.target, r.outcome, r.started, r.ended, r.error, r.usage, r.estimated) for r in completion.attempt_records
    ] == [
        ("one/m", "server", 0.0, 3.0, stale, None, False),
        ("one/m", "server", 3.0, 4.0, failure, None, False),
        ("one/m", "ok", 5.0, 9.0, None, ms.Usage(7, 3), False),
    ]
    assert (completion.cost, call.reported) == (None, ["admitted", "admitted"])


def test_a_refused_call_waits_again_and_is_no_try() -> None:
    runtime, call = UnitRuntime(), Call()
    one_lane = lane(runtime)
    one = admission(one_lane)
    one.enter(cast(Any, call), INF, 0.0, again=False)
    runtime.loop.time = 1.0
    assert one.failed(attempt(call), LIMITED, left=3, may_wait=True) == Outlook(Limits.WAIT, LIMITED, is_counted=False)
    assert (one.attempt_records[0].outcome, call.reported) == ("rate_limit", ["admitted"])
    runtime.tick()
    assert call.reported == ["admitted"]
    runtime.go_to(2.9)
    assert call.reported == ["admitted"]
    runtime.go_to(3.0)  # half a request per second was learned
    assert call.reported == ["admitted", "admitted"]
    assert one.waited(2.0) == {"quota": 2.0}


def test_a_call_that_ends_while_it_waits_leaves_the_queue() -> None:
    runtime, call = UnitRuntime(), Call()
    one_lane = lane(runtime, requests_per_minute=1)
    admission(one_lane).enter(cast(Any, Call()), INF, 0.0, again=False)
    one = admission(one_lane)
    one.enter(cast(Any, call), INF, 0.0, again=False)
    assert one_lane.state.queue.length == 1
    runtime.loop.time = 4.0
    one.end(None, attempt(call, sent=False))
    assert (one_lane.state.queue.length, one.attempt_records, one.waited(4.0)) == (0, (), {"quota": 4.0})
    runtime.go_to(100.0)
    assert call.reported == []


REFUSED = {
    "a limit": (LIMITED, Refusal.RATE, 1),
    "a failure": (error(), Refusal.NONE, 0),
    "no response": (error(0), Refusal.NONE, 0),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_failed_attempt_had_reserved_is_given_back(name: str) -> None:
    failure, expected, refused = REFUSED[name]
    runtime = UnitRuntime()
    one = lane(runtime, requests_per_minute=60)
    ticket = Permit(10.0, 5)
    ticket.owner = cast(Any, Call())
    one.enter(ticket, 0.0, again=False)
    assert one.state.statistics(0.0).running == 1
    assert one.fail(ticket, failure, {}, 0.0, sent=True, again=False) is expected
    statistics = one.state.statistics(0.0)
    assert (statistics.running, statistics.waiting, statistics.refused, statistics.sent) == (0, 0, refused, 1)
    unsent = Permit(10.0, 5)
    unsent.owner = cast(Any, Call())
    fresh = lane(runtime, requests_per_minute=60)
    fresh.enter(unsent, 0.0, again=False)
    assert fresh.fail(unsent, failure, {}, 0.0, sent=False, again=False) is Refusal.NONE
    figures = fresh.state.statistics(0.0)
    assert (figures.running, figures.refused, figures.unconfirmed, figures.held) == (0, 0, 0, 0.0)


# --- with budgets ---


def spending(runtime: UnitRuntime, *budgets: ms.Budget) -> tuple[Budgets, Need]:
    live = Budgets(tuple(budgets), None, cast(Any, runtime))
    provider = ms.OpenAIChat("k", "http://127.0.0.1:9/v1", name="one")
    return live, Need(provider, "m", None, Amounts(output_tokens=80, calls=1), 10)


def test_a_call_is_sent_when_a_budget_pays_for_it() -> None:
    runtime = UnitRuntime()
    live, need = spending(runtime, ms.Budget(output_tokens=100))
    one_lane = lane(runtime)
    first, second = Call(), Call()
    one, two = (admission(one_lane, spending=Spending(live), need=need) for _ in range(2))
    one.enter(cast(Any, first), INF, 0.0, again=False)
    two.enter(cast(Any, second), INF, 0.0, again=False)
    assert (first.reported, second.reported) == (["admitted"], [])
    assert two.waiting_for == "output_tokens of the engine's budget, reserved by 1 calls, 0 ahead"
    assert one_lane.state.statistics(0.0).running == 1
    runtime.loop.time = 5.0
    one.end(ms.Completion(True, response=ms.Response(usage=ms.Usage(10, 5))), attempt(first))
    runtime.tick()
    runtime.tick()
    assert second.reported == ["admitted"]
    assert two.waited(5.0) == {"budget": 5.0}
    (figures,) = live.statistics(5.0)
    assert (figures.spent.output_tokens, figures.reserved.output_tokens) == (5, 80)
    two.end(None, attempt(second, sent=False))
    assert live.statistics(5.0)[0].reserved == Amounts()
    assert two.attempt_records[0].usage is None


def test_a_call_that_no_budget_pays_for_is_rejected_at_once() -> None:
    runtime, call = UnitRuntime(), Call()
    live, need = spending(runtime, ms.Budget(output_tokens=50))
    one_lane = lane(runtime)
    one = admission(one_lane, spending=Spending(live), need=need)
    one.enter(cast(Any, call), INF, 0.0, again=False)
    (refused,) = call.reported
    assert isinstance(refused, ms.ProviderError)
    assert refused.category is ms.ErrorCategory.BUDGET
    assert (one_lane.state.queue.length, one_lane.state.running) == (0, 0)


def test_a_failed_attempt_pays_for_what_it_received() -> None:
    """A broken answer costs what was seen of it; an error response costs nothing but a call."""
    for failure, response, expected in (
        (error(0), ms.Response(content=[ms.Text("12345678")]), Amounts(0.0, 10.0, 2.0, 1.0)),
        (error(500), None, Amounts(calls=1.0)),
    ):
        runtime = UnitRuntime()
        live, need = spending(runtime, ms.Budget(output_tokens=100))
        one = admission(lane(runtime), spending=Spending(live), need=need)
        call = Call()
        one.enter(cast(Any, call), INF, 0.0, again=False)
        one.end(ms.Completion(False, response=response, error=failure), attempt(call))
        (figures,) = live.statistics(0.0)
        assert (figures.spent, figures.reserved) == (expected, Amounts())
        (record,) = one.attempt_records
        assert (record.outcome, record.estimated) == ("server", response is not None)
