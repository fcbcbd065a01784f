"""Where the configured providers are, by the program and the environment, and the checks of an engine that opens.

Each error is an `InvalidRequestError` that names the field. The types of the fields have been checked
(`option_rules.py`).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias
from urllib.parse import urlsplit

from ...providers.catalog.profile import Profile
from ...providers.catalog.provider import ProfileURL, Provider, keys_of, placed, without_endpoint
from ...providers.catalog.registry import check_dialect
from ...providers.errors import InvalidRequestError
from ...transport.errors import URLError
from ...transport.url import BaseURL, parse_base_url

OWN_HEADERS = frozenset({"host", "content-length", "transfer-encoding", "connection", "accept-encoding"})
"""Headers that the transport sets. A request may not set them."""


NOWHERE = ("", "")
"""The variable and the address of a provider for which the environment has none."""

Addressed: TypeAlias = tuple[Provider, BaseURL]
"""A checked provider, and its base URL."""


def addressed(providers: Sequence[Provider], environment: Mapping[str, str] | None = None) -> list[Addressed]:
    """Return the providers with their base URLs. Raises `InvalidRequestError` for a provider that cannot be used.

    environment: the variables that may have the address of a provider that was given none; None: none of them.
    """
    found: list[Addressed] = []
    names: set[str] = set()
    for given in providers:
        provider = located(given, environment or {})
        if provider.name in names:
            raise InvalidRequestError("providers", f"two are named {provider.name!r}: give one a name=…")
        if provider.idempotency_header is not None:
            _check_own_header("idempotency_header", provider.idempotency_header, provider.headers)
        session = provider.profile.quirks.session
        if session is not None and session.header:
            _check_own_header("profile.quirks.session.header", session.header, {})
        names.add(provider.name)
        check_dialect(provider.profile)
        source = url_in(environment or {}, given.profile)[0] if isinstance(given.base_url, ProfileURL) else ""
        found.append((provider, _base_url(provider, source)))
    return found


def located(provider: Provider, environment: Mapping[str, str]) -> Provider:
    """Return a provider at the address that the environment has for it, if the program gave none, and with the header
    of the token that the environment has instead of a key. Without such variables, the provider itself is returned.
    """
    profile = provider.profile
    if isinstance(provider.base_url, ProfileURL):
        variable, url = url_in(environment, profile)
        if variable:
            provider = placed(provider, url)
    if provider.api_key is None and not _is_set(environment, provider.profile.key_variables):
        provider = _with_token(provider, environment)
    return provider


def url_in(environment: Mapping[str, str], profile: Profile) -> tuple[str, str]:
    """Return the variable with the address of a profile's provider and that address; two empty texts without one."""
    for each in profile.url_variables:
        variable, slash, path = each.partition("/")
        value = environment.get(variable, "").strip()
        if value:
            return variable, _whole_url(without_endpoint(value, profile.dialect), slash + path, profile.base_url)
    return NOWHERE


def _whole_url(url: str, path: str, usual: str) -> str:
    """Return a URL with the path that belongs behind it, unless it ends with that.

    usual: the URL of the profile. If that is a server on this machine, its scheme and port are those of a URL without
        (`OLLAMA_HOST=0.0.0.0`).
    """
    if "://" not in url and usual.startswith("http://"):
        own = urlsplit(usual)
        host, slash, rest = url.partition("/")
        name, _, port = host.rpartition(":")
        if not port.isdigit() or host.endswith("]"):
            name, port = host, str(own.port or 80)
        url = f"http://{name or own.hostname}:{port}{slash}{rest}"
    where, mark, query = url.partition("?")
    where = where.rstrip("/")
    return f"{where if where.endswith(path) else where + path}{mark}{query}"


def _with_token(provider: Provider, environment: Mapping[str, str]) -> Provider:
    profile = provider.profile
    if not _is_set(environment, profile.token_variables):
        return provider
    provider = copy.copy(provider)
    provider.profile = replace(
        profile,
        key_variables=profile.token_variables,
        quirks=replace(profile.quirks, auth_header="authorization"),
    )
    return provider


def _is_set(environment: Mapping[str, str], variables: Sequence[str]) -> bool:
    return any(environment.get(variable) for variable in variables)


def check_single_keys(providers: Sequence[Provider]) -> None:
    """Raise `InvalidRequestError` for a provider with several keys: they need an engine with traffic control."""
    for position, provider in enumerate(providers):
        if keys_of(provider):
            raise InvalidRequestError(
                f"providers[{position}].api_key", "several keys need an engine with traffic: open_engine(traffic=…)"
            )


def _check_own_header(field: str, name: str, headers: Mapping[str, str]) -> None:
    """Raise `InvalidRequestError` for the name of a header that the engine writes itself, if it cannot have that name.

    headers: the provider's, which it must differ from.
    """
    from ...transport.headers import HeaderError, validate_headers

    if name.lower() in OWN_HEADERS or name.lower() in {other.lower() for other in headers}:
        raise InvalidRequestError(field, f"{name!r} has another use: choose a name of its own")
    try:
        validate_headers([(name, "any")])
    except HeaderError as error:
        raise InvalidRequestError(field, str(error)) from None


def _or_set(provider: Provider) -> str:
    names = " or ".join(each.partition("/")[0] for each in provider.profile.url_variables)
    return f", or the variable {names}" if names else ""


def _base_url(provider: Provider, source: str) -> BaseURL:
    """Return a provider's parsed URL. source: the environment variable that it is from; empty if it is from none."""
    if not provider.base_url:
        raise InvalidRequestError(
            "base_url", f"{provider.name!r} needs one, such as 'https://host/v1'{_or_set(provider)}"
        )
    try:
        return parse_base_url(provider.base_url)
    except URLError as error:
        raise InvalidRequestError("base_url", f"of {provider.name!r}{source and f', from {source}'}: {error}") from None
