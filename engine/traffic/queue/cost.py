"""What a call takes from each limit, and the mean of such numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ....providers.model.usage import Usage

_SMOOTHING = 0.05
"""Weight of one call's output in the learned mean. The first calls form an arithmetic mean."""


class Mean:
    """The mean of a series of numbers. The later numbers count more, from the twentieth on.

    value: the mean; before the first number, the value that was given.
    count: how many numbers there were.
    """

    __slots__ = ("count", "value")

    def __init__(self, value: float = 0.0) -> None:
        self.value: float = value
        self.count: int = 0

    def add(self, number: float) -> None:
        """Add the next number of the series."""
        self.count += 1
        self.value += (number - self.value) * max(_SMOOTHING, 1.0 / self.count)


class Cost(NamedTuple):
    """The amounts that a call takes from each limit, in the order of `Unit`.

    requests: number of requests.
    input_tokens: tokens of the prompt.
    output_tokens: tokens of the response.
    tokens: tokens for limits that count input and output together.
    """

    requests: float
    input_tokens: float
    output_tokens: float
    tokens: float

    def plus(self, other: Cost) -> Cost:
        """Return the sum of both, unit by unit."""
        return cost_of(Cost, (self[0] + other[0], self[1] + other[1], self[2] + other[2], self[3] + other[3]))

    def less(self, other: Cost) -> Cost:
        """Return this minus `other`, unit by unit."""
        return cost_of(Cost, (self[0] - other[0], self[1] - other[1], self[2] - other[2], self[3] - other[3]))


cost_of: Callable[[type[Cost], tuple[float, float, float, float]], Cost] = tuple[float, ...].__new__
"""Makes a `Cost` of its four numbers, without the call of a Python function that `Cost(…)` costs each time."""

FREE = Cost(0.0, 0.0, 0.0, 0.0)


def credible(usage: Usage) -> Usage:
    """Return the usage, or an empty one if a count is below zero, as some gateways report it. Such a count would give a
    budget or a limit more than it has.
    """
    counts = (usage.input_tokens, usage.output_tokens, usage.thinking_tokens, usage.cached_tokens)
    return Usage() if any(count is not None and count < 0 for count in counts) else usage
