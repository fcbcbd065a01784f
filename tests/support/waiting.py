"""Waiting for what happens in another process or thread, of which no event tells."""

from __future__ import annotations

import time
from collections.abc import Callable

LONGEST = 30.0
EVERY = 0.005


def until(condition: Callable[[], bool]) -> None:
    """Look again and again until it is so. Fails after `LONGEST` seconds."""
    deadline = time.monotonic() + LONGEST
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(EVERY)
