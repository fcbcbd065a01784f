"""Wait for a condition in another process or thread that raises no event in this one."""

from __future__ import annotations

import time
from collections.abc import Callable

LONGEST = 30.0
EVERY = 0.005


def until(condition: Callable[[], bool]) -> None:
    """Poll until the condition is true. Fails after `LONGEST` seconds."""
    deadline = time.monotonic() + LONGEST
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(EVERY)
