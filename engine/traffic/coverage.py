"""Which calls the entries of `Traffic.rates` cover.

Knows the keys' forms and the configured providers' names. Must not know limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...providers.errors import InvalidRequestError
from ...providers.provider import Provider

EVERY_CALL = "*"


@dataclass(slots=True, frozen=True)
class Entry:
    """One key of `rates`.

    providers: the names of those that it covers; None covers all. model: a name, or its beginning and `*`; empty for
    every model.
    """

    key: str
    providers: frozenset[str] | None
    model: str

    def covers(self, provider: str, model: str) -> bool:
        """Whether calls of a model, as its provider knows it, are covered."""
        if self.providers is not None and provider not in self.providers:
            return False
        if self.model.endswith("*"):
            return model.startswith(self.model[:-1])
        return not self.model or self.model == model


def find_entries(keys: Iterable[str], providers: Sequence[Provider]) -> tuple[Entry, ...]:
    """The entries with the providers that they cover. Raises `InvalidRequestError` for one that covers none."""
    entries: list[Entry] = []
    for key in keys:
        if key == EVERY_CALL:
            entries.append(Entry(key, None, ""))
            continue
        word, _, model = key.partition("/")
        names = _named(word, providers)
        if not names:
            configured = ", ".join(repr(provider.name) for provider in providers) or "none"
            raise InvalidRequestError(
                f"traffic.rates[{key!r}]", f"covers no provider; configured are {configured}; '*' covers every call"
            )
        entries.append(Entry(key, names, model))
    return tuple(entries)


def _named(word: str, providers: Sequence[Provider]) -> frozenset[str]:
    """The provider of this name, else all whose profile has it as its name or alias."""
    exact = frozenset(provider.name for provider in providers if provider.name == word)
    return exact or frozenset(
        provider.name for provider in providers if provider.profile.name == word or word in provider.profile.aliases
    )
