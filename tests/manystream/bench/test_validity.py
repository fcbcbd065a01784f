"""The verdict on a run: each rule, the largest valid load, and what the system reports of a process."""

import os
import sys
import time

import pytest

from manystream.bench.histogram import new_counts
from manystream.bench.validity import (
    Calibration,
    ClientFigures,
    Meter,
    combined,
    descriptor_limit,
    judge,
    open_descriptors,
    waited_seconds,
)
from tests.support.bench_results import QUIET, client


@pytest.mark.parametrize(
    ("found", "calibration", "reasons"),
    [
        (client(cpu=9.7), QUIET, ()),
        (client(cpu=9.8), QUIET, ("the client used 98% of its core: it was the bottleneck",)),
        (client(cpu=4.95, waited=5.0), QUIET,
         ("the client used 99% of its core: it was the bottleneck",
          "other processes kept the client from its core for 50% of the time")),
        (client(cpu=4.8, waited=5.0), QUIET, ()),
        (client(reads=0.135), QUIET, ()),
        (client(merged=0.005, loops=[0.003]), QUIET, ()),
        (client(merged=0.031, loops=[0.003]), QUIET,
         ("the client read late, and 3.1% of the events together with others: their times are unknown",)),
        (client(merged=0.75, loops=[0.0001] * 199 + [0.003]), QUIET, ()),  # bursts of the server, in several segments
        (client(merged=0.75, loops=[0.0001] * 98 + [0.003] * 2), QUIET,
         ("the client read late, and 2.0% of the events together with others: their times are unknown",)),
        (client(together=0.25, gap=0.0005, reads=0.0003), QUIET, ()),
        (client(together=0.4, gap=0.0005, reads=0.0002), QUIET, ()),  # late by less than half a gap
        (client(together=0.8, gap=0.0005, reads=0.0003), QUIET, ()),  # bursts, which a loop that is not late reads
        (client(together=0.8, gap=0.0005, reads=0.0003, loops=[0.0001] * 76 + [0.0003] * 24), QUIET, ()),
        (client(together=0.4, gap=0.0005, reads=0.0002, loops=[0.0003]), QUIET, ()),
        (client(together=0.4, gap=0.0005, reads=0.0003, loops=[0.0003]), QUIET,
         ("the client read 40.0% of the events together with others, and 0.50 ms lie between two",)),
        (client(together=0.75, gap=0.0021, reads=0.003), QUIET, ()),
        (client(together=0.75, gap=0.00005, reads=0.003), QUIET, ()),  # sent at once
        (client(starts=[0.0004] * 90 + [0.0049] * 10), QUIET, ()),
        (client(starts=[0.0004] * 90 + [0.006] * 10, waited=2.0), QUIET,
         ("the client started calls 0.4 ms (p50) and 6.0 ms (p99) late",
          "other processes kept the client from its core for 20% of the time")),
        (client(starts=[0.0006]), QUIET, ("the client started calls 0.6 ms (p50) and 0.6 ms (p99) late",)),
        (client(descriptors=949, descriptor_limit=1000), QUIET, ()),
        (client(descriptors=950, descriptor_limit=1000), QUIET, ("the client had 950 of 1,000 descriptors open",)),
        (client(descriptors=None, descriptor_limit=None), QUIET, ()),
        (client(loops=[0.0001] * 90 + [0.135] * 10), QUIET, ()),
        (client(reads=None, loops=[0.0001] * 99 + [0.135]), QUIET, ()),
        (client(reads=None, loops=[0.0001] * 98 + [0.135] * 2), QUIET, ("the client's loop was 135.0 ms late (p99)",)),
        (ClientFigures(10.0, 1.0, loop_lag=0.2), QUIET, ()),
        (client(), Calibration(0.0006, 0.001, 0.5),
         ("against the simulator the client added 0.60 ms (p50) and 1.00 ms (p99)",)),
        (client(), Calibration(0.0001, 0.006, 0.5),
         ("against the simulator the client added 0.10 ms (p50) and 6.00 ms (p99)",)),
        (client(), Calibration(0.0006, 0.006, 0.5, simulator_share=0.95), ()),
    ],
)  # fmt: skip
def test_each_rule_of_the_verdict(
    found: ClientFigures, calibration: Calibration | None, reasons: tuple[str, ...]
) -> None:
    verdict = judge([found], calibration, load=100.0, ok=5)
    assert (verdict.reasons, verdict.valid) == (reasons, not reasons)


def test_no_client_is_valid_that_was_not_calibrated() -> None:
    verdict = judge([client(cpu=2.5)], None, load=100.0, ok=5)
    assert (verdict.valid, verdict.largest) == (None, 300.0)
    assert verdict.reasons == ("this client was not calibrated",)
    assert judge([client(cpu=9.9)], None, load=100.0, ok=5).valid is False


def test_one_process_of_several_is_enough_to_be_invalid() -> None:
    verdict = judge([client(), client(cpu=9.9), client(cpu=9.8)], None, load=100.0, ok=5)
    assert verdict.reasons == ("the client used 99% of its core: it was the bottleneck",)


@pytest.mark.parametrize(
    ("found", "largest"),
    [
        (client(cpu=2.5), 300.0),
        (client(cpu=7.5), 100.0),
        (client(cpu=9.0), 100.0),
        (client(cpu=10.0), 75.0),
        (client(cpu=5.0, merged=0.05, loops=[0.003]), 75.0),
        (client(cpu=1.0, merged=0.05, loops=[0.003]), None),
        (client(cpu=0.0), None),
    ],
)
def test_the_largest_valid_load(found: ClientFigures, largest: float | None) -> None:
    """A busy client could do less; one that is late without being busy is not late because of its load."""
    verdict = judge([found], None, load=100.0, ok=5)
    assert verdict.largest == (None if largest is None else pytest.approx(largest))


def test_a_short_run_and_one_without_success_are_not_judged() -> None:
    short = judge([client(0.49, 0.49)], None, load=1.0, ok=5)
    assert (short.valid, short.reasons) == (None, ("the measured time was shorter than 0.5 s",))
    assert judge([client(cpu=10.0)], None, load=1.0, ok=0).reasons == ("no call succeeded",)


def test_processes_are_combined() -> None:
    total = combined(
        [
            client(9.0, 4.0, waited=1.0, descriptors=5, merged=0.1),
            client(10.0, 5.0, loop_lag=0.2, retransmits=3, together=0.2),
        ]
    )
    assert (total.seconds, total.cpu, total.waited, total.loop_lag) == (10.0, 9.0, 1.0, 0.2)
    assert (total.descriptors, total.descriptor_limit, total.retransmits) == (5, None, 3)
    assert (total.merged, total.together) == (0.1, 0.2)
    assert (sum(total.reads.values()), sum(total.starts.values())) == (200, 2)


# What the system reports.


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_linux_reports_waits_and_descriptors() -> None:
    assert (waited_seconds() or 0.0) >= 0.0
    before = open_descriptors()
    with open(os.devnull) as _:
        assert before is not None
        assert (open_descriptors() or 0) > 2
    limit = descriptor_limit()
    assert limit is None or limit > 10


def test_a_meter_measures_since_its_restart() -> None:
    meter = Meter()
    meter.loop_lag = 5.0
    time.thread_time()
    meter.restart()
    found = meter.figures(new_counts(), 3)
    assert (found.loop_lag, found.starts) == (0.0, {})
    assert found.cpu >= 0
    assert found.retransmits == (3 if sys.platform == "linux" else None)
