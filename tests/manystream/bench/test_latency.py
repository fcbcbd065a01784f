"""Percentiles from a histogram: they equal those of the sorted samples, to the width of a bucket."""

import math

from hypothesis import given
from hypothesis import strategies as st

from manystream.bench.latency import SHIFT, merge, new_counts, percentile

WIDTH = (1 << SHIFT) / 1e9


@given(st.lists(st.integers(min_value=0, max_value=4_000_000_000), min_size=1), st.floats(min_value=0.01, max_value=1))
def test_a_percentile_is_the_sample_of_that_rank(samples: list[int], share: float) -> None:
    counts = new_counts()
    for sample in samples:
        counts[sample >> SHIFT] += 1
    exact = sorted(samples)[max(1, math.ceil(share * len(samples))) - 1] / 1e9
    found = percentile(counts, share)
    assert found is not None
    assert abs(found - exact) <= WIDTH / 2 + 1e-12


def test_an_empty_histogram_has_no_percentile() -> None:
    assert percentile(new_counts(), 0.5) is None


def test_windows_add_up_to_the_total() -> None:
    total, window = new_counts(), new_counts()
    total[1], window[1], window[7] = 2, 3, 1
    merge(total, window)
    assert total == {1: 5, 7: 1}
