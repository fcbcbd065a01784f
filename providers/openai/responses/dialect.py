"""The OpenAI Responses dialect as a value. Has no rules of its own.

It uses `Dialect`'s defaults: the key is a bearer token, and `error_bodies` reads the errors.
"""

from __future__ import annotations

from ...catalog.dialect import Dialect, StoredAnswers
from ...wire.own_errors import responses_error
from .request import PATH, WINDOW_PRICES, encode_request, encode_turn
from .response import UNFINISHED, decode_response
from .stream import ResponsesStream

DIALECT = Dialect(
    name="openai-responses",
    encode=encode_request,
    encode_turn=encode_turn,
    decode=decode_response,
    machine=ResponsesStream,
    stored=StoredAnswers(
        path=lambda provider: PATH,
        member="response",
        position="sequence_number",
        after="starting_after",
        unfinished=UNFINISHED,
        place="output_index",
        item="item_id",
        padding="obfuscation",
        windows=WINDOW_PRICES,
    ),
    served=(
        ("POST", r"(?:/v1)?/responses"),
        ("POST", r"(?:/v1)?(?P<rest>/responses/(?:input_tokens|compact))"),
        ("POST", r"(?:/v1)?(?P<rest>/responses/(?P<answer>[^/]+)/cancel)"),
        ("GET DELETE", r"(?:/v1)?(?P<rest>/responses/(?P<answer>[^/]+)(?:/input_items)?)"),
    ),
    own_error=responses_error,
    error_name="error",
)
