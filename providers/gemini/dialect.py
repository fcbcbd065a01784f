"""The Gemini dialect as a value: where its parts meet. Holds no rules but where the key goes."""

from __future__ import annotations

from ..dialect import Dialect
from ..provider import Provider
from .errors import decode_error
from .request import encode_request
from .response import decode_response
from .stream import GeminiStream


def auth_headers(provider: Provider, api_key: str) -> list[tuple[str, str]]:
    """The key in a header, never in the URL, which ends up in logs; none without a key."""
    return [("x-goog-api-key", api_key)] if api_key else []


DIALECT = Dialect(
    name="gemini",
    encode=encode_request,
    decode=decode_response,
    machine=GeminiStream,
    auth_headers=auth_headers,
    decode_error=decode_error,
)
