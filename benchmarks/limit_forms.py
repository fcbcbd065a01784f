"""The forms in which servers limit, and the calls that measure them: over sockets and in simulated time."""

from __future__ import annotations

from dataclasses import dataclass

QUESTION = "Tell me of rivers. " * 40
OUTPUT = 20
MAX_OUTPUT = 300
MODEL = "sim-text"
DURATION = OUTPUT / 40
"""Seconds that every answer takes."""

ANSWER = f"events={OUTPUT},rate=40"

BUCKET = 10.0
"""Seconds of the limit that the server holds."""


@dataclass(slots=True, frozen=True)
class Form:
    """One form of limits.

    dialect: the wire format of the calls.
    profile: the name of the provider's profile.
    limit: the simulator's limit.
    cost: what a call costs in the dimension that binds.
    rate: what the server allows in it per second.
    declared: the same limit, as it is declared to traffic control.
    """

    dialect: str
    profile: str
    limit: str
    cost: float
    rate: float
    declared: dict[str, float]

    def used(self, accepted: int, calls: int, seconds: float) -> float:
        """Return the accepted requests, as a part of those that a client with full knowledge could have sent.

        calls: how many were to be made.
        seconds: from the first request to the last answer.
        """
        capacity = self.rate * BUCKET
        needed = max(0.0, (calls * self.cost - capacity) / self.rate)
        allowed = (capacity + self.rate * max(needed, seconds - DURATION)) / self.cost
        return min(1.0, accepted / allowed)


INPUT = len(QUESTION) // 4 + 1
CALLS_PER_SECOND = 60.0
FORMS: dict[str, Form] = {
    "openai-requests": Form(
        "openai-chat",
        "openai",
        f"requests-per-minute={CALLS_PER_SECOND * 60:g}",
        1.0,
        CALLS_PER_SECOND,
        {"requests_per_minute": CALLS_PER_SECOND * 60},
    ),
    "openai-tokens": Form(
        "openai-chat",
        "openai",
        f"requests-per-minute=1e6 tokens-per-minute={CALLS_PER_SECOND * 60 * MAX_OUTPUT:g}",
        float(MAX_OUTPUT),
        CALLS_PER_SECOND * MAX_OUTPUT,
        {"tokens_per_minute": CALLS_PER_SECOND * 60 * MAX_OUTPUT},
    ),
    "anthropic": Form(
        "anthropic",
        "anthropic",
        f"input-tokens-per-minute={CALLS_PER_SECOND * 60 * INPUT:g}"
        f" output-tokens-per-minute={CALLS_PER_SECOND * 60 * OUTPUT * 1.5:g}",
        float(INPUT),
        CALLS_PER_SECOND * INPUT,
        {
            "input_tokens_per_minute": CALLS_PER_SECOND * 60 * INPUT,
            "output_tokens_per_minute": CALLS_PER_SECOND * 60 * OUTPUT * 1.5,
        },
    ),
    "gemini": Form(
        "gemini",
        "google",
        f"requests-per-minute={CALLS_PER_SECOND * 60:g}",
        1.0,
        CALLS_PER_SECOND,
        {"requests_per_minute": CALLS_PER_SECOND * 60},
    ),
}
