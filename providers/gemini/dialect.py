"""The Gemini dialect as a value. Knows the header for the key; the other rules are in the parts that it names."""

from __future__ import annotations

from ..dialect import Dialect
from ..provider import Provider
from .errors import decode_error
from .request import encode_request
from .response import decode_response
from .stream import GeminiStream


def auth_headers(provider: Provider, api_key: str) -> list[tuple[str, str]]:
    """Return the key in a header; no header for an empty key. A key in the URL would be written to logs."""
    return [("x-goog-api-key", api_key)] if api_key else []


DIALECT = Dialect(
    name="gemini",
    encode=encode_request,
    decode=decode_response,
    machine=GeminiStream,
    auth_headers=auth_headers,
    decode_error=decode_error,
)
