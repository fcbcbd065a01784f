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
from manystream.simulator.limits import limiter
from manystream.simulator.limits.limit import read_limit
from manystream.simulator.prompt import APIError
from manystream.simulator.service import GEMINI, WIRES

from ..limit_forms import BUCKET, DURATION, INPUT, MAX_OUTPUT, MODEL, OUTPUT, Form
from .events import Events
from .sender import Sender

ERROR_BODIES = {wire.name: wire.error_body for wire in (*WIRES.values(), GEMINI)}
"""Dialect → the function that writes the body of an error."""

UNIX_TIME = 1_700_000_000.0
"""Unix seconds at the start of a run."""

HORIZON = 3600.0

USAGE = limiter.Usage(
    model=MODEL,
    input_tokens=INPUT,
    cached_tokens=0,
    output_tokens=OUTPUT,
    max_tokens=MAX_OUTPUT,
    seconds=DURATION,
    streamed=True,
)


@dataclass(slots=True)
class FormOutcome:
    """What a client received.

    accepted: the requests that the server accepted.
    refused_at: the times of the refusals.
    ended_at: the time of the last answer.
    """

    accepted: int = 0
    refused_at: list[float] = field(default_factory=list[float])
    ended_at: float = 0.0

    @property
    def refused(self) -> float:
        """The refused requests, as a part of all requests."""
        return len(self.refused_at) / max(1, self.accepted + len(self.refused_at))


class FormRun:
    """Calls that start at once, with the engine's traffic control, which knows no limit in advance.

    round_trip: seconds from client to server and back.
    """

    def __init__(self, form: Form, calls: int, round_trip: float) -> None:
        self.outcome = FormOutcome()
        self._form, self._calls, self._one_way = form, calls, round_trip / 2
        self._events = Events()
        self._scope = LimiterState("model", charging_of(form.profile, form.dialect))
        self._server = limiter.Limiter([read_limit(f"{form.limit} bucket={BUCKET:g}")])
        self._read_report = reader_of(form.dialect)
        self._sender = Sender(self._events, self._scope, self._send)

    def run(self) -> FormOutcome:
        """Run until the last call has ended."""
        for _ in range(self._calls):
            self._scope.queue.add(Permit(float(INPUT), float(MAX_OUTPUT)))
        self._sender.pump()
        self._events.run(HORIZON)
        return self.outcome

    def _send(self, permit: Permit) -> None:
        self._events.at(self._events.now + self._one_way, self._at_server, permit)

    def _at_server(self, permit: Permit) -> None:
        now = self._events.now
        try:
            accepted = self._server.accept(self._form.dialect, "key", USAGE, now, UNIX_TIME + now)
        except APIError as failure:
            self.outcome.refused_at.append(now)
            self._events.at(now + self._one_way, self._refused, permit, failure)
            return
        assert accepted is not None
        self.outcome.accepted += 1
        self._events.at(now + self._one_way, self._confirmed, permit, dict(accepted.headers))
        self._events.at(now + DURATION, self._end_at_server, accepted)
        self._events.at(now + DURATION + self._one_way, self._ended, permit)

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

    def _end_at_server(self, accepted: limiter.Permit) -> None:
        self._server.end(accepted, self._events.now, whole=True)

    def _ended(self, permit: Permit) -> None:
        now = self._events.now
        usage = self._scope.quota.charger.settled(INPUT, 0.0, OUTPUT)
        self._scope.settle(permit, usage, now, tokens=float(INPUT + OUTPUT))
        self.outcome.ended_at = now
        self._sender.pump()
