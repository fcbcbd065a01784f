"""The Interactions dialect as a value."""

from __future__ import annotations

from ..gemini.dialect import auth_headers
from ..gemini.errors import decode_error
from ..wire.dialect import Dialect
from .request import NAME, encode_request
from .response import decode_response
from .stream import InteractionsStream

DIALECT = Dialect(
    name=NAME,
    encode=encode_request,
    decode=decode_response,
    machine=InteractionsStream,
    auth_headers=auth_headers,
    decode_error=decode_error,
)
