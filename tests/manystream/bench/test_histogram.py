"""Histograms: percentiles equal those of the sorted spans, the form is HdrHistogram's, and intervals hold the truth."""

import base64
import math
import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from manystream.bench.histogram import (
    SHARES,
    Windows,
    bucket_of,
    decoded,
    encoded,
    interval_of,
    mean,
    merged,
    new_counts,
    percentile,
    seconds_of,
)

spans = st.integers(min_value=0, max_value=7_200_000_000)
histograms = st.lists(spans).map(lambda found: counted(found))


def counted(spans: list[int]) -> dict[int, int]:
    """Return the histogram of spans in microseconds."""
    counts = new_counts()
    for span in spans:
        counts[bucket_of(span)] += 1
    return counts


@given(st.lists(spans, min_size=1), st.floats(min_value=0, max_value=1))
def test_a_percentile_is_the_span_of_that_rank(found: list[int], share: float) -> None:
    exact = sorted(found)[max(1, math.ceil(share * len(found))) - 1] / 1e6
    value = percentile(counted(found), share)
    assert value == pytest.approx(exact, rel=0.0005, abs=0.51e-6)


@given(spans)
def test_buckets_are_in_the_order_of_their_spans(span: int) -> None:
    assert bucket_of(span + 1) - bucket_of(span) in (0, 1)
    assert seconds_of(bucket_of(span)) == pytest.approx(span / 1e6, rel=0.0005, abs=0.51e-6)


def test_an_empty_histogram_has_no_value() -> None:
    assert percentile(new_counts(), 0.5) is None
    assert mean(new_counts()) is None


def test_the_mean_is_of_all_spans() -> None:
    assert mean(counted([100, 200, 200, 300])) == pytest.approx(200.5e-6)


@given(histograms, histograms)
def test_merged_histograms_count_the_spans_of_both(one: dict[int, int], two: dict[int, int]) -> None:
    total = merged([one, two])
    assert total == {bucket: one.get(bucket, 0) + two.get(bucket, 0) for bucket in one.keys() | two.keys()}


@given(histograms)
def test_what_was_encoded_is_decoded(counts: dict[int, int]) -> None:
    assert decoded(encoded(counts)) == counts


def test_the_form_is_that_of_the_tools_of_hdrhistogram() -> None:
    """The text was written by the package `hdrhistogram` for the values 1, 2, 2, 5000 and 1_000_000, 1 µs to 1 h."""
    counts = counted([1, 2, 2, 5000, 1_000_000])
    text = encoded(counts)
    assert text.startswith("HISTFAAA")
    whole = zlib.decompress(base64.b64decode(text)[8:])
    head = "1c849313000000090000000000000003000000000000000100000000d693a4003ff0000000000000"
    assert whole.hex() == head + "010204bd3302fb7a02"


@pytest.mark.parametrize(
    "text", ["", "nonsense", "HISTFAAA", base64.b64encode(b"\x1c\x84\x93\x14\0\0\0\x05abcde").decode(), "é"]
)
def test_other_text_is_no_histogram(text: str) -> None:
    with pytest.raises(ValueError, match="is no histogram"):
        decoded(text)


def with_payload(payload: bytes) -> str:
    head = zlib.decompress(base64.b64decode(encoded({5: 1}))[8:])
    packed = zlib.compress(head[:4] + len(payload).to_bytes(4, "big") + head[8:40] + payload)
    return base64.b64encode(b"\x1c\x84\x93\x14" + len(packed).to_bytes(4, "big") + packed).decode()


@given(st.binary(max_size=80))
def test_damaged_bytes_are_a_value_error_or_a_histogram(data: bytes) -> None:
    try:
        counts = decoded(with_payload(data))
    except ValueError:
        return
    assert percentile(counts, 0.5) is not None or not counts


def test_an_empty_bucket_may_be_a_zero_or_a_run() -> None:
    assert decoded(with_payload(b"\x00\x00\x04\x03\x04\x00")) == {2: 2, 5: 2}
    with pytest.raises(ValueError, match="more buckets than there are times"):
        decoded(with_payload(b"\xff\xff\xff\xff\xff\xff\x7f\x02"))


# Confidence.


def test_intervals_need_enough_windows_with_spans() -> None:
    assert Windows([counted([5]), counted([])] * 4).intervals() == [None] * 3
    assert None not in Windows([counted([5])] * 5).intervals()


def test_equal_windows_have_intervals_without_width() -> None:
    for interval in Windows([counted([1000] * 99 + [2000])] * 10).intervals((0.5, 0.99, 1.0)):
        assert interval is not None
        assert interval.low == interval.high


def test_the_interval_holds_the_median_of_its_distribution() -> None:
    """Of 20 runs of one distribution, the 95 % intervals of nearly all hold its true median."""
    numbers, held = random.Random(4), 0
    for run in range(20):
        windows = [counted([round(numbers.expovariate(1 / 10_000)) for _ in range(50)]) for _ in range(20)]
        (interval,) = Windows(windows, seed=run).intervals((0.5,))
        assert interval is not None
        held += interval.low <= math.log(2) * 0.01 <= interval.high
    assert held >= 16


def test_a_run_that_is_drawn_has_the_percentiles_of_its_windows() -> None:
    drawn = Windows([counted([10]), counted([20]), counted([30])], seed=3).drawn((0.01, 1.0))
    assert set(drawn) <= {seconds_of(10), seconds_of(20), seconds_of(30)}
    assert drawn == sorted(drawn)
    assert len(SHARES) == len(Windows([counted([10])]).drawn())


def test_an_interval_holds_95_of_100_values() -> None:
    interval = interval_of(float(number) for number in range(101))
    assert (interval.low, interval.high) == (3.0, 97.0)
