"""Everything that can go wrong with a call, as one value, and the tables that classify it."""

from __future__ import annotations

import enum
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING

from ..errors import ManystreamError

if TYPE_CHECKING:
    from .response import Response

BODY_LIMIT = 4096
"""An error keeps at most this many bytes of the response's body."""


class ErrorCategory(enum.StrEnum):
    """Why a call did not succeed, in the same words for every provider."""

    AUTH = "auth"
    RATE_LIMIT = "rate_limit"
    INVALID_ARG = "invalid_arg"
    NOT_FOUND = "not_found"
    SERVER = "server"
    TIMEOUT = "timeout"
    CONTENT_FILTER = "content_filter"
    NETWORK = "network"
    CANCELLED = "cancelled"
    CALLBACK = "callback"
    BUDGET = "budget"
    UNKNOWN = "unknown"


STATUS_CATEGORY: dict[int, ErrorCategory] = {
    0: ErrorCategory.NETWORK,
    400: ErrorCategory.INVALID_ARG,
    401: ErrorCategory.AUTH,
    403: ErrorCategory.AUTH,
    404: ErrorCategory.NOT_FOUND,
    408: ErrorCategory.TIMEOUT,
    410: ErrorCategory.NOT_FOUND,
    413: ErrorCategory.INVALID_ARG,
    422: ErrorCategory.INVALID_ARG,
    429: ErrorCategory.RATE_LIMIT,
    498: ErrorCategory.SERVER,
    500: ErrorCategory.SERVER,
    501: ErrorCategory.UNKNOWN,
    502: ErrorCategory.SERVER,
    503: ErrorCategory.SERVER,
    504: ErrorCategory.TIMEOUT,
    505: ErrorCategory.UNKNOWN,
    529: ErrorCategory.SERVER,
}
"""HTTP status → category. 0 means that there was no HTTP response, and 498 that Groq's flex tier is full. With 501 and
505 a server says that it cannot do what was asked, and it cannot do it later either.

Any other status from 500 to 599 is SERVER, such as Cloudflare's 520 to 530. All others are UNKNOWN.
"""

RETRYABLE: frozenset[ErrorCategory] = frozenset(
    {ErrorCategory.RATE_LIMIT, ErrorCategory.SERVER, ErrorCategory.TIMEOUT, ErrorCategory.NETWORK}
)
"""Categories for which another attempt can succeed. A used-up quota is RATE_LIMIT and still not retryable: the error's
code shows it.
"""

ABORTED_CODE = "aborted"
"""The `provider_code` of an answer that an operator of the server stopped: a pause, new weights, a request to abort."""
NO_ANSWER_CODE = "no_answer"
"""The `provider_code` of an answer that ended without content, tool call, refusal or finish reason."""


class ProviderError(ManystreamError):
    """One failure of one call. `str(error)` is one line: category, status, provider, model, host, message and hint.

    category: why, in the words that all providers share.
    http_status: the response's status; 0 if there was no HTTP response.
    message: for a person to read; never contains a key.
    provider_code: the provider's own code or type, as sent.
    retry_after_ms: the server's hint in milliseconds; -1 if it sent none.
    retryable: whether another attempt of the same request may succeed.
    request_id: the provider's id for this request, for its support desk.
    body: the first `BODY_LIMIT` bytes of the body or event that reported the error.
    context_overflow: whether the prompt is too long for the model.
    partial: the part of a whole answer that came with the error, from a dialect's decoder; not compared. The engine
        moves it to `Completion.response`.
    provider: the provider's name. Empty until the call has failed; not compared.
    model: the model's name. Empty until the call has failed; not compared.
    host: the server's host name. Empty until the call has failed; not compared.
    """

    __slots__ = (
        "body",
        "category",
        "context_overflow",
        "host",
        "http_status",
        "message",
        "model",
        "partial",
        "provider",
        "provider_code",
        "request_id",
        "retry_after_ms",
        "retryable",
    )

    def __init__(
        self,
        message: str,
        *,
        category: ErrorCategory,
        http_status: int = 0,
        provider_code: str | None = None,
        retry_after_ms: int = -1,
        retryable: bool | None = None,
        request_id: str | None = None,
        body: bytes = b"",
        context_overflow: bool = False,
    ) -> None:
        self.args: tuple[object, ...] = (message,)  # all that `super().__init__` does, at a fifth of the cost
        self.message: str = message
        self.category: ErrorCategory = category
        self.http_status: int = http_status
        self.provider_code: str | None = provider_code
        self.retry_after_ms: int = retry_after_ms
        self.retryable: bool = category in RETRYABLE if retryable is None else retryable
        self.request_id: str | None = request_id
        self.body: bytes = body[:BODY_LIMIT]
        self.context_overflow: bool = context_overflow
        self.partial: Response | None = None
        self.provider: str = ""
        self.model: str = ""
        self.host: str = ""

    def __eq__(self, other: object) -> bool:
        return _compared(self) == _compared(other) if isinstance(other, ProviderError) else NotImplemented

    def __hash__(self) -> int:
        return hash(_compared(self))

    def __str__(self) -> str:
        facts = [
            self.category.value,
            f"HTTP {self.http_status}" if self.http_status else "",
            f"provider {self.provider}" if self.provider else "",
            f"model {self.model}" if self.model else "",
            f"host {self.host}" if self.host else "",
        ]
        hint = f" (retry after {self.retry_after_ms / 1000:g} s)" if self.retry_after_ms >= 0 else ""
        return " ".join(f"{', '.join(filter(None, facts))}: {self.message}{hint}".split())

    def __repr__(self) -> str:
        code = f", provider_code={self.provider_code!r}" if self.provider_code else ""
        return (
            f"ProviderError({self.message!r}, category={self.category.name},"
            f" http_status={self.http_status}{code}, retryable={self.retryable})"
        )


_compared: Callable[[ProviderError], object] = attrgetter(
    "category", "http_status", "message", "provider_code", "retry_after_ms", "retryable", "request_id", "body",
    "context_overflow",
)  # fmt: skip


def category_of_status(status: int) -> ErrorCategory:
    """Return the category of an HTTP status, for a body that has no better information."""
    other = ErrorCategory.SERVER if 500 <= status <= 599 else ErrorCategory.UNKNOWN
    return STATUS_CATEGORY.get(status, other)


def malformed(what: str, data: bytes = b"") -> ProviderError:
    """Return the error for an event or body that cannot be parsed. It is not retryable: the answer had begun.

    what: the error's message.
    data: the event or body.
    """
    return ProviderError(what, category=ErrorCategory.SERVER, retryable=False, body=data)


def aborted(raw: str | None) -> ProviderError:
    """Return the error for an answer that an operator of the server stopped. Another attempt would begin it again.

    raw: the server's own word for it.
    """
    what = f"the server stopped the answer before its end (finish reason {raw!r})"
    return ProviderError(
        what, category=ErrorCategory.SERVER, http_status=200, provider_code=ABORTED_CODE, retryable=False
    )


def broken(raw: str | None, details: str = "") -> ProviderError:
    """Return the error for an answer whose generation broke. Another attempt may bring the whole answer.

    raw: the server's own word for it, which becomes the error's code.
    details: what the server says about it.
    """
    what = f"the generation of the answer broke (finish reason {raw!r}){details and ': ' + details}"
    return ProviderError(what, category=ErrorCategory.SERVER, http_status=200, provider_code=raw)


def no_answer(body: bytes = b"") -> ProviderError:
    """Return the error for an answer that has ended without saying anything. Another attempt may bring an answer.

    body: the answer's body; of a stream, the data of its last event.
    """
    what = "the server ended its answer without content, tool call, refusal or finish reason"
    return ProviderError(what, category=ErrorCategory.SERVER, http_status=200, provider_code=NO_ANSWER_CODE, body=body)


def truncated(what: str = "truncated stream") -> ProviderError:
    """Return the error for a stream that ended without its dialect's terminal marker."""
    return ProviderError(what, category=ErrorCategory.NETWORK)
