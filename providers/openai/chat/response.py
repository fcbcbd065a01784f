"""Decodes unstreamed chat answers."""

from __future__ import annotations

from ...catalog.dialect import MakeId
from ...catalog.json_stream import foreign_answer
from ...catalog.provider import Provider
from ...json.json_values import MalformedJSONError, items
from ...model.events import ErrorEvent
from ...model.provider_error import malformed
from ...model.response import Response
from ...wire.accumulate import Accumulator, answer_object, concluded
from ...wire.answer_limits import ANSWER_LIMITS, AnswerLimits
from ...wire.error_bodies import error_from_object
from .answer import ChatAnswer
from .stream import error_in

MEMBERS_OF_A_COMPLETION = ("id", "object", "model", "usage")
"""A body with one of these and without choices is a completion that says nothing. Any other is no completion."""

BODY_STATUS = 200
"""The HTTP status of an error inside a successful response."""


def decode_response(body: bytes, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS) -> Response:
    """Decode an unstreamed answer. Raises `ProviderError`, also for an error in a response with status 200."""
    try:
        chunk = answer_object(body)
    except MalformedJSONError as error:
        raise malformed(f"malformed answer: {error}", body) from None
    answer = Accumulator(limits)
    answer.count.check_choices(len(items(chunk, "choices")))  # before any choice is read
    reported = error_in("", chunk)
    failure = None if reported is None else error_from_object(reported, http_status=BODY_STATUS, body=body)
    content = ChatAnswer(answer, provider.maker, make_id, whole=True)
    if failure is not None and not chunk.get("choices"):
        content.take_usage(chunk)
        return concluded(answer.response(), ErrorEvent(failure), body)
    if chunk.get("choices") is None:
        foreign = foreign_answer(chunk, "openai-chat", body)
        if foreign is not None:
            raise foreign
        incomplete = malformed("malformed answer: a chat completion must have choices", body)
        incomplete.retryable = any(map(chunk.get, MEMBERS_OF_A_COMPLETION))
        raise incomplete
    try:
        content.take(chunk, [])
    except MalformedJSONError as error:
        raise failure or malformed(f"malformed answer: {error}", body) from None
    if failure is not None:
        content.settle()
        return concluded(answer.response(), ErrorEvent(failure), body)
    *_, end = content.done()
    return concluded(answer.response(), end, body)
