"""The figures of a load test: buckets, ranks, tokens, shares of a core, and the notes on the result."""

from collections.abc import Sequence

import pytest

import manystream as ms
from manystream.bench.figures import Figures, Percentiles, Result, StreamWatch, percentiles, warnings_of
from manystream.bench.latency import percentile

BUCKET = 16384
"""The width of a bucket, in nanoseconds."""
BEYOND = 262144 * BUCKET
"""The least gap that has no bucket, in nanoseconds."""


def after(figures: Figures, *times: int, event: ms.Event | None = None) -> Figures:
    """Let a stream that began at 1000 ns receive content at these times."""
    left = iter([1000, *times])
    watch = StreamWatch(figures, lambda: next(left))
    for _ in times:
        watch.on_event(event or ms.TextDelta(0, "a"))
    assert watch.events == len(times)
    return figures


def test_new_figures_are_zero() -> None:
    figures = Figures()
    assert (figures.ok, figures.ok_before_window, figures.failed, figures.first_failure) == (0, 0, 0, "")
    assert (figures.first_contents, figures.call_seconds, figures.loop_lag, figures.events) == ([], [], 0.0, 0)
    assert (figures.ended_tokens, figures.ended_events, figures.longest_gap) == (0, 0, 0)
    assert (dict(figures.gaps), figures.long_gaps) == ({}, [])


def test_a_gap_is_counted_in_its_bucket() -> None:
    figures = after(Figures(), 2000, 2000 + BUCKET - 1, 2000 + 2 * BUCKET - 1, 2000 + 4 * BUCKET - 1)
    assert dict(figures.gaps) == {0: 1, 1: 1, 2: 1}
    assert figures.first_contents == [1e-6]
    assert (figures.longest_gap, figures.events) == (2 * BUCKET, 4)


def test_a_gap_beyond_the_last_bucket_is_kept_exactly() -> None:
    figures = after(Figures(), 1, BEYOND, BEYOND * 2)
    assert dict(figures.gaps) == {262143: 1}
    assert figures.long_gaps == [4.294967296]
    assert figures.gap(0.5) == pytest.approx(262143.5 * 16384e-9, abs=1e-12)
    assert figures.gap(0.51) == 4.294967296
    assert figures.longest_gap == BEYOND


def test_the_longest_gap_is_kept_when_shorter_ones_follow() -> None:
    figures = after(Figures(), 1, 1 + 5 * BUCKET, 1 + 6 * BUCKET)
    assert figures.longest_gap == 5 * BUCKET


@pytest.mark.parametrize(
    ("event", "gaps"),
    [
        (ms.TextDelta(0, "a"), 1),
        (ms.ThinkingDelta(0, "a"), 1),
        (ms.ToolCallDelta(0, "a"), 1),
        (ms.Start("m", "id"), 0),
        (ms.ToolCallStart(0, "id", "name"), 0),
        (ms.ToolCallDone(0), 0),
        (ms.Done(ms.FinishReason.STOP, "stop", ms.Usage()), 0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_gaps_are_between_content_and_every_event_counts(event: ms.Event, gaps: int) -> None:
    figures = after(Figures(), 5000, 6000, event=event)
    assert (sum(figures.gaps.values()), len(figures.first_contents), figures.events) == (gaps, gaps, 2)


def test_an_error_is_an_event_of_the_stream_only() -> None:
    figures = after(Figures(), 5000, event=ms.Error(ms.ProviderError("cut", category=ms.ErrorCategory.NETWORK)))
    assert figures.events == 0


def test_the_window_begins_without_gaps() -> None:
    figures = after(Figures(), 1, 2 * BUCKET, 2 * BEYOND)
    figures.open_window()
    assert (dict(figures.gaps), figures.long_gaps, figures.longest_gap, figures.events) == ({}, [], 0, 0)
    after(figures, 1, 2)
    assert dict(figures.gaps) == {0: 1}


@pytest.mark.parametrize(
    ("share", "rank"), [(0.01, 1), (0.25, 1), (0.26, 2), (0.5, 2), (0.51, 3), (0.75, 3), (0.76, 4), (1.0, 4)]
)
def test_a_percentile_of_gaps_is_the_nearest_rank(share: float, rank: int) -> None:
    figures = Figures()
    figures.gaps[10] += 1
    figures.gaps[5] += 1
    figures.long_gaps += [9.0, 6.0]
    expected = {1: 5.5 * 16384e-9, 2: 10.5 * 16384e-9, 3: 6.0, 4: 9.0}[rank]
    assert figures.gap(share) == pytest.approx(expected, abs=1e-12)


def test_gaps_are_long_ones_only_if_there_are_no_others() -> None:
    figures = Figures()
    figures.long_gaps += [9.0, 6.0]
    assert (figures.gap(0.5), figures.gap(0.99)) == (6.0, 9.0)


def test_a_histogram_is_read_at_the_middle_of_a_bucket() -> None:
    counts = {7: 1, 2: 2, 100: 1}
    found = [percentile(counts, share) for share in (0.0, 0.5, 0.51, 0.75, 0.76, 1.0)]
    assert found == [pytest.approx(bucket * 16384e-9) for bucket in (2.5, 2.5, 7.5, 7.5, 100.5, 100.5)]


def completion(usage: ms.Usage | None, finished: float | None = 1.5) -> ms.Completion:
    response = ms.Response(usage=usage) if usage is not None else None
    return ms.Completion(success=True, response=response, timings=ms.Timings(finished=finished))


def failure(message: str, category: ms.ErrorCategory = ms.ErrorCategory.SERVER) -> ms.Completion:
    return ms.Completion(success=False, error=ms.ProviderError(message, category=category))


def test_completions_are_counted_by_outcome() -> None:
    figures = Figures()
    figures.on_completion(completion(ms.Usage(output_tokens=6)), 3)
    figures.on_completion(completion(ms.Usage(output_tokens=5, thinking_tokens=4)), 7)
    figures.on_completion(completion(ms.Usage(thinking_tokens=9)), 100)
    figures.on_completion(completion(None, None), 100)
    for each in (failure("one"), failure("two", ms.ErrorCategory.NETWORK), failure("three")):
        figures.on_completion(each)
    figures.on_completion(failure("stopped", ms.ErrorCategory.CANCELLED))
    assert (figures.ok, figures.failed, dict(figures.failures)) == (4, 3, {"server": 2, "network": 1})
    assert figures.first_failure == "one"
    assert figures.call_seconds == [1.5, 1.5, 1.5, 0.0]
    assert (figures.ended_tokens, figures.ended_events) == (15, 10)
    figures.events = 9
    assert figures.tokens == 14, "9 events with 1.5 tokens each, rounded to an even number"


def test_an_unstreamed_call_is_one_event() -> None:
    figures = Figures()
    figures.on_completion(completion(ms.Usage(output_tokens=6)))
    figures.events = 2
    assert (figures.ended_events, figures.tokens) == (1, 12)


def test_percentiles_of_a_few_spans() -> None:
    assert percentiles([3.0, 1.0, 2.0]) == Percentiles(2.0, 3.0, 3.0)
    assert percentiles([1.0]) == Percentiles(1.0, 1.0, 1.0)
    assert percentiles([float(number) for number in range(1, 11)]) == Percentiles(5.0, 9.0, 10.0)


def test_a_result_derives_rates_and_shares() -> None:
    figures = (2, 4.0, True, 5, 1.25, 1, {"server": 2, "auth": 1}, "no", Percentiles(), Percentiles())
    result = Result(*figures, 80, 40, 0.1, 0.2, 0.3, 2.0, 3.0, 0.4, 6, 7)
    assert (result.failed, result.events_per_second, result.tokens_per_second) == (3, 20.0, 10.0)
    assert (result.client_share, result.simulator_share, result.client_per_event) == (0.5, 0.75, 0.025)
    assert (result.interrupted, result.warnings) == (False, [])
    nothing = Result(*figures, 0, 0, None, None, None, 2.0, None, 0.4, 6, 7)
    assert (nothing.tokens_per_second, nothing.simulator_share, nothing.client_per_event) == (None, None, None)


CLIENT = (
    "this process used 90% of a core: the client was the bottleneck, not the server; use a lower --concurrency, or"
    " several processes"
)
SIMULATOR = (
    "the simulator, one Python process, used 90% of a core: it was the bottleneck; use a lower --concurrency or rate,"
    " or another server"
)
DELAYED = (
    "this process was delayed for 101 ms although it was not busy: other processes used the machine, which makes the"
    " gaps longer"
)


@pytest.mark.parametrize(
    ("seconds", "client", "simulator", "lag", "found"),
    [
        (0.5, 0.9, 0.9, 0.101, [CLIENT, SIMULATOR]),
        (0.5, 0.899, 0.899, 0.1, []),
        (0.5, 0.899, 0.9, 0.101, [SIMULATOR, DELAYED]),
        (0.5, 0.0, None, 0.101, [DELAYED]),
        (0.499, 0.9, 0.9, 0.101, []),
    ],
)
def test_the_notes_on_a_result(
    seconds: float, client: float, simulator: float | None, lag: float, found: Sequence[str]
) -> None:
    assert warnings_of(seconds=seconds, client_share=client, simulator_share=simulator, loop_lag=lag) == found


def test_a_stalled_server_is_noted_in_a_window_that_is_not_short() -> None:
    note = "3 of the streams received nothing in the measured time: the server has stalled, or lets them wait"
    for seconds, found in ((0.5, [note]), (0.499, [])):
        notes = warnings_of(seconds=seconds, client_share=0.0, simulator_share=None, loop_lag=0.0, silent=3)
        assert notes == found


def running(figures: Figures, *times: int) -> StreamWatch:
    """Return a stream that began at the first time and received content at the others, in milliseconds."""
    left = iter(time * 1_000_000 for time in times)
    watch = StreamWatch(figures, lambda: next(left))
    for _ in times[1:]:
        watch.on_event(ms.TextDelta(0, "a"))
    return watch


def test_a_gap_that_the_end_cuts_counts_if_it_is_a_long_one() -> None:
    figures = Figures()
    stalled, steady = running(figures, 0, 10, 20, 40), running(figures, 0, 10, 20, 1990)
    assert figures.end_window([stalled, steady], opened=0, now=2000 * 1_000_000) == 0
    assert (sum(figures.gaps.values()), figures.longest_gap) == (4, 1_970_000_000)
    stuck = running(figures, 0, 10, 20)
    assert figures.end_window([stuck], opened=0, now=9000 * 1_000_000) == 0
    assert (figures.long_gaps, figures.longest_gap) == ([8.98], 8_980_000_000)
    assert figures.gap(0.99) == 8.98


def test_a_cut_gap_of_less_than_two_seconds_is_in_a_bucket() -> None:
    figures = Figures()
    cut = running(figures, 0, 10, 20)
    assert figures.end_window([cut], opened=0, now=500 * 1_000_000) == 0
    assert (sum(figures.gaps.values()), figures.long_gaps, figures.longest_gap) == (2, [], 480_000_000)


def test_a_long_wait_that_the_end_cuts_is_counted() -> None:
    figures = Figures()
    served = running(figures, 0, 500, 1000)
    late, later = running(figures, 900), running(figures, 100)
    assert figures.end_window([served, late, later], opened=100 * 1_000_000, now=1200 * 1_000_000) == 1
    assert figures.first_contents == [0.5, 1.1]


def test_streams_without_any_content_are_silent_and_no_figure() -> None:
    figures = Figures()
    waiting = [running(figures, 0), running(figures, 5)]
    assert figures.end_window(waiting, opened=5 * 1_000_000, now=2000 * 1_000_000) == 2
    assert (figures.first_contents, figures.longest_gap) == ([], 0)
