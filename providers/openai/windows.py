"""OpenAI's windows of time: an answer in the background that may take so long costs less."""

from __future__ import annotations

from dataclasses import dataclass

HOUR = 3600.0


@dataclass(slots=True, frozen=True)
class Window:
    """A window of OpenAI's Responses (`background_options.completion_window`).

    name: the provider's word.
    seconds: its length.
    price: a part of the list price.
    """

    name: str
    seconds: float
    price: float


WINDOWS = (Window("8h", 8 * HOUR, 0.6), Window("2h", 2 * HOUR, 0.7))

WINDOW_PRICES = {"soonest": 1.0, **{window.name: window.price for window in WINDOWS}}
