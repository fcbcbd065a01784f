"""The Gemini dialect as a value."""

from __future__ import annotations

from ..catalog.dialect import Dialect
from ..catalog.provider import Provider
from ..wire.own_errors import google_error
from ..wire.wire_head import key_headers
from .errors import decode_error
from .request import encode_request
from .response import decode_response
from .stream import GeminiStream

KEY_HEADER = "x-goog-api-key"


def auth_headers(provider: Provider, api_key: str) -> list[tuple[str, str]]:
    """Return the header with the key; none for an empty key. A key in the URL would be written to logs."""
    return key_headers(provider.profile.quirks, api_key, KEY_HEADER)


DIALECT = Dialect(
    name="gemini",
    encode=encode_request,
    decode=decode_response,
    machine=GeminiStream,
    auth_headers=auth_headers,
    decode_error=decode_error,
    served=(
        ("POST", r"(?:/v1[a-z]*)?/models/(?P<model>.+):(?P<method>generateContent|streamGenerateContent)"),
        ("GET", r"/v1[a-z]+(?P<rest>/models(?:/[^/]+)?)"),
        ("POST", r"(?:/v1[a-z]*)?/models/(?P<model>.+)(?P<rest>:countTokens)"),
    ),
    keep_alive=b"\n",  # google-genai takes a comment for a part of the answer
    own_error=google_error,
)
