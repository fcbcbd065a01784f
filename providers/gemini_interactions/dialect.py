"""The Interactions dialect as a value."""

from __future__ import annotations

from ..catalog.dialect import Dialect, StoredAnswers
from ..gemini.dialect import auth_headers
from ..gemini.errors import decode_error
from ..wire.own_errors import google_error
from .request import NAME, REVISION, encode_request, interactions_path
from .response import decode_response
from .stream import UNFINISHED, InteractionsStream

DIALECT = Dialect(
    name=NAME,
    encode=encode_request,
    decode=decode_response,
    machine=InteractionsStream,
    auth_headers=auth_headers,
    decode_error=decode_error,
    stored=StoredAnswers(
        path=interactions_path,
        member="interaction",
        position="event_id",
        after="last_event_id",
        unfinished=UNFINISHED,
        headers=REVISION,
    ),
    served=(
        ("POST", r"(?:/v1[a-z]*)?/interactions"),
        ("POST", r"(?:/v1[a-z]*)?(?P<rest>/interactions/(?P<answer>[^/]+)/cancel)"),
        ("GET DELETE", r"(?:/v1[a-z]*)?(?P<rest>/interactions/(?P<answer>[^/]+))"),
    ),
    own_error=google_error,
    error_name="error",
)
