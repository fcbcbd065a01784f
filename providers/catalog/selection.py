"""Which provider a request is sent to, and the model's name there."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import InvalidRequestError
from ..model.request_rules import validate_model
from .provider import Provider


def select(model: str, providers: Sequence[Provider]) -> tuple[Provider, str]:
    """Return the provider that a request's `model` selects, and the model's name as that provider knows it.

    1. `"name/model"` selects the provider with that name, else the first whose profile has that name or alias. The
       name and the slash are removed.
    2. Any other model selects the provider whose profile has the longest matching prefix. The name is not changed.
    3. If no prefix matches and there is only one provider, that one is selected. So `meta-llama/Llama-3` reaches a
       single gateway unchanged, and `openrouter/meta-llama/Llama-3` reaches it without the first part.

    Raises `InvalidRequestError` for `model`.
    """
    validate_model(model)
    name, slash, rest = model.partition("/")
    if slash:
        found = named(name, providers)
        if found is not None:
            if not rest.strip():
                raise InvalidRequestError("model", f"{model!r} names a provider and no model")
            return found, rest
    owner = _owner(model, providers)
    if owner is not None:
        return owner, model
    if len(providers) == 1:
        return providers[0], model
    raise InvalidRequestError("model", f"no provider is known for {model!r}; {configured(providers)}")


def named(name: str, providers: Sequence[Provider]) -> Provider | None:
    """Return the provider with this name, else the first whose profile has it as name or alias."""
    for provider in providers:
        if provider.name == name:
            return provider
    for provider in _known_first(providers):
        if provider.profile.name == name or name in provider.profile.aliases:
            return provider
    return None


def _known_first(providers: Sequence[Provider]) -> list[Provider]:
    """Return the providers, those with a profile of their own first, generic ones last, otherwise as configured."""
    return sorted(providers, key=lambda provider: provider.profile.generic)


def _owner(model: str, providers: Sequence[Provider]) -> Provider | None:
    """Return the provider with the longest matching prefix, or None. Of equal ones a known profile wins, then the first
    configured.
    """
    best: Provider | None = None
    longest = 0
    for provider in _known_first(providers):
        for prefix in provider.profile.prefixes:
            if len(prefix) > longest and model.startswith(prefix):
                best, longest = provider, len(prefix)
    return best


def configured(providers: Sequence[Provider]) -> str:
    """Return the names of the configured providers, for an error."""
    if not providers:
        return "no provider is configured"
    names = ", ".join(provider.name for provider in providers)
    return f"configured are {names}: write '{providers[0].name}/…' to name one"
