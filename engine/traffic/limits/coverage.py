"""Parses the keys of `Traffic.rates`, and decides which calls each entry covers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ....providers.catalog.provider import Provider
from ....providers.errors import InvalidRequestError

EVERY_CALL = "*"


@dataclass(slots=True, frozen=True)
class Entry:
    """One parsed key of `rates`.

    key: the key as the program wrote it.
    providers: the names of the covered providers; None: all.
    model: a model's name, or the beginning of names and `*`; "": every model.
    """

    key: str
    providers: frozenset[str] | None
    model: str

    def covers(self, provider: str, model: str) -> bool:
        """Return True if the entry covers calls to `model` of `provider`.

        provider: the name of the configured provider.
        model: the name that the provider uses for the model.
        """
        if self.providers is not None and provider not in self.providers:
            return False
        if self.model.endswith("*"):
            return model.startswith(self.model[:-1])
        return not self.model or self.model == model


def find_entries(keys: Iterable[str], providers: Sequence[Provider]) -> tuple[Entry, ...]:
    """Parse the keys into entries. Raises `InvalidRequestError` for a key that covers no provider."""
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
    """Return the name of the provider called `word`; else the names of all whose profile has this name or alias."""
    exact = frozenset(provider.name for provider in providers if provider.name == word)
    return exact or frozenset(
        provider.name for provider in providers if provider.profile.name == word or word in provider.profile.aliases
    )
