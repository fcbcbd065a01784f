"""The Gemini dialect as one object: where its parts meet. Holds no state and no rules of its own."""

from __future__ import annotations

from ..answer_limits import ANSWER_LIMITS, AnswerLimits
from ..dialect import Headers, MakeId, StreamMachine, WireRequest
from ..errors import ProviderError
from ..provider import Provider
from ..request import Request
from ..response import Response
from .errors import decode_error
from .request import encode
from .response import decode
from .stream import GeminiStream


class GeminiDialect:
    """`generateContent` and `streamGenerateContent`. Satisfies `providers.dialect.Dialect`."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return "gemini"

    def auth_headers(self, provider: Provider, api_key: str) -> list[tuple[str, str]]:
        """The key goes into a header, never into the URL, which ends up in logs; none without a key."""
        return [("x-goog-api-key", api_key)] if api_key else []

    def encode(self, request: Request, model: str, provider: Provider, *, stream: bool) -> WireRequest:
        """Serialise. Raises `InvalidRequestError` naming the field that Gemini refuses."""
        return encode(request, model, provider, stream=stream)

    def decode(
        self, body: bytes, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS
    ) -> Response:
        """Read an unstreamed answer. Raises `ProviderError`, also for an error object inside a 200."""
        return decode(body, provider, make_id, limits)

    def machine(self, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS) -> StreamMachine:
        """A machine for one stream."""
        return GeminiStream(provider, make_id, limits)

    def decode_error(self, status: int, headers: Headers, body: bytes, now: float) -> ProviderError:
        """Read an error answer. Never raises."""
        return decode_error(status, headers, body, now)


DIALECT = GeminiDialect()
