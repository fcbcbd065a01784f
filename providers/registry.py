"""Which provider a request goes to, and which dialect it is written in.

Knows model names and the configured providers. Must not know what a dialect does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module

from .checks import validate_model
from .dialect import Dialect
from .errors import InvalidRequestError
from .profile import Profile
from .provider import Provider

DIALECT_MODULES: dict[str, str] = {
    "openai-chat": ".openai.chat",
    "openai-responses": ".openai.responses",
    "anthropic": ".anthropic",
    "gemini": ".gemini",
}
"""Dialect name → the package that speaks it."""


class Dialects(Mapping[str, Dialect]):
    """Dialect name → its one instance, loaded at its first use: most programs speak one or two of the four."""

    def __init__(self) -> None:
        self._loaded: dict[str, Dialect] = {}

    def __getitem__(self, name: str) -> Dialect:
        dialect = self._loaded.get(name)
        if dialect is None:
            dialect = self._loaded[name] = import_module(DIALECT_MODULES[name], __package__).DIALECT
        return dialect

    def __iter__(self) -> Iterator[str]:
        return iter(DIALECT_MODULES)

    def __len__(self) -> int:
        return len(DIALECT_MODULES)


DIALECTS = Dialects()


def dialect_of(profile: Profile) -> Dialect:
    """The dialect that a profile gives or names. Raises `InvalidRequestError` for a name that is none of the four."""
    if not isinstance(profile.dialect, str):
        return profile.dialect
    if profile.dialect not in DIALECT_MODULES:
        raise InvalidRequestError(
            "profile.dialect",
            f"no dialect is named {profile.dialect!r}; known are {', '.join(DIALECT_MODULES)}; for another wire format"
            " give the Dialect itself: Profile(dialect=my_dialect)",
        )
    return DIALECTS[profile.dialect]


def select(model: str, providers: Sequence[Provider]) -> tuple[Provider, str]:
    """The provider that a request's `model` names, and the model's name as that provider knows it.

    `"name/model"` goes to the provider of that name, else to the first one whose row has that name or alias; the
    name is taken off. Any other model goes, whole, to the provider that owns the longest known prefix of it, else
    to the only provider there is: so `meta-llama/Llama-3` reaches a lone gateway as it stands, and
    `openrouter/meta-llama/Llama-3` reaches it without the first part. Raises `InvalidRequestError` for `model`.
    """
    validate_model(model)
    name, slash, rest = model.partition("/")
    if slash:
        named = _named(name, providers)
        if named is not None:
            if not rest.strip():
                raise InvalidRequestError("model", f"{model!r} names a provider and no model")
            return named, rest
    owner = _owner(model, providers)
    if owner is not None:
        return owner, model
    if len(providers) == 1:
        return providers[0], model
    raise InvalidRequestError("model", f"no provider is known for {model!r}; {_configured(providers)}")


def _named(name: str, providers: Sequence[Provider]) -> Provider | None:
    for provider in providers:
        if provider.name == name:
            return provider
    for provider in _known_first(providers):
        if provider.profile.name == name or name in provider.profile.aliases:
            return provider
    return None


def _known_first(providers: Sequence[Provider]) -> list[Provider]:
    """Providers with a row of their own before those that stand for unknown servers; else as configured."""
    return sorted(providers, key=lambda provider: provider.profile.generic)


def _owner(model: str, providers: Sequence[Provider]) -> Provider | None:
    """The provider with the longest prefix that fits; of equals a known one, then the one configured first."""
    best: Provider | None = None
    longest = 0
    for provider in _known_first(providers):
        for prefix in provider.profile.prefixes:
            if len(prefix) > longest and model.startswith(prefix):
                best, longest = provider, len(prefix)
    return best


def _configured(providers: Sequence[Provider]) -> str:
    if not providers:
        return "no provider is configured"
    names = ", ".join(provider.name for provider in providers)
    return f"configured are {names}: write '{providers[0].name}/…' to name one"
