"""What a call is charged, before it is sent and after it ended, as its server counts.

Knows `Charging`. Must not know buckets.
"""

from __future__ import annotations

from typing import NamedTuple

from ...providers.charging import Charging

DEFAULT_OUTPUT = 512.0
"""Output tokens that a call is believed to produce before any call ended, where `max_tokens` allows as many."""

_SMOOTHING = 0.05
"""Weight of one call's output in the learned mean, once there were enough calls for a plain mean."""


class Cost(NamedTuple):
    """What a call takes from each limit; the order is that of `Unit`."""

    requests: float
    input_tokens: float
    output_tokens: float
    tokens: float

    def plus(self, other: Cost) -> Cost:
        """The sum, unit by unit."""
        return Cost(self[0] + other[0], self[1] + other[1], self[2] + other[2], self[3] + other[3])

    def less(self, other: Cost) -> Cost:
        """The difference, unit by unit."""
        return Cost(self[0] - other[0], self[1] - other[1], self[2] - other[2], self[3] - other[3])


FREE = Cost(0.0, 0.0, 0.0, 0.0)


class Charger:
    """Turns token counts into costs for one scope, and learns how long its answers are.

    charging: how the server counts.
    mean_output: the believed output tokens of a call.
    """

    __slots__ = ("_answers", "charging", "mean_output")

    def __init__(self, charging: Charging) -> None:
        self.charging: Charging = charging
        self.mean_output: float = DEFAULT_OUTPUT
        self._answers = 0

    def estimate(self, input_tokens: float, max_output: float | None) -> Cost:
        """The charge of a call before it is sent.

        max_output: the request's own `max_tokens`; None where it has none.
        """
        output = self.mean_output if max_output is None else max_output
        if self.charging.output == "produced":
            output = min(output, self.mean_output)
        return self._cost(input_tokens, output)

    def least(self, input_tokens: float, max_output: float | None) -> Cost:
        """What is charged for a call at least: its input, and its output where that is reserved."""
        reserved = self.charging.output == "reserved" and max_output is not None
        return self._cost(input_tokens, (max_output or 0.0) if reserved else 0.0)

    def settled(self, charge: Cost, input_tokens: float, cached: float, output: float) -> Cost:
        """The charge of a call that ended with this usage, and lesson for the mean. Where the server's settlement is
        unknown the charge stays as it was."""
        self._answers += 1
        self.mean_output += (output - self.mean_output) * max(_SMOOTHING, 1.0 / self._answers)
        if self.charging.settlement == "unknown":
            return charge
        return self._cost(input_tokens if self.charging.cached_input else input_tokens - cached, output)

    def failed(self, charge: Cost) -> Cost | None:
        """The charge of a call that failed in the end; None keeps it as it was."""
        if self.charging.settlement == "unknown":
            return None
        return FREE._replace(requests=charge.requests if self.charging.failed_requests else 0.0)

    def _cost(self, input_tokens: float, output: float) -> Cost:
        if self.charging.output == "free":
            output = 0.0
        combined = max(input_tokens, output) if self.charging.combined == "larger" else input_tokens + output
        return Cost(1.0, input_tokens, output, combined)
