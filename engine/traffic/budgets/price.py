"""The price of a call: the program's own function, and what it may return."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TypeAlias

from ....providers.catalog.provider import Provider
from ....providers.errors import InvalidRequestError, ManystreamError
from ....providers.model.rules import described
from ....providers.model.tokens import Usage
from .amounts import amount_of

Price: TypeAlias = Callable[[Provider, str, Usage], float | None]
"""A function that takes a provider, the model's name there and the tokens, and returns US dollars, or None if it knows
no price. Its attribute `why`, if it has one, is a function of the same arguments that returns the reason as a text.
"""

LONGEST_REASON = 500
"""The most characters of a reason. It may quote what a server has sent."""


def ask_price(price: Price, provider: Provider, model: str, usage: Usage) -> float | None:
    """Return the price of one attempt in US dollars; None if the function knows none.

    Raises `InvalidRequestError` if it raises, or returns something that is not an amount.
    """
    label = f"{provider.name}/{model}"
    try:
        value: object = price(provider, model, usage)
    except Exception as error:
        why = f": {error}" if isinstance(error, ManystreamError) else ""
        raise InvalidRequestError("traffic.price", f"raised {type(error).__name__} for {label}{why}") from error
    if value is None:
        return None
    dollars = amount_of(value)
    if dollars is None or dollars == math.inf:
        must = "must return a number of US dollars, at least 0, or None"
        raise InvalidRequestError("traffic.price", f"{must}, not {described(value)} (for {label})")
    return dollars


def why_unknown(price: Price, provider: Provider, model: str, usage: Usage) -> str:
    """Return why a price function knows no price of these tokens: the text of its `why`; empty if it has none.

    Never raises.
    """
    keywords: dict[str, object] = {}
    function: object = price
    while isinstance(function, functools.partial):
        keywords = {**function.keywords, **keywords}
        function = function.func
    why: object = getattr(function, "why", None)
    try:
        reason: object = why(provider, model, usage, **keywords) if callable(why) else ""
    except Exception:
        return ""  # the price function itself has returned, and that counts
    return reason[:LONGEST_REASON] if isinstance(reason, str) else ""
