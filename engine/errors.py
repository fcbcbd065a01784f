"""Transport's failures as the caller sees them: one `ProviderError`, with the words of the contract."""

from __future__ import annotations

from ..providers.errors import ErrorCategory, ProviderError
from ..transport.errors import Phase, TransportError

REDACTED = "[key]"
"""What stands where a server quoted the key."""
SHORTEST_KEY = 8
"""Below this it is a placeholder ("any", "none") that may well be a part of a word."""


def transport_error(error: TransportError, *, streaming: bool) -> ProviderError:
    """A broken connection or exchange. `streaming`: a stream's body had begun, so the stream is truncated."""
    message = str(error)
    if streaming and error.phase is Phase.BODY and not error.protocol:
        message = f"truncated stream: {message}"
    result = ProviderError(
        message,
        category=ErrorCategory.NETWORK,
        provider_code=error.phase.value,
        retryable=not (error.permanent or error.protocol),
    )
    result.__cause__ = error
    return result


def cancelled(why: str = "the call was cancelled") -> ProviderError:
    return ProviderError(why, category=ErrorCategory.CANCELLED, retryable=False)


def callback_failed(error: Exception) -> ProviderError:
    """The caller's `on_event` raised; the exception itself is the cause."""
    result = ProviderError(
        f"on_event raised {type(error).__name__}: {error}", category=ErrorCategory.CALLBACK, retryable=False
    )
    result.__cause__ = error
    return result


def internal(what: str) -> ProviderError:
    return ProviderError(f"internal error: {what}", category=ErrorCategory.UNKNOWN, retryable=False)


def redacted(error: ProviderError, key: str) -> ProviderError:
    """The error without the key, where a server quotes it: in every word, in the body that it keeps, and in the
    errors that it came from, which a traceback shows. And without the frames it came through: they hold whole bodies
    and request heads, and an error may be kept for long."""
    told: BaseException | None = error
    while told is not None:
        told.__traceback__ = told.__context__ = None
        told = told.__cause__
    if len(key) < SHORTEST_KEY:
        return error
    error.message = error.message.replace(key, REDACTED)
    error.body = error.body.replace(key.encode(), REDACTED.encode())
    error.provider_code = error.provider_code and error.provider_code.replace(key, REDACTED)
    error.request_id = error.request_id and error.request_id.replace(key, REDACTED)
    told = error
    while told is not None:
        told.args = tuple(word.replace(key, REDACTED) if isinstance(word, str) else word for word in told.args)
        told = told.__cause__
    return error


def redact_headers(headers: dict[str, str], key: str) -> None:
    """Take the key out of a response's headers, where a server repeats it there; what is printed of a completion shows
    them."""
    if len(key) >= SHORTEST_KEY:
        for name, value in headers.items():
            if key in value:
                headers[name] = value.replace(key, REDACTED)
