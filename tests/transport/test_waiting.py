"""The waiters of the pool: what is reported to them, and which of their methods end them."""

import logging

import pytest

from manystream.transport.errors import Phase, TransportError
from manystream.transport.waiting import Host, PoolRequest, report_failure
from tests.transport.test_pool import A, Asker

EXHAUSTED = TransportError("no descriptor is left", phase=Phase.CONNECT, exhausted=True)


class Phases(Asker):
    def __init__(self) -> None:
        super().__init__()
        self.phases: list[Phase] = []

    def on_phase(self, phase: Phase) -> None:
        self.phases.append(phase)
        if phase is Phase.TLS:
            raise ValueError("a defect")


def test_a_request_reports_each_phase_of_its_dial() -> None:
    waiter = Phases()
    request = PoolRequest(waiter, Host(A), False)
    for phase in (Phase.DNS, Phase.CONNECT, Phase.PROXY, Phase.TLS):
        request.on_phase(phase)
    assert waiter.phases == [Phase.DNS, Phase.CONNECT, Phase.PROXY, Phase.TLS]
    assert repr(waiter.defect) == "ValueError('a defect')"
    request.waiter = None
    request.on_phase(Phase.SEND)
    assert waiter.phases[-1] is Phase.TLS


def test_a_waiter_learns_its_error_or_the_defect(caplog: pytest.LogCaptureFixture) -> None:
    waiter, defect = Asker(), ValueError("a defect")
    report_failure(waiter, EXHAUSTED)
    assert (waiter.error, waiter.defect) == (EXHAUSTED, None)
    report_failure(waiter, defect)
    assert (waiter.error, waiter.defect) == (EXHAUSTED, defect)
    assert caplog.record_tuples == [
        ("manystream.transport.pool", logging.ERROR, "dialling raised: a defect in manystream")
    ]


def test_a_waiter_that_raises_is_told_of_its_defect() -> None:
    class Raising(Asker):
        def on_connect_failure(self, error: TransportError) -> None:
            raise ValueError("a defect of the waiter")

    waiter = Raising()
    report_failure(waiter, EXHAUSTED)
    assert repr(waiter.defect) == "ValueError('a defect of the waiter')"
