"""The checks of the configured providers, which an engine makes when it opens.

Each error is an `InvalidRequestError` that names the field. The types of the fields have been checked
(`option_rules.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from ...providers.catalog.provider import Provider, keys_of
from ...providers.catalog.registry import check_dialect
from ...providers.errors import InvalidRequestError
from ...transport.errors import URLError
from ...transport.url import BaseURL, parse_base_url

OWN_HEADERS = frozenset({"host", "content-length", "transfer-encoding", "connection", "accept-encoding"})
"""Headers that the transport sets. A request may not set them."""


Addressed: TypeAlias = tuple[Provider, BaseURL]
"""A checked provider, and its base URL."""


def addressed(providers: Sequence[Provider]) -> list[Addressed]:
    """Return the providers with their base URLs. Raises `InvalidRequestError` for a provider that cannot be used."""
    found: list[Addressed] = []
    names: set[str] = set()
    for provider in providers:
        if provider.name in names:
            raise InvalidRequestError("providers", f"two are named {provider.name!r}: give one a name=…")
        if provider.idempotency_header is not None:
            _check_idempotency_header(provider.idempotency_header, provider.headers)
        names.add(provider.name)
        check_dialect(provider.profile)
        found.append((provider, _base_url(provider)))
    return found


def check_single_keys(providers: Sequence[Provider]) -> None:
    """Raise `InvalidRequestError` for a provider with several keys: they need an engine with traffic control."""
    for position, provider in enumerate(providers):
        if keys_of(provider):
            raise InvalidRequestError(
                f"providers[{position}].api_key", "several keys need an engine with traffic: open_engine(traffic=…)"
            )


def _check_idempotency_header(name: str, headers: Mapping[str, str]) -> None:
    from ...transport.headers import HeaderError, validate_headers

    if name.lower() in OWN_HEADERS or name.lower() in {other.lower() for other in headers}:
        raise InvalidRequestError("idempotency_header", f"{name!r} has another use: choose a name of its own")
    try:
        validate_headers([(name, "any")])
    except HeaderError as error:
        raise InvalidRequestError("idempotency_header", str(error)) from None


def _base_url(provider: Provider) -> BaseURL:
    if not provider.base_url:
        raise InvalidRequestError("base_url", f"{provider.name!r} needs one, such as 'https://host/v1'")
    try:
        return parse_base_url(provider.base_url)
    except URLError as error:
        raise InvalidRequestError("base_url", f"of {provider.name!r}: {error}") from None
