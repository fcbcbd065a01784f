"""The provider for a base URL and a dialect, or for a row of the table of profiles."""

from __future__ import annotations

from collections.abc import Mapping

from .. import InvalidRequestError, Profile, Provider
from ..engine.request.addresses import located
from ..engine.request.credentials import find_key, is_loopback
from ..providers.catalog.profiles import DEFAULT_PROFILES
from ..providers.catalog.provider import DIALECT_CLASSES


def provider_of(row: Profile, url: str | None, environment: Mapping[str, str]) -> Provider:
    """Return the provider of a row, at a base URL, else at the address that the environment has for it, else its own.

    At an address of the environment, a dialect's own provider has the profile of that address.
    """
    is_own = url is None and row == DEFAULT_PROFILES[row.dialect_name][0]
    made = DIALECT_CLASSES[row.dialect_name](base_url=url, profile=None if is_own else row)
    return located(made, environment)


def addresses_in(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of an environment that have addresses of the dialects' own providers."""
    places = (place for row, _ in DEFAULT_PROFILES.values() for place in row.url_variables)
    names = (place.partition("/")[0] for place in places)
    return {name: environment[name] for name in names if name in environment}


def provider_at(url: str, dialect: str, environment: Mapping[str, str]) -> Provider:
    """Return the provider for a URL. If no key is found for a server on this machine, it gets the key `any`.

    dialect: a key of `DIALECT_CLASSES`. Raises `InvalidRequestError`.
    """
    return with_any_key(located(DIALECT_CLASSES[dialect](base_url=url), environment), url, environment)


def with_any_key(provider: Provider, url: str, environment: Mapping[str, str]) -> Provider:
    """Return the provider at a base URL, with the key `any` if it is on this machine and no key is found for it."""
    if not is_loopback(url):
        return provider  # the engine raises an error if there is no key
    try:
        found = find_key(provider, environment)
    except InvalidRequestError:
        found = ""
    return provider if found else type(provider)("any", url, profile=provider.profile)
