"""The chat dialect's front: each operation in one line."""

from __future__ import annotations

from ...answer_limits import ANSWER_LIMITS, AnswerLimits
from ...dialect import Dialect, Headers, MakeId, StreamMachine, WireRequest
from ...error_bodies import decode_error
from ...errors import ProviderError
from ...provider import Provider
from ...request import Request
from ...response import Response
from .request import encode_request
from .response import decode_response
from .stream import ChatStream

AUTHORIZATION = "authorization"


class ChatDialect:
    """OpenAI Chat Completions. Satisfies `Dialect`."""

    name = "openai-chat"

    def auth_headers(self, provider: Provider, api_key: str) -> list[tuple[str, str]]:
        """`Authorization: Bearer …`, or the key bare in the header that the profile names; none without a key."""
        if not api_key:
            return []
        header = provider.profile.quirks.auth_header
        return [(header, f"Bearer {api_key}" if header == AUTHORIZATION else api_key)]

    def encode(self, request: Request, model: str, provider: Provider, *, stream: bool) -> WireRequest:
        """Serialise. Raises `InvalidRequestError`."""
        return encode_request(request, model, provider, stream=stream)

    def decode(
        self, body: bytes, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS
    ) -> Response:
        """Read an unstreamed answer. Raises `ProviderError`."""
        return decode_response(body, provider, make_id, limits)

    def machine(self, provider: Provider, make_id: MakeId, limits: AnswerLimits = ANSWER_LIMITS) -> StreamMachine:
        """A machine for one stream."""
        return ChatStream(provider, make_id, limits)

    def decode_error(self, status: int, headers: Headers, body: bytes, now: float) -> ProviderError:
        """Read an error answer. Never raises."""
        return decode_error(status, headers, body, now)


DIALECT: Dialect = ChatDialect()
