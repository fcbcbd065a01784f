"""The OpenAI Chat dialect as a value. Has no rules of its own.

It uses `Dialect`'s defaults: the key is a bearer token, and `error_bodies` reads the errors.
"""

from __future__ import annotations

from ...catalog.dialect import Dialect
from .request import encode_request
from .response import decode_response
from .stream import ChatStream

DIALECT = Dialect(
    name="openai-chat",
    encode=encode_request,
    decode=decode_response,
    machine=ChatStream,
    options=frozenset({"return_tokens", "logprobs"}),
    served=(("POST", r"(?:/v1)?/chat/completions"),),
)
