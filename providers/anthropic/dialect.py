"""The Anthropic dialect as a value. Knows the header for the key; the other rules are in the parts that it names."""

from __future__ import annotations

from ..dialect import Dialect
from ..profile import Quirks
from ..provider import Provider
from .errors import decode_error
from .request import encode_request
from .response import decode_response
from .stream import MessagesStream

KEY_HEADER = "x-api-key"


def auth_headers(provider: Provider, api_key: str) -> list[tuple[str, str]]:
    """Return the key in `x-api-key`, or in the header that the profile names; no header for an empty key."""
    if not api_key:
        return []
    header = provider.profile.quirks.auth_header
    return [(KEY_HEADER if header == Quirks().auth_header else header, api_key)]


DIALECT = Dialect(
    name="anthropic",
    encode=encode_request,
    decode=decode_response,
    machine=MessagesStream,
    auth_headers=auth_headers,
    decode_error=decode_error,
)
