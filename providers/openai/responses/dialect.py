"""The OpenAI Responses dialect as a value. Has no rules of its own.

It uses `Dialect`'s defaults: the key is a bearer token, and `error_bodies` reads the errors.
"""

from __future__ import annotations

from ...catalog.dialect import Dialect, StoredAnswers
from .request import PATH, encode_request
from .response import UNFINISHED, decode_response
from .stream import ResponsesStream

DIALECT = Dialect(
    name="openai-responses",
    encode=encode_request,
    decode=decode_response,
    machine=ResponsesStream,
    stored=StoredAnswers(
        path=lambda provider: PATH,
        member="response",
        position="sequence_number",
        after="starting_after",
        unfinished=UNFINISHED,
    ),
)
