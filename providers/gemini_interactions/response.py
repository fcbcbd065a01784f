"""Decodes an unstreamed answer: an interaction with its steps.

It goes through the stream machine, so a streamed answer and the same answer in one piece cannot differ.
"""

from __future__ import annotations

from ..catalog.dialect import MakeId
from ..catalog.json_stream import foreign_answer
from ..catalog.provider import Provider
from ..gemini.errors import read_error
from ..gemini.stream import first_error
from ..json.json_values import MalformedJSONError, shown
from ..model.provider_error import malformed
from ..model.response import Response
from ..wire.accumulate import answer_loads, concluded
from ..wire.answer_limits import ANSWER_LIMITS, AnswerLimits
from ..wire.error_bodies import reported_error
from .stream import InteractionsStream, is_interaction


def decode_response(body: bytes, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS) -> Response:
    """Decode an interaction. Raises `ProviderError` for an error object, and for a body that is no interaction."""
    try:
        value = answer_loads(body)
    except MalformedJSONError as error:
        raise malformed(f"the interaction cannot be read: {error}", body) from None
    if type(value) is not dict or not is_interaction(value):
        if reported_error("", value) is not None:
            raise read_error(value, body)
        foreign = foreign_answer(value, provider.profile.dialect_name, body)
        raise foreign or malformed(f"the answer is no interaction: {shown(body)}", body)
    machine = InteractionsStream(provider, make_id, limits)
    try:
        events = machine.whole(value)
    except MalformedJSONError as error:
        raise malformed(f"{error} in {shown(body)}", body) from None
    return concluded(machine.response(), first_error(events) or events[-1], body)
