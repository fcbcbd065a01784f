"""The figures of calls: what each moment of a call becomes, windows, tokens, objectives, and sums of processes."""

import pickle
from types import SimpleNamespace
from typing import Any, cast

import pytest

import manystream as ms
from manystream.bench.figures import Figures, Summary, summary_of
from manystream.bench.histogram import bucket_of, seconds_of
from manystream.bench.moments import CallRecord, NotingSocket, Wire

MS = 1_000_000
"""Nanoseconds of a millisecond."""


OK = ms.Completion(success=True, response=ms.Response(usage=ms.Usage(output_tokens=5)))


class Call:
    """A call whose request is sent at 1000 ms, and whose bytes arrive when the test says.

    due: when it was due, in milliseconds; None in a closed loop.
    begun: when it was started.
    """

    def __init__(self, figures: Figures, *, due: int | None = None, begun: int = 998) -> None:
        self.wire = Wire()
        self.sock = SimpleNamespace(sent=1000 * MS, first=0, arrived=0, more_segments=lambda: self.segments - 1)
        self.segments = 1
        self.record = CallRecord(figures, self.wire, begun * MS, None if due is None else due * MS)

    def receive(self, at: float, *events: ms.Event, late: float = 0.0, segments: int = 1) -> None:
        """Receive events with one read, whose bytes arrived at a time in milliseconds, and were read so much later.

        segments: the number of segments in which the bytes arrived.
        """
        arrived = int(at * MS)
        self.wire.delay, self.wire.left = int(late * 1000), None
        self.segments = segments
        self.sock.first = self.sock.first or arrived
        self.sock.arrived = self.wire.arrived = arrived
        self.wire.socket = cast("NotingSocket", self.sock)
        for event in events:
            self.record.on_event(event)

    def end(self, at: float, completion: ms.Completion = OK) -> None:
        self.receive(at)
        self.record.on_completion(completion)


def text(count: int = 1) -> list[ms.Event]:
    return [ms.TextDelta(0, "a")] * count


def milliseconds(figures: Figures, name: str) -> dict[float, int]:
    """Return the spans of a figure in milliseconds → their number."""
    return {round(seconds_of(bucket) * 1000, 1): count for bucket, count in figures.all_of(name).items()}


def measured(**options: Any) -> Figures:
    figures = Figures(**options)
    figures.open_windows(from_start=False)
    return figures


def test_each_figure_of_a_stream_has_its_moments() -> None:
    figures = measured()
    call = Call(figures)
    call.receive(1010, ms.Start("m", "id"))
    call.receive(1020, *text())
    call.receive(1050, *text(2))
    call.receive(1090, *text(), ms.Done(ms.FinishReason.STOP, "stop", ms.Usage()))
    call.end(1100)
    found = {name: milliseconds(figures, name) for name in ("ttfb", "ttft", "ttfo", "tpot", "itl", "e2el", "late")}
    assert found == {
        "ttfb": {10.0: 1}, "ttft": {20.0: 1}, "ttfo": {}, "tpot": {17.5: 1},
        "itl": {0.0: 1, 30.0: 1, 40.0: 1}, "e2el": {100.0: 1}, "late": {},
    }  # fmt: skip
    assert (figures.events, figures.ok, figures.unreported) == (6, 1, 0)


def test_an_open_loop_counts_from_the_time_a_call_was_due() -> None:
    figures = measured()
    call = Call(figures, due=960, begun=990)
    call.receive(1020, *text())
    call.receive(1040, *text())
    call.end(1040)
    assert milliseconds(figures, "ttft") == {60.0: 1}
    assert milliseconds(figures, "ttfb") == {60.0: 1}
    assert milliseconds(figures, "e2el") == {80.0: 1}
    assert milliseconds(figures, "tpot") == {5.0: 1}, "it begins with the first content"


def test_thinking_is_content_and_output_has_its_own_figure() -> None:
    figures = measured()
    call = Call(figures)
    call.receive(1020, ms.ThinkingDelta(0, "a"))
    call.receive(1030, ms.ThinkingDelta(0, "a"))
    call.receive(1070, *text())
    call.receive(1080, *text())
    call.end(1080)
    assert (milliseconds(figures, "ttft"), milliseconds(figures, "ttfo")) == ({20.0: 1}, {70.0: 1})
    assert milliseconds(figures, "itl") == {10.0: 2, 40.0: 1}


@pytest.mark.parametrize("event", [ms.Start("m", "id"), ms.ToolCallStart(0, "id", "name"), ms.ToolCallDone(0)])
def test_other_events_are_no_content(event: ms.Event) -> None:
    figures = measured()
    call = Call(figures)
    call.receive(1010, event, event)
    assert (figures.events, milliseconds(figures, "ttft"), milliseconds(figures, "itl")) == (2, {}, {})


def test_the_error_that_ends_a_stream_is_no_event() -> None:
    figures = measured()
    Call(figures).receive(1010, ms.ErrorEvent(ms.ProviderError("cut", category=ms.ErrorCategory.NETWORK)))
    assert figures.events == 0


def test_a_stream_of_one_event_has_no_time_per_token() -> None:
    figures = measured()
    call = Call(figures)
    call.receive(1020, *text())
    call.end(1020, ms.Completion(success=True, response=ms.Response(usage=ms.Usage(output_tokens=1))))
    assert (milliseconds(figures, "ttft"), milliseconds(figures, "tpot")) == ({20.0: 1}, {})
    assert figures.at_once == 0


@pytest.mark.parametrize("tokens", [300, None])
def test_an_answer_that_comes_at_once_has_no_time_per_token(tokens: int | None) -> None:
    """A gateway that buffers sends it so. A time of 0 would be false."""
    figures = measured()
    call = Call(figures)
    call.receive(1020, *text())
    call.end(1020, ms.Completion(success=True, response=ms.Response(usage=ms.Usage(output_tokens=tokens))))
    assert (milliseconds(figures, "tpot"), figures.at_once) == ({}, 1)
    other = measured()
    other.add(figures)
    assert other.at_once == 1


def test_an_unstreamed_call_has_a_first_byte_and_an_end() -> None:
    figures = measured()
    call = Call(figures)
    call.receive(1020)
    call.end(1050)
    found = {name: milliseconds(figures, name) for name in ("ttfb", "ttft", "tpot", "e2el")}
    assert found == {"ttfb": {20.0: 1}, "ttft": {}, "tpot": {}, "e2el": {50.0: 1}}


def test_failures_are_counted_without_cancelled_calls() -> None:
    figures = measured()
    for message, category in (("one", "server"), ("two", "network"), ("three", "server"), ("four", "cancelled")):
        error = ms.ProviderError(message, category=ms.ErrorCategory(category))
        Call(figures).end(1050, ms.Completion(success=False, error=error))
    assert (dict(figures.failures), figures.first_failure) == ({"server": 2, "network": 1}, "one")
    assert (figures.failures_total, figures.ok, milliseconds(figures, "e2el")) == (3, 0, {})


# Tokens.


def ended(figures: Figures, *, pieces: int, usage: ms.Usage) -> None:
    call = Call(figures)
    call.receive(1020, *text(pieces))
    call.end(1040, ms.Completion(success=True, response=ms.Response(usage=usage)))


def test_tokens_are_those_of_the_events_in_the_measured_time() -> None:
    figures = measured()
    ended(figures, pieces=4, usage=ms.Usage(output_tokens=6, thinking_tokens=2))
    Call(figures).receive(1020, *text(3))
    assert (figures.tokens, figures.unreported) == (14, 0)


def test_answers_without_a_count_are_estimated_by_their_contents() -> None:
    figures = measured()
    ended(figures, pieces=4, usage=ms.Usage())
    assert (figures.tokens, figures.unreported) == (4, 1)
    assert Figures().tokens is None


# Objectives.


@pytest.mark.parametrize(
    ("slo", "good"),
    [
        ({"ttft": 0.02, "e2el": 0.1}, 1),
        ({"ttft": 0.0199}, 0),
        ({"itl": 0.04}, 1),
        ({"itl": 0.039}, 0),
        ({"tpot": 0.015}, 1),
        ({"tpot": 0.0149}, 0),
        ({"ttfo": 0.001}, 1),
        ({}, 1),
    ],
)
def test_a_call_is_good_if_it_keeps_every_bound(slo: dict[str, float], good: int) -> None:
    figures = measured(slo=slo)
    call = Call(figures)
    call.receive(1020, *text(2))
    call.receive(1060, *text())
    call.receive(1080, *text(2))
    call.end(1100)
    assert figures.good == good


# Windows.


def test_only_the_measured_time_has_rates_gaps_and_events() -> None:
    figures = Figures()
    for span in range(5):
        if span == 1:
            figures.open_windows(from_start=False)
        elif span == 2:
            figures.next_window()
        elif span == 3:
            figures.close_windows()
        call = Call(figures)
        call.receive(1001 + span, *text())
        call.receive(1011 + span, *text())
        call.end(1020)
    assert (figures.ok, figures.measured_events) == (5, 4)
    assert milliseconds(figures, "ttft") == {1.0: 1, 2.0: 1, 3.0: 1, 4.0: 1, 5.0: 1}
    assert milliseconds(figures, "itl") == {10.0: 4}, "those after the measured time are of calls that were due in it"
    assert [sum(window.values()) for window in figures.histograms("ttft")] == [2, 3]
    assert [sum(window.values()) for window in figures.histograms("itl")] == [1, 3]


def test_a_ramp_that_started_all_calls_is_measured() -> None:
    figures = Figures()
    Call(figures).receive(1001, *text())
    figures.open_windows(from_start=True)
    Call(figures).receive(1002, *text())
    assert (figures.measured_events, len(figures.windows)) == (2, 1)
    assert milliseconds(figures, "ttft") == {1.0: 1, 2.0: 1}


def test_waits_cut_by_the_end_count_if_they_are_the_longest() -> None:
    figures = measured()
    for _ in range(3):
        call = Call(figures)
        call.receive(1010, *text())
        call.receive(1030, *text())
    figures.count_cut([("ttft", 5 * MS), ("ttft", 50 * MS), ("itl", 5 * MS), ("itl", 900 * MS)])
    assert (milliseconds(figures, "ttft"), milliseconds(figures, "itl")) == ({10.0: 3, 50.0: 1}, {20.0: 3, 899.8: 1})
    silent = measured()
    silent.count_cut([("ttft", 50 * MS)])
    assert milliseconds(silent, "ttft") == {}, "without any content there is nothing to compare with"


def test_the_summary_of_a_figure() -> None:
    windows = [{bucket_of(span * 1000): 1 for span in range(10 * window + 1, 10 * window + 11)} for window in range(10)]
    found = summary_of(windows)
    assert (found.count, found.p50, found.p90, found.p99, found.longest) == (
        100, *(pytest.approx(value, rel=0.001) for value in (0.05, 0.09, 0.099, 0.1)),
    )  # fmt: skip
    p50 = found.intervals[0]
    assert p50 is not None
    assert p50.low < 0.05 < p50.high
    assert summary_of([]) == summary_of([{}]) == Summary()


# Several processes.


def test_the_figures_of_processes_add_up() -> None:
    parts: list[Figures] = []
    for number in (1, 2):
        figures = Figures({"ttft": 0.001})
        figures.due = figures.started = number
        Call(figures).receive(1001, *text())
        figures.open_windows(from_start=False)
        for _ in range(number):
            call = Call(figures)
            call.receive(1000 + number, *text(3))
            call.end(1010)
            figures.next_window()
        Call(figures).end(
            1001, ms.Completion(success=False, error=ms.ProviderError(str(number), category=ms.ErrorCategory.SERVER))
        )
        figures.close_windows()
        parts.append(pickle.loads(pickle.dumps(figures)))
    total = Figures()
    for part in parts:
        total.add(part)
    assert (total.ok, total.good, total.failures_total, total.first_failure) == (3, 1, 2, "1")
    assert (total.due, total.started, total.measured_events, len(total.windows)) == (3, 3, 9, 3)
    assert milliseconds(total, "ttft") == {1.0: 3, 2.0: 2}
