"""An actor's part of the limits that a program declares for all actors together.

Knows declared limits. Must not know actors or Ray.
"""

from __future__ import annotations

from dataclasses import fields, replace

from ..engine.traffic.options import Traffic
from ..engine.traffic.rate_limit import RateLimit
from ..providers.errors import InvalidRequestError


def divided(traffic: Traffic | None, actors: int) -> Traffic | None:
    """Return the traffic options of one of several actors. Each has an equal part of each declared limit.

    Raises `InvalidRequestError` for options that cannot be divided: a budget, and fewer concurrent calls than actors.
    """
    if traffic is None or actors == 1:
        return traffic
    if traffic.budgets:
        raise InvalidRequestError(
            "traffic.budgets", f"cannot be divided among {actors} actors: use 1 actor, or `manystream batch --budget`"
        )
    rates = {key: _part(key, limit, actors) for key, limit in traffic.rates.items()}
    return replace(traffic, rates=rates)


def _part(key: str, limit: RateLimit, actors: int) -> RateLimit:
    """Return one actor's part of a limit."""
    values = {field.name: getattr(limit, field.name) for field in fields(limit)}
    concurrent = limit.concurrent
    if concurrent is not None and concurrent < actors:
        raise InvalidRequestError(
            f"traffic.rates[{key!r}].concurrent", f"must be at least 1 for each of {actors} actors"
        )
    return RateLimit(
        **{
            name: value // actors if name == "concurrent" else value / actors
            for name, value in values.items()
            if value is not None
        }
    )
