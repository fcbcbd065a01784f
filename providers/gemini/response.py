"""Decodes an unstreamed Gemini answer.

A body is one chunk, or an array of chunks (which `streamGenerateContent` sends without `alt=sse`). It goes through the
stream machine, so a streamed answer and the same answer in one piece cannot differ. Only the end differs: a complete
body needs no `finishReason`.
"""

from __future__ import annotations

from ..catalog.dialect import MakeId
from ..catalog.json_stream import foreign_answer
from ..catalog.provider import FUNCTION, Gemini, Provider
from ..json.json_values import MalformedJSONError, loads, shown
from ..model.provider_error import NO_ANSWER_CODE, ProviderError, malformed
from ..model.response import Response
from ..model.rules import instance, optional
from ..wire.accumulate import answer_loads, concluded
from ..wire.answer_limits import ANSWER_LIMITS, AnswerLimits
from ..wire.error_bodies import ERROR, reported_error
from .stream import READ_IN_CHUNK, GeminiStream, first_error

ANSWER_MEMBERS = READ_IN_CHUNK | {"promptFeedback"}
"""An object with members, and none of these, is no answer of Gemini."""


def decode_response(body: bytes, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS) -> Response:
    """Decode an answer. Raises `ProviderError` for an error object, a refused prompt, or a body that is no answer."""
    try:
        value = answer_loads(body)
    except MalformedJSONError as error:
        raise malformed(f"Gemini's answer cannot be read: {error}", body) from None
    machine = GeminiStream(provider, make_id, limits)
    reported = reported_error("", value) if type(value) is dict else None
    if type(value) is dict and value.keys().isdisjoint(ANSWER_MEMBERS) and reported is None:
        foreign = foreign_answer(value, "gemini", body)
        raise foreign or malformed(f"the answer is no GenerateContentResponse: {shown(body)}", body)
    failed = first_error(machine.take(value, body))
    end = machine.finish()[-1] if failed is None else failed
    return concluded(machine.response(), end, body)


def parse_response(body: bytes | str, make_id: MakeId | None = None) -> Response:
    """Decode an answer of the first-party provider, from the body alone. Raises `ProviderError` for an error, a refused
    prompt, or a body that is no answer.

    An answer without candidates or parts is an empty `Response` here. A call with such an answer fails. `[]`, `null`
    and an empty error are no answers.

    make_id: makes ids for tool calls without one. Default: 22 characters from the system's cryptographic source, new
        for each call.
    """
    instance(str, bytes).check(body, "body")
    optional(instance(FUNCTION, must="a function")).check(make_id, "make_id")
    data = body.encode() if isinstance(body, str) else body
    try:
        return decode_response(data, Gemini(), make_id or new_tool_call_id)
    except ProviderError as error:
        if error.provider_code != NO_ANSWER_CODE or not _may_be_empty(data):
            raise
        return error.partial or Response()


def _may_be_empty(body: bytes) -> bool:
    """Return whether a body that says nothing has the form of an answer: an object, or several, without an error."""
    value = loads(body) if body.strip() else None
    chunks = value if type(value) is list else [value]
    return bool(chunks) and all(type(chunk) is dict and chunk.get(ERROR) is None for chunk in chunks)


def new_tool_call_id() -> str:
    """Return an id for a tool call that came without one: 22 characters of `A-Z a-z 0-9 - _` from the system's
    cryptographic source, different on every call.
    """
    # The only randomness in this package, for callers without an engine that passes in an id maker.
    from secrets import token_urlsafe

    return token_urlsafe(16)
