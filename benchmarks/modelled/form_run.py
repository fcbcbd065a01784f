"""Many calls at once against the simulator's limits in simulated time: the forms of `benchmarks.traffic`.

The server is the simulator's own `Limiter`. Its responses are read as the engine reads them: headers and error body by
the dialect. Only sockets and the clock are simulated, so a run takes a moment and always ends the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from manystream.engine.traffic.limits.limiter import LimiterState
from manystream.engine.traffic.queue.fair_queue import Permit
from manystream.providers.catalog.registry import DIALECTS
from manystream.providers.limits.charging import charging_of
from manystream.providers.limits.limit_reports import reader_of
from manystream.providers.limits.quota_report import QuotaReport
from manystream.simulator import limiter
from manystream.simulator.limit import read_limit
from manystream.simulator.prompt import APIError
from manystream.simulator.service import GEMINI, WIRES

from ..limit_forms import MODEL, Form, Work
from .events import Events
from .sender import Sender

ERROR_BODIES = {wire.name: wire.error_body for wire in (*WIRES.values(), GEMINI)}
"""Dialect → the function that writes the body of an error."""

UNIX_TIME = 1_700_000_000.0
"""Unix seconds at the start of a run."""

HORIZON = 3600.0


@dataclass(slots=True)
class FormOutcome:
    """What a client received.

    accepted_at: the times at which the server accepted a request.
    refused_at: the times of the refusals.
    ended_at: the time of the last answer.
    """

    accepted_at: list[float] = field(default_factory=list[float])
    refused_at: list[float] = field(default_factory=list[float])
    ended_at: float = 0.0

    @property
    def refused(self) -> float:
        """The refused requests, as a part of all requests."""
        return len(self.refused_at) / max(1, len(self.accepted_at) + len(self.refused_at))


class FormRun:
    """Calls that start at once, with the engine's traffic control, which knows no limit in advance.

    round_trip: seconds from client to server and back.
    streamed: whether the answers are streams.
    """

    def __init__(self, form: Form, calls: int, round_trip: float, *, streamed: bool = True) -> None:
        self.outcome = FormOutcome()
        self._form, self._one_way, self._streamed = form, round_trip / 2, streamed
        self._works = form.works(calls)
        self._events = Events()
        self._scope = LimiterState("model", charging_of(form.profile, form.dialect))
        self._server = limiter.Limiter([read_limit(form.limit())])
        self._read_report = reader_of(form.dialect)
        self._sender = Sender(self._events, self._scope, self._send)

    @property
    def used(self) -> float:
        """What the server has accepted, as a part of what it would have accepted until the last call."""
        return self._form.used(self._works, self.outcome.accepted_at[-1])

    def run(self) -> FormOutcome:
        """Run until the last call has ended."""
        for second, factor in self._form.factors[1:]:
            self._events.at(second, self._change, factor)
        for work in self._works:
            self._scope.queue.add(Permit(float(work.input_tokens), float(work.max_output), owner=work))
        self._sender.pump()
        self._events.run(HORIZON)
        assert len(self.outcome.accepted_at) == len(self._works)
        return self.outcome

    def _change(self, factor: float) -> None:
        now = self._events.now
        self._server.change([read_limit(self._form.limit(factor))], now, UNIX_TIME + now)

    def _send(self, permit: Permit) -> None:
        self._events.at(self._events.now + self._one_way, self._at_server, permit)

    def _at_server(self, permit: Permit) -> None:
        now, work = self._events.now, _work(permit)
        usage = limiter.Usage(
            model=MODEL,
            input_tokens=work.input_tokens,
            cached_tokens=0,
            output_tokens=work.output_tokens,
            max_tokens=work.max_output,
            seconds=work.seconds,
            streamed=self._streamed,
        )
        try:
            accepted = self._server.accept(self._form.dialect, "key", usage, now, UNIX_TIME + now)
        except APIError as failure:
            self.outcome.refused_at.append(now)
            self._events.at(now + self._one_way, self._refused, permit, failure)
            return
        assert accepted is not None
        self.outcome.accepted_at.append(now)
        ends, headers = now + work.seconds, dict(accepted.headers)
        self._events.at((now if self._streamed else ends) + self._one_way, self._confirmed, permit, headers)
        self._events.at(ends, self._end_at_server, accepted)
        self._events.at(ends + self._one_way, self._ended, permit)

    def _confirmed(self, permit: Permit, headers: dict[str, str]) -> None:
        now = self._events.now
        report = self._read_report(self._form.profile, headers, UNIX_TIME + now, None, b"")
        self._scope.confirm(permit, report, now)
        self._sender.pump()

    def _refused(self, permit: Permit, failure: APIError) -> None:
        now = self._events.now
        self._scope.refuse(permit, self._report(failure, UNIX_TIME + now), now)
        self._sender.pump()

    def _report(self, failure: APIError, unix_time: float) -> QuotaReport:
        dialect, headers = self._form.dialect, dict(failure.headers)
        body = ERROR_BODIES[dialect](failure)
        error = DIALECTS[dialect].decode_error(failure.status, headers, body, unix_time)
        return self._read_report(self._form.profile, headers, unix_time, error, body)

    def _end_at_server(self, accepted: limiter.Ticket) -> None:
        self._server.end(accepted, self._events.now, whole=True)

    def _ended(self, permit: Permit) -> None:
        now, work = self._events.now, _work(permit)
        usage = self._scope.quota.settled(work.input_tokens, 0.0, work.output_tokens)
        self._scope.settle(permit, usage, now, tokens=float(work.input_tokens + work.output_tokens))
        self.outcome.ended_at = now
        self._sender.pump()


def _work(permit: Permit) -> Work:
    assert isinstance(permit.owner, Work)
    return permit.owner
