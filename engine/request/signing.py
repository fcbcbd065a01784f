"""Signs the head of one attempt with the function that the program gave (`Provider.sign`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from ...providers.catalog.provider import Provider
from ...providers.model.provider_error import ErrorCategory, ProviderError
from ...transport.exchange import WireHead
from ...transport.headers import HeaderError, validate_headers
from ...transport.url import Origin
from .addresses import OWN_HEADERS
from .errors import ends_engine


def sign_head(provider: Provider, origin: Origin, head: WireHead, body: bytes) -> WireHead:
    """Return a head with the headers of a signature.

    Raises `ProviderError` (category AUTH) if the function raises, or returns no headers. The message names the provider
    and shows nothing of the returned values. Exceptions that end the engine, such as `KeyboardInterrupt`, are not
    caught.
    """
    assert provider.sign is not None
    unsigned = {name.decode(): value.decode("latin-1") for name, value in head.headers}
    try:
        returned = cast(
            "object", provider.sign(head.method.decode(), f"{origin}{head.target.decode()}", unsigned, body)
        )
    except BaseException as error:
        if ends_engine(error):
            raise
        raise _unsigned(provider, f"raised {type(error).__name__}") from error
    own = {name.lower(): value for name, value in unsigned.items()} | {"content-length": str(len(body))}
    new: dict[str, tuple[str, str]] = {}
    for name, value in _headers_of(provider, returned):
        if name.lower() not in OWN_HEADERS:
            new[name.lower()] = (name, value)
        elif own.get(name.lower()) != value:
            raise _unsigned(provider, f"returned another {name}, which is decided by the transport")
    try:
        headers = validate_headers(list(new.values()))
    except HeaderError:
        raise _unsigned(provider, "returned a header that cannot be sent") from None
    kept = [header for header in head.headers if header[0].decode().lower() not in new]
    return WireHead(head.method, head.target, [*kept, *headers])


def _headers_of(provider: Provider, returned: object) -> list[tuple[str, str]]:
    """Return the headers that the function returned, as plain texts. Raises `ProviderError`, without what reading them
    raises: its text may quote them."""
    kind, items = type(returned).__name__, cast("list[object] | None", None)
    try:
        if isinstance(returned, Mapping):
            items = [*cast("Mapping[object, object]", returned).items()]
    except BaseException as error:
        if ends_engine(error):
            raise
        raise _unsigned(provider, f"returned {kind}, which raised {type(error).__name__} when it was read") from None
    if items is None:
        raise _unsigned(provider, f"returned {kind}, not a mapping of headers")
    headers: list[tuple[str, str]] = []
    for item in items:
        pair = cast("tuple[object, ...]", item) if isinstance(item, tuple) else ()
        texts = [str.__str__(each) for each in pair if isinstance(each, str)]
        if len(texts) != 2:
            raise _unsigned(provider, "returned headers whose names and values are not all texts")
        headers.append((texts[0], texts[1]))
    return headers


def _unsigned(provider: Provider, why: str) -> ProviderError:
    what = f"the sign function of {provider.name!r} {why}"
    return ProviderError(what, category=ErrorCategory.AUTH, retryable=False)
