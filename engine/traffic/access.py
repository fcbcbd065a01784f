"""One key of one provider, and what prepares requests with it."""

from __future__ import annotations

from dataclasses import dataclass

from ...providers.catalog.provider import Provider, keys_of
from ..request.preparer import Preparer


@dataclass(slots=True, frozen=True)
class Access:
    """One key of one provider.

    name: the provider's name; with several keys also the key's position, such as `openai[1]`.
    provider: the provider with this key alone.
    preparer: prepares requests with this key.
    """

    name: str
    provider: Provider
    preparer: Preparer


def accesses_of(provider: Provider, preparer: Preparer) -> tuple[Access, ...]:
    """Return one access for each key of a provider. preparer: the engine's, which knows the provider."""
    keys = keys_of(provider)
    if not keys:
        return (Access(provider.name, provider, preparer),)
    found: list[Access] = []
    for position, key in enumerate(keys):
        own, single = preparer.with_key(provider, key)
        found.append(Access(f"{provider.name}[{position}]", single, own))
    return tuple(found)
