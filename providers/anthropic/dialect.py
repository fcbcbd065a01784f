"""The Anthropic dialect as one object: where its parts meet. Holds no state and no rules of its own."""

from __future__ import annotations

from ..answer_limits import ANSWER_LIMITS, AnswerLimits
from ..dialect import Headers, MakeId, StreamMachine, WireRequest
from ..errors import ProviderError
from ..profile import Quirks
from ..provider import Provider
from ..request import Request
from ..response import Response
from .errors import decode_error
from .request import encode_request
from .response import decode_response
from .stream import MessagesStream

KEY_HEADER = "x-api-key"


class AnthropicDialect:
    """Messages requests and answers. Satisfies `providers.dialect.Dialect`."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return "anthropic"

    def auth_headers(self, provider: Provider, api_key: str) -> list[tuple[str, str]]:
        """The key goes into `x-api-key`, or into the one that the profile names instead; none without a key."""
        if not api_key:
            return []
        header = provider.profile.quirks.auth_header
        return [(KEY_HEADER if header == Quirks().auth_header else header, api_key)]

    def encode(self, request: Request, model: str, provider: Provider, *, stream: bool) -> WireRequest:
        """Serialise. Raises `InvalidRequestError` naming the field that Messages cannot carry."""
        return encode_request(request, model, provider, stream=stream)

    def decode(
        self, body: bytes, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS
    ) -> Response:
        """Read an unstreamed answer. Raises `ProviderError`, also for an error object inside a 200."""
        return decode_response(body, provider, make_id, limits)

    def machine(self, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS) -> StreamMachine:
        """A machine for one stream."""
        return MessagesStream(provider, make_id, limits)

    def decode_error(self, status: int, headers: Headers, body: bytes, now: float) -> ProviderError:
        """Read an error answer. Never raises."""
        return decode_error(status, headers, body, now)


DIALECT = AnthropicDialect()
