"""A whole Gemini answer → `Response`.

A body is one chunk, or an array of chunks (what `streamGenerateContent` sends without `alt=sse`), so it is run
through the stream machine: a streamed answer and the same answer in one piece cannot differ. Only the end differs:
a body that is whole needs no `finishReason` to prove it.
"""

from __future__ import annotations

from ..answer_limits import ANSWER_LIMITS, AnswerLimits
from ..dialect import MakeId
from ..errors import malformed
from ..json_values import MalformedJSONError, exact_loads
from ..provider import Gemini, Provider
from ..response import Response
from .stream import GeminiStream, first_error


def decode_response(body: bytes, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS) -> Response:
    """Read an answer. Raises `ProviderError`: for an error object, a refused prompt, or what is no answer at all."""
    try:
        value = exact_loads(body)
    except MalformedJSONError as error:
        raise malformed(f"Gemini's answer cannot be read: {error}", body) from None
    machine = GeminiStream(provider, make_id, limits)
    failed = first_error(machine.take(value, body))
    if failed is not None:
        raise failed.error
    machine.finish()
    return machine.response()


def parse_response(body: bytes | str, make_id: MakeId | None = None) -> Response:
    """Read an answer of which only the body is known, as the first-party provider's. Raises `ProviderError`.

    make_id: gives ids to tool calls that came without one; by default 22 characters from the system's cryptographic
    source, new for each call.
    """
    return decode_response(body.encode() if isinstance(body, str) else body, Gemini(), make_id or _new_id)


def _new_id() -> str:
    # The only chance in this package, for callers who have no engine that hands an id maker in.
    from secrets import token_urlsafe

    return token_urlsafe(16)
