"""The forms in which servers limit, and the calls that measure them: over sockets and in simulated time."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise

QUESTION = "Tell me of rivers. " * 40
OUTPUT = 20
MAX_OUTPUT = 300
MODEL = "sim-text"
DURATION = OUTPUT / 40
"""Seconds that every answer takes."""

ANSWER = f"events={OUTPUT},rate=40"

BUCKET = 10.0
"""Seconds of the limit that the server holds."""

INPUT = len(QUESTION) // 4 + 1


@dataclass(slots=True, frozen=True)
class Work:
    """One call.

    input_tokens: the tokens of its prompt.
    output_tokens: the tokens of its answer.
    max_output: the limit for output tokens that its request has.
    seconds: what the answer takes.
    """

    input_tokens: int = INPUT
    output_tokens: int = OUTPUT
    max_output: int = MAX_OUTPUT
    seconds: float = DURATION


@dataclass(slots=True, frozen=True, kw_only=True)
class Form:
    """One form of limits.

    dialect: the wire format of the calls.
    profile: the name of the provider's profile.
    declared: the limits, as they are declared to traffic control.
    unit: the member of `Work` that is counted by the limit that binds; empty: requests.
    cost: what a call costs in the limit that binds, on average.
    rate: what the server allows in it per second.
    by_second: the server enforces the rate in each second, too, and reports only the limit of a minute.
    factors: from which second on the limits are so many times what they were at the start.
    mixed: the calls are of all sizes, and their answers take a second and 2 ms a token. Else all calls are equal.
    """

    dialect: str
    profile: str
    declared: dict[str, float]
    unit: str = ""
    cost: float = 1.0
    rate: float
    by_second: bool = False
    factors: tuple[tuple[float, float], ...] = ((0.0, 1.0),)
    mixed: bool = False

    def limit(self, factor: float = 1.0) -> str:
        """Return the limit as the simulator reads it. factor: relative to the start."""
        pairs = " ".join(f"{name.replace('_', '-')}={value * factor:g}" for name, value in self.declared.items())
        return f"{pairs} bucket=60 by-second=1" if self.by_second else f"{pairs} bucket={BUCKET:g}"

    def works(self, calls: int) -> list[Work]:
        """Return the calls."""
        if not self.mixed:
            return [Work()] * calls
        chance = random.Random(calls)
        works: list[Work] = []
        for _ in range(calls):
            output = int(min(1500, max(5, chance.lognormvariate(5.0, 1.0))))
            tokens = int(min(8000, max(20, chance.lognormvariate(6.0, 1.0))))
            works.append(Work(tokens, output, 2 * output, 1 + 0.002 * output))
        return works

    def used(self, works: list[Work], seconds: float) -> float:
        """Return the accepted calls, as a part of those that a client with full knowledge could have sent.

        works: the accepted calls, which are all that were to be made.
        seconds: from the first request to the last accepted one.
        """
        accepted = sum(getattr(work, self.unit) if self.unit else self.cost for work in works)
        capacity = self.rate * (1.0 if self.by_second else BUCKET)
        needed = self._needed(accepted - capacity)
        return min(1.0, accepted / (capacity + self._allowed(max(needed, seconds))))

    def _allowed(self, seconds: float) -> float:
        """Return what flows into the server's bucket until then."""
        steps = [*self.factors, (float("inf"), 0.0)]
        return self.rate * sum(
            factor * max(0.0, min(seconds, end) - begin) for (begin, factor), (end, _) in pairwise(steps)
        )

    def _needed(self, amount: float) -> float:
        """Return the seconds in which an amount flows into the server's bucket."""
        seconds = max((begin for begin, _ in self.factors if self._allowed(begin) < amount), default=0.0)
        factor = next(factor for begin, factor in reversed(self.factors) if begin <= seconds)
        return seconds + max(0.0, amount - self._allowed(seconds)) / (self.rate * factor)


CALLS_PER_SECOND = 60.0
FORMS: dict[str, Form] = {
    "openai-requests": Form(
        dialect="openai-chat",
        profile="openai",
        rate=CALLS_PER_SECOND,
        declared={"requests_per_minute": CALLS_PER_SECOND * 60},
    ),
    "openai-tokens": Form(
        dialect="openai-chat",
        profile="openai",
        unit="max_output",
        cost=float(MAX_OUTPUT),
        rate=CALLS_PER_SECOND * MAX_OUTPUT,
        declared={"requests_per_minute": 1e6, "tokens_per_minute": CALLS_PER_SECOND * 60 * MAX_OUTPUT},
    ),
    "anthropic": Form(
        dialect="anthropic",
        profile="anthropic",
        unit="input_tokens",
        cost=float(INPUT),
        rate=CALLS_PER_SECOND * INPUT,
        declared={
            "input_tokens_per_minute": CALLS_PER_SECOND * 60 * INPUT,
            "output_tokens_per_minute": CALLS_PER_SECOND * 60 * OUTPUT * 1.5,
        },
    ),
    "gemini": Form(
        dialect="gemini",
        profile="google",
        rate=CALLS_PER_SECOND,
        declared={"requests_per_minute": CALLS_PER_SECOND * 60},
    ),
    "gemini-interactions": Form(
        dialect="gemini-interactions",
        profile="google-interactions",
        rate=CALLS_PER_SECOND,
        declared={"requests_per_minute": CALLS_PER_SECOND * 60},
    ),
}
"""The forms that are measured over sockets, too."""

MODELLED_FORMS: dict[str, Form] = {
    **FORMS,
    "anthropic, all sizes": Form(
        dialect="anthropic",
        profile="anthropic",
        unit="input_tokens",
        rate=20_000.0,
        declared={"input_tokens_per_minute": 1.2e6, "output_tokens_per_minute": 6e5},
        mixed=True,
    ),
    "openai by the second": Form(
        dialect="openai-chat",
        profile="openai",
        rate=CALLS_PER_SECOND,
        declared={"requests_per_minute": CALLS_PER_SECOND * 60},
        by_second=True,
        factors=((0.0, 1.0), (10.0, 0.5), (20.0, 1.0)),
    ),
}
"""Form → in simulated time only: calls of all sizes, and limits that change."""
