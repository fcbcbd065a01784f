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
    if not isinstance(returned, Mapping):
        raise _unsigned(provider, f"returned {type(returned).__name__}, not a mapping of headers")
    own = {name.lower(): value for name, value in unsigned.items()} | {"content-length": str(len(body))}
    new: dict[str, tuple[str, str]] = {}
    for name, value in cast("Mapping[object, object]", returned).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise _unsigned(provider, "returned headers whose names and values are not all texts")
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


def _unsigned(provider: Provider, why: str) -> ProviderError:
    what = f"the sign function of {provider.name!r} {why}"
    return ProviderError(what, category=ErrorCategory.AUTH, retryable=False)
