"""What a call takes from each limit, how that is computed from its tokens, and the mean of such numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ....providers.limits.charging import Charging
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


DEFAULT_OUTPUT = 512.0
"""The estimated output tokens of a call before any call has ended. A smaller `max_tokens` takes its place."""


class Charger:
    """Computes costs from token counts for one limiter, and learns the mean length of its responses.

    charging: how the server counts requests and tokens.
    output: the output tokens of a call, learned from ended calls.
    """

    __slots__ = ("charging", "output")

    def __init__(self, charging: Charging) -> None:
        self.charging: Charging = charging
        self.output: Mean = Mean(DEFAULT_OUTPUT)

    def estimate(self, input_tokens: float, max_output: float | None) -> Cost:
        """Return the estimated charge of a call before it is sent.

        input_tokens: the estimated tokens of the prompt.
        max_output: the request's own `max_tokens`; None if it has none.
        """
        mean = self.output.value
        if max_output is None or (self.charging.output == "produced" and max_output > mean):
            return self._cost(input_tokens, mean)
        return self._cost(input_tokens, max_output)

    def least(self, input_tokens: float, max_output: float | None) -> Cost:
        """Return the smallest charge of a call: its input, and its `max_tokens` if the server reserves output."""
        reserved = self.charging.output == "reserved" and max_output is not None
        return self._cost(input_tokens, (max_output or 0.0) if reserved else 0.0)

    def settled(self, input_tokens: float, cached: float, output: float) -> Cost:
        """Return what a call has used that ended with this usage, and update the mean output.

        input_tokens: all tokens of the prompt.
        cached: the tokens of the prompt that the server read from its cache.
        output: the tokens of the response.
        """
        self.output.add(output)
        counted = input_tokens if self.charging.cached_input else input_tokens - cached
        return Cost(1.0, counted, output, counted + output)

    def failed(self, charge: Cost) -> Cost:
        """Return what a call has used that the server answered with an error. charge: what it was charged."""
        return FREE._replace(requests=charge.requests if self.charging.failed_requests else 0.0)

    def _cost(self, input_tokens: float, output: float) -> Cost:
        combined = max(input_tokens, output) if self.charging.combined == "larger" else input_tokens + output
        return cost_of(Cost, (1.0, input_tokens, output, combined))


def credible(usage: Usage) -> Usage:
    """Return the usage, or an empty one if a count is below zero, as some gateways report it. Such a count would give a
    budget or a limit more than it has.
    """
    counts = (usage.input_tokens, usage.output_tokens, usage.thinking_tokens, usage.cached_tokens)
    return Usage() if any(count is not None and count < 0 for count in counts) else usage
