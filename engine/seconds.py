"""The timeouts that a program gives to `drain` and to a portal's `wait`."""

from __future__ import annotations

import math

from ..providers.rules.rules import LARGEST, described


def seconds_of(timeout: float, method: str, *, least: float = 0.0) -> float:
    """Return a program's timeout in seconds; `math.inf` for more than a float can hold.

    Raises `ValueError` for anything but a number of at least `least`.

    method: the name of the method that has the timeout, for the error.
    """
    if not isinstance(timeout, (int, float)) or not timeout >= least:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"{method}: timeout must be seconds, 0 or more (math.inf: no limit), not {described(timeout)}")
    return timeout if timeout <= LARGEST else math.inf
