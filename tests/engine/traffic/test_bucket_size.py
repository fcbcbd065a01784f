"""The size of a server's bucket, from the resets in its reports."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from benchmarks.modelled.events import Events
from manystream.engine.traffic.limits.bucket import BucketSize
from manystream.engine.traffic.limits.limiter import LimiterState
from manystream.engine.traffic.queue.fair_queue import Permit
from manystream.providers.limits.charging import charging_of
from manystream.providers.limits.limit_reports import reader_of
from manystream.providers.limits.quota_report import MINUTE, QuotaReport, Refusal, ReportedLimit, Unit
from manystream.simulator.limit import read_limit
from manystream.simulator.limiter import Limiter, Usage
from manystream.simulator.prompt import APIError

TRIP = 0.005


def report(remaining: float | None, reset: float | None, step: float = 0.001) -> ReportedLimit:
    return ReportedLimit("requests", Unit.REQUESTS, MINUTE, 600, remaining, reset, reset_step=step)


def size_after(*reports: ReportedLimit) -> float:
    size = BucketSize()
    for each in reports:
        size.read(each)
    return size.seconds


def test_the_reset_of_a_minute_shows_a_minute() -> None:
    assert size_after(report(600, 0), report(540, 6), report(300, 30)) == pytest.approx(60, rel=0.01)


def test_a_reset_that_rises_slowly_shows_a_small_bucket() -> None:
    assert size_after(report(594, 0.1), report(474, 2.1)) == pytest.approx(10, rel=0.01)


def test_a_moment_is_compared_with_the_time_of_its_request() -> None:
    """Answers that took 3 s and 1 s: the moments have come nearer meanwhile, or have passed."""
    size = BucketSize()
    first, second = (
        replace(report(remaining, reset), reset_is_moment=True) for remaining, reset in ((594, 0.1 - 3), (294, 5.1 - 1))
    )
    assert (size.read(first, 3), size.read(second, 1)) == (False, True)
    assert size.seconds == pytest.approx(10, rel=0.01)


def test_the_size_is_right_if_others_use_the_key() -> None:
    assert size_after(report(300, 5), report(30, 9.5)) == pytest.approx(10, rel=0.01)


def test_whole_seconds_give_an_upper_bound_that_falls() -> None:
    """The server rounds up."""
    reports = [report(540, 1, 1.0), report(420, 3, 1.0), report(60, 9, 1.0)]
    assert size_after(*reports[:2]) == pytest.approx(15)
    assert size_after(*reports) == pytest.approx(11.25)


@pytest.mark.parametrize(
    "reports",
    [
        [report(600, 50), report(500, 40), report(400, 30), report(600, 60), report(590, 59)],
        [report(500, 1), report(400, 2)],
        [report(500, 1), report(500, 20)],
        [report(None, 5), report(100, None), report(90, 5)],
        [report(100, 5), report(200, 15)],
    ],
    ids=["a window that ends", "too close together", "nothing used", "incomplete", "refilled"],
)
def test_other_resets_show_nothing(reports: list[ReportedLimit]) -> None:
    assert size_after(*reports) == math.inf


class Run:
    """Calls at once against the limits of the simulator, in simulated time.

    accepted: the number of accepted calls.
    refused: the number of refused requests.
    ended: the time of the last response.
    """

    def __init__(self, limit: str, calls: int) -> None:
        self.accepted = self.refused = 0
        self.ended = 0.0
        self._limiter = Limiter([read_limit(limit)])
        self._scope = LimiterState("openai/gpt-5", charging_of("openai-chat"))
        self._events = Events()
        self._read = reader_of("openai-chat")
        for _ in range(calls):
            self._scope.queue.add(Permit(100, 100))
        self._pump()
        self._events.run(600)

    def _pump(self) -> None:
        while isinstance(ticket := self._scope.admit(self._events.now), Permit):
            self._events.at(self._events.now + TRIP, self._arrive, ticket)
        if ticket < math.inf:
            self._events.at(ticket, self._pump)

    def _arrive(self, ticket: Permit) -> None:
        now = self._events.now
        usage = Usage(model="gpt-5", input_tokens=100, cached_tokens=0, output_tokens=10, max_tokens=100)
        try:
            accepted = self._limiter.accept("openai-chat", "key", usage, now, 1e9 + now)
        except APIError as error:
            self.refused += 1
            report = QuotaReport(self._report(error.headers).limits, Refusal.RATE, None, 0.1)
            self._events.at(now + TRIP, self._refuse, ticket, report)
            return
        assert accepted is not None
        self.accepted += 1
        self._events.at(now + TRIP, self._end, ticket, self._report(accepted.headers))

    def _report(self, headers: list[tuple[str, str]]) -> QuotaReport:
        return self._read("openai-chat", {name.lower(): value for name, value in headers}, 1e9, None, b"")

    def _refuse(self, ticket: Permit, report: QuotaReport) -> None:
        self._scope.refuse(ticket, report, self._events.now)
        self._pump()

    def _end(self, ticket: Permit, report: QuotaReport) -> None:
        self.ended = self._events.now
        self._scope.confirm(ticket, report, self.ended)
        self._scope.settle(ticket, None, self.ended)
        self._pump()


@pytest.mark.parametrize(
    "limit",
    ["requests-per-minute=1200 bucket=10", "requests-per-minute=1e6 tokens-per-minute=120000 bucket=10"],
    ids=["requests", "tokens"],
)
def test_a_burst_into_a_small_bucket_is_not_refused(limit: str) -> None:
    """The server holds ten seconds of its limit, 200 calls, and reports it as a part of the minute's number."""
    run = Run(limit, 600)
    assert run.accepted == 600
    assert run.refused <= 3
    assert run.ended <= 1.05 * (600 - 200) / 20
