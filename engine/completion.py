"""How a call ended: the final record, made exactly once per call. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ..providers.errors import ErrorCategory, ProviderError
from ..providers.response import Response

NO_WAIT: Mapping[str, float] = MappingProxyType({})
"""What a call has waited for that did not wait: one object for all."""


@dataclass(slots=True)
class Timings:
    """When things happened, in seconds since the call was started; None where it never came to that. Those of an
    attempt are of the last one.

    queued: the wait for a connection ended (a fresh one had to be opened, or an idle one was taken).
    connected: the connection was ready.
    first_byte: the response's first byte.
    first_token: the first event that carries content.
    finished: the call ended.
    waited: seconds that the call waited before it was sent, over all attempts, by reason. Reasons that it did not wait
        for are left out. `quota`: for a limit on requests or tokens. `slot`: for a limit on calls at a time.
        `connection`: for a free connection.
    """

    queued: float | None = None
    connected: float | None = None
    first_byte: float | None = None
    first_token: float | None = None
    finished: float | None = None
    waited: Mapping[str, float] = field(default_factory=lambda: NO_WAIT)


@dataclass(slots=True)
class Completion:
    """How a call ended.

    success: a whole answer came.
    http_status: of the last response; 0 where there was none.
    response: the answer; partial where the call failed part-way, None where nothing had come.
    error: why it failed.
    attempts: how many times the request was sent, or was to be sent.
    timings: when things happened.
    request_id: the provider's id for the request.
    headers: the last response's headers, names in lower case (rate limits are here).
    resent: how many of the attempts followed at once on one whose kept-alive connection the server had closed before
        the request reached it.
    """

    success: bool
    http_status: int = 0
    response: Response | None = None
    error: ProviderError | None = None
    attempts: int = 0
    timings: Timings = field(default_factory=Timings)
    request_id: str | None = None
    headers: dict[str, str] = field(default_factory=dict[str, str])
    resent: int = 0

    @property
    def error_category(self) -> ErrorCategory | None:
        """The error's category; None on success."""
        return self.error.category if self.error is not None else None

    @property
    def error_message(self) -> str | None:
        """The error's message; None on success."""
        return self.error.message if self.error is not None else None

    @property
    def retry_after_ms(self) -> int:
        """The server's hint in milliseconds; -1 where it gave none."""
        return self.error.retry_after_ms if self.error is not None else -1

    def response_or_raise(self) -> Response:
        """The whole answer. Raises the call's `ProviderError` where it failed."""
        if self.error is not None:
            raise self.error.with_traceback(None)  # without the frames of an earlier raise
        assert self.response is not None, "a call that did not fail has a response"
        return self.response
