"""Timeouts and retries."""

from __future__ import annotations

import manystream as ms
from tests.providers.catalog.test_provider import MINE


def test_timeouts_and_retries_have_these_values() -> None:
    assert ms.Timeouts() == ms.Timeouts(None, None, None, None, None)
    assert ms.Retry() == ms.Retry(max_attempts=4, base=1.0, cap=30.0, jitter=1.0, max_hint=120.0)
    over = ms.Timeouts(connect=1, total=2).over(ms.Timeouts(3, 4, 5, 6, 7))
    assert over == ms.Timeouts(connect=1, first_byte=4, idle=5, total=2, queue=7)
    assert ms.Quirks() == MINE.quirks
