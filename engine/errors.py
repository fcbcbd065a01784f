"""Transport's failures as the caller sees them: one `ProviderError`, with the words of the contract."""

from __future__ import annotations

from ..providers.errors import ErrorCategory, ProviderError
from ..transport.errors import Phase, TransportError


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
