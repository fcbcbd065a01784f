"""The OpenAI Chat dialect as a value: where its parts meet. Holds no rules of its own.

The key goes as a bearer token, and `error_bodies` reads the errors: `Dialect`'s defaults.
"""

from __future__ import annotations

from ...dialect import Dialect
from .request import encode_request
from .response import decode_response
from .stream import ChatStream

DIALECT = Dialect(name="openai-chat", encode=encode_request, decode=decode_response, machine=ChatStream)
