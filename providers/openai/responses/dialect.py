"""The Responses dialect as one object: where its parts meet. Holds no state and no rules of its own."""

from __future__ import annotations

from ...answer_limits import ANSWER_LIMITS, AnswerLimits
from ...dialect import Headers, MakeId, StreamMachine, WireRequest
from ...error_bodies import decode_error
from ...errors import ProviderError
from ...provider import Provider
from ...request import Request
from ...response import Response
from .request import encode_request
from .response import decode
from .stream import ResponsesStream


class ResponsesDialect:
    """Responses requests and answers. Satisfies `providers.dialect.Dialect`."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return "openai-responses"

    def auth_headers(self, provider: Provider, api_key: str) -> list[tuple[str, str]]:
        """The key as a bearer token (RFC 6750), or bare in the header that the profile names; none without a key."""
        if not api_key:
            return []
        header = provider.profile.quirks.auth_header
        return [(header, f"Bearer {api_key}" if header == "authorization" else api_key)]

    def encode(self, request: Request, model: str, provider: Provider, *, stream: bool) -> WireRequest:
        """Serialise. Raises `InvalidRequestError` naming the field that Responses cannot carry."""
        return encode_request(request, model, provider, stream=stream)

    def decode(
        self, body: bytes, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS
    ) -> Response:
        """Read an unstreamed answer. Raises `ProviderError`, also for a failure that a 200 reports."""
        return decode(body, provider, make_id, limits)

    def machine(self, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS) -> StreamMachine:
        """A machine for one stream."""
        return ResponsesStream(provider, make_id, limits)

    def decode_error(self, status: int, headers: Headers, body: bytes, now: float) -> ProviderError:
        """Read an error answer. Never raises."""
        return decode_error(status, headers, body, now)


DIALECT = ResponsesDialect()
