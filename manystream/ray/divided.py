"""An actor's part of the limits that a program declares for all actors together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

from .. import InvalidRequestError, RateLimit, Traffic
from ..engine.embedding import find_entries, limits_of
from ..providers.catalog.provider import Provider, keys_of


def divided(
    traffic: Traffic | None, providers: Sequence[Provider], actors: int
) -> tuple[Traffic | None, dict[str, RateLimit]]:
    """Return the traffic options of one of several actors, and the limits that all actors share.

    Rates are shared: each actor leases what it can use. An actor has an equal part of what cannot be shared: of the
    concurrent calls (also those of a shared limit), and of the rates of an entry that covers several API keys, since it
    is one limit for each key.

    Raises `InvalidRequestError` for options that cannot be divided: a budget, and fewer concurrent calls than actors.
    """
    if traffic is None or actors == 1:
        return traffic, {}
    if traffic.budgets:
        raise InvalidRequestError(
            "traffic.budgets",
            f"cannot be divided among {actors} actors: use 1 actor, or `manystream batch --ray --budget`",
        )
    rates = {key: _part(key, limit, actors) for key, limit in traffic.rates.items()}
    shared: dict[str, RateLimit] = {}
    keys = {provider.name: max(1, len(keys_of(provider))) for provider in providers}
    for entry in find_entries(traffic.rates, providers):
        limit = traffic.rates[entry.key]
        is_one = entry.providers is None or sum(keys[name] for name in entry.providers) == 1
        if is_one and limits_of(limit):
            shared[entry.key] = replace(limit, concurrent=rates.pop(entry.key).concurrent)
    return replace(traffic, rates=rates), shared


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
