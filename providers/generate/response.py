"""Decodes unstreamed answers, with the stream machine: so a streamed answer and a whole one cannot differ."""

from __future__ import annotations

from ..catalog.dialect import MakeId
from ..catalog.provider import Provider
from ..json.json_values import MalformedJSONError, shown
from ..model.provider_error import malformed
from ..model.response import Response
from ..wire.accumulate import concluded
from ..wire.answer_body import answer_loads
from ..wire.answer_limits import ANSWER_LIMITS, AnswerLimits
from ..wire.error_bodies import error_from_object, reported_error
from .stream import STREAM_STATUS, CompletionsStream, SGLangStream, is_answer


def decode_completions(
    body: bytes, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS
) -> Response:
    """Decode an answer of Completions, or of vLLM's generate endpoint. Raises `ProviderError`, also for an error in a
    response with status 200.
    """
    return _decode(body, CompletionsStream(provider, make_id, limits))


def decode_sglang(body: bytes, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS) -> Response:
    """Decode an answer of SGLang's generate endpoint: an object, or a list of one for each choice."""
    return _decode(body, SGLangStream(provider, make_id, limits))


def _decode(body: bytes, machine: CompletionsStream) -> Response:
    try:
        value = answer_loads(body)
    except MalformedJSONError as error:
        raise malformed(f"malformed answer: {error}", body) from None
    reported = reported_error("", value)
    if reported is not None:
        raise error_from_object(reported, http_status=STREAM_STATUS, body=body)
    if not is_answer(value):
        raise malformed(f"malformed answer: {shown(body)} has neither choices nor tokens", body)
    events = machine.take_value(value, body)
    end = events[-1] if machine.ended else machine.take_mark()[-1]
    return concluded(machine.response(), end, body)
