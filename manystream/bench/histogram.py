"""Histograms of time spans in the form of HdrHistogram: three significant digits, in bounded memory, and mergeable.

A histogram is a dict from bucket to count. The buckets are those of HdrHistogram with a lowest value of 1 µs, a unit of
1 µs and three significant digits, so that its tools read what `encoded` writes. The package hdrhistogram is not used:
it takes three times as long to count a span, keeps 188 KB for each histogram, of which a run has about 150, and
installs setuptools.

To count a span, code on a hot path computes the bucket inline:

    shift = span.bit_length() - 11
    counts[span if shift <= 0 else (shift << 10) + (span >> shift)] += 1
"""

from __future__ import annotations

import base64
import math
import random
import struct
import zlib
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple, TypeAlias

Counts: TypeAlias = defaultdict[int, int]
"""Bucket → number of time spans."""

SHARES = (0.5, 0.9, 0.99)
"""The shares of the percentiles that are reported."""
CONFIDENCE = 0.95
"""The probability that an interval holds the true value."""
LEAST_WINDOWS = 5
"""The fewest windows from which an interval is computed."""
RESAMPLES = 1000

_COOKIE, _COMPRESSED_COOKIE = 0x1C849313, 0x1C849314
_HEADER = struct.Struct(">iiiiqqd")
"""Cookie, length of the payload, offset, significant digits, lowest and highest value, ratio (HdrHistogram V2)."""
_HIGHEST = 3_600_000_000
"""The highest value that the header names, in µs: an hour. HdrHistogram resizes for higher ones."""
_LARGEST_BYTES, _MOST_BUCKETS = 1 << 20, 55 << 10
"""The largest payload that is decoded, and the number of buckets for times of at most 63 bits."""


def new_counts() -> Counts:
    return defaultdict(int)


def bucket_of(span: int) -> int:
    """Return the bucket of a time span in microseconds."""
    shift = span.bit_length() - 11
    return span if shift <= 0 else (shift << 10) + (span >> shift)


def seconds_of(bucket: int) -> float:
    """Return the middle of a bucket in seconds. It differs from each span of the bucket by at most 0.05 % or 0.5 µs."""
    shift = max(0, (bucket >> 10) - 1)
    return (((bucket - (shift << 10)) << shift) + (1 << shift) / 2) / 1e6


def merge(total: Counts, more: Mapping[int, int]) -> None:
    for bucket, count in more.items():
        total[bucket] += count


def merged(histograms: Iterable[Mapping[int, int]]) -> Counts:
    total = new_counts()
    for histogram in histograms:
        merge(total, histogram)
    return total


def percentile(counts: Mapping[int, int], share: float) -> float | None:
    """Return a percentile of the spans in seconds, by the nearest rank, or None if there are none. share:
    0 to 1."""
    total = sum(counts.values())
    if not total:
        return None
    rank = max(1, math.ceil(share * total))
    for bucket in sorted(counts):
        rank -= counts[bucket]
        if rank <= 0:
            return seconds_of(bucket)
    raise AssertionError("unreachable: ranks end with the total")


def share_above(counts: Mapping[int, int], seconds: float) -> float:
    """Return the share of the spans that are longer."""
    longer = sum(count for bucket, count in counts.items() if seconds_of(bucket) > seconds)
    return longer / max(sum(counts.values()), 1)


def mean(counts: Mapping[int, int]) -> float | None:
    """Return the mean of the spans in seconds, or None if there are none."""
    total = sum(counts.values())
    return sum(seconds_of(bucket) * count for bucket, count in counts.items()) / total if total else None


# --- confidence ---


class Interval(NamedTuple):
    """A confidence interval, in seconds. low, high: its ends."""

    low: float
    high: float


class Windows:
    """The histograms of consecutive windows of a run, from which other possible runs are drawn (block bootstrap).

    The spans of one window depend on each other, because they had the same load. So whole windows are drawn, and not
    spans. Windows without a span are left out.
    """

    def __init__(self, windows: Iterable[Mapping[int, int]], seed: int = 0) -> None:
        used = [window for window in windows if window]
        self._buckets = sorted({bucket for window in used for bucket in window})
        self._cumulated = [list(accumulate(window.get(bucket, 0) for bucket in self._buckets)) for window in used]
        self._random = random.Random(seed)

    @property
    def enough(self) -> bool:
        """Whether there are enough windows for an interval."""
        return len(self._cumulated) >= LEAST_WINDOWS

    def drawn(self, shares: Sequence[float] = SHARES) -> list[float]:
        """Return percentiles, in seconds, of a run that consists of as many windows, drawn with replacement."""
        numbers = Counter(self._random.choices(range(len(self._cumulated)), k=len(self._cumulated)))
        chosen = [(self._cumulated[window], number) for window, number in numbers.items()]
        total = sum(cumulated[-1] * number for cumulated, number in chosen)

        def up_to(place: int) -> int:
            return sum(cumulated[place] * number for cumulated, number in chosen)

        places = range(len(self._buckets))
        ranks = [max(1, math.ceil(share * total)) for share in shares]
        return [seconds_of(self._buckets[bisect_left(places, rank, key=up_to)]) for rank in ranks]

    def intervals(self, shares: Sequence[float] = SHARES) -> list[Interval | None]:
        """Return the confidence interval of each percentile; None if there are too few windows."""
        if not self.enough:
            return [None] * len(shares)
        drawn = [self.drawn(shares) for _ in range(RESAMPLES)]
        return [interval_of([run[place] for run in drawn]) for place in range(len(shares))]


def interval_of(values: Iterable[float]) -> Interval:
    """Return the interval that holds the middle values: `CONFIDENCE` of them."""
    ordered = sorted(values)
    outside = round((1.0 - CONFIDENCE) / 2.0 * (len(ordered) - 1))
    return Interval(ordered[outside], ordered[-1 - outside])


# --- the form of HdrHistogram ---


def encoded(counts: Mapping[int, int]) -> str:
    """Return a histogram in HdrHistogram's compressed form V2, as base64."""
    payload = bytearray()
    position = 0
    for bucket in sorted(bucket for bucket, count in counts.items() if count):
        if bucket > position:
            payload += _number(position - bucket)  # so many empty buckets
        payload += _number(counts[bucket])
        position = bucket + 1
    whole = _HEADER.pack(_COOKIE, len(payload), 0, 3, 1, _HIGHEST, 1.0) + payload
    packed = zlib.compress(whole)
    return base64.b64encode(struct.pack(">ii", _COMPRESSED_COOKIE, len(packed)) + packed).decode()


def decoded(text: str) -> Counts:
    """Return the histogram that `encoded` wrote. Raises `ValueError` for other text."""
    try:
        data = base64.b64decode(text, validate=True)
        cookie, length = struct.unpack_from(">ii", data)
        unpacker = zlib.decompressobj()
        whole = unpacker.decompress(data[8 : 8 + length], _LARGEST_BYTES)
        header = _HEADER.unpack_from(whole)
    except (ValueError, struct.error, zlib.error) as error:
        raise ValueError(f"is no histogram: {error}") from None
    payload = whole[_HEADER.size :]
    if cookie != _COMPRESSED_COOKIE or header[0] != _COOKIE or header[2:5] != (0, 3, 1) or header[1] != len(payload):
        raise ValueError("is no histogram of three digits and 1 µs in HdrHistogram's form V2")
    counts = new_counts()
    position = bucket = 0
    while position < len(payload):
        number, position = _read_number(payload, position)
        if number > 0:
            counts[bucket] = number
        bucket += 1 if number >= 0 else -number  # 0 is one empty bucket
        if bucket > _MOST_BUCKETS:
            raise ValueError("is no histogram: it has more buckets than there are times")
    return counts


def _number(value: int) -> bytes:
    """Encode a number as ZigZag LEB128."""
    value = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _read_number(data: bytes, position: int) -> tuple[int, int]:
    """Return the number at a position, and the position after it. Raises `ValueError`."""
    value = shift = 0
    for byte in data[position : position + 8]:
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    raise ValueError("is no histogram: a number does not end")
