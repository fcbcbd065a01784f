"""The Anthropic dialect as a value."""

from __future__ import annotations

from ..catalog.dialect import Dialect
from ..catalog.provider import Provider
from ..wire.own_errors import anthropic_error
from ..wire.wire_head import key_headers
from .errors import decode_error
from .request import encode_request
from .response import decode_response
from .stream import MessagesStream

KEY_HEADER = "x-api-key"


def auth_headers(provider: Provider, api_key: str) -> list[tuple[str, str]]:
    """Return the header with the key; none for an empty key."""
    return key_headers(provider.profile.quirks, api_key, KEY_HEADER)


DIALECT = Dialect(
    name="anthropic",
    encode=encode_request,
    decode=decode_response,
    machine=MessagesStream,
    auth_headers=auth_headers,
    decode_error=decode_error,
    served=(("POST", r"(?:/v1)?/messages"), ("POST", r"(?:/v1)?(?P<rest>/messages/count_tokens)")),
    keep_alive=b'event: ping\ndata: {"type": "ping"}\n\n',
    own_error=anthropic_error,
    error_name="error",
)
