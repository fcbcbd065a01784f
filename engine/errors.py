"""Transport's failures as the caller sees them: one `ProviderError`, with the words of the contract."""

from __future__ import annotations

import os
import sys
import traceback

import trio

from ..providers.errors import ErrorCategory, ProviderError
from ..transport.errors import Phase, TransportError

REDACTED = "[key]"
"""What stands where a server quoted the key."""
INTERNAL_CHARACTERS = 200
"""What an internal error's message keeps of what was raised."""
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


def callback_failed(error: BaseException) -> ProviderError:
    """The caller's `on_event` raised; the exception itself is the cause."""
    result = ProviderError(
        f"on_event raised {type(error).__name__}: {error}", category=ErrorCategory.CALLBACK, retryable=False
    )
    result.__cause__ = error
    return result


def internal(error: Exception) -> ProviderError:
    """A defect in this library ended the call. The message names what was raised and where; the log has the rest."""
    what = f"{type(error).__name__}: {error}"[:INTERNAL_CHARACTERS] if str(error) else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    result = ProviderError(
        f"internal error: {what}{where}; this is a defect in manystream, please report it",
        category=ErrorCategory.UNKNOWN,
        retryable=False,
    )
    result.__cause__ = error
    return result


def ends_engine(error: BaseException) -> bool:
    """Whether what a callback raised is meant for the whole program: `KeyboardInterrupt`, `SystemExit`, any other
    `BaseException`. A cancellation is not: a plain function can only raise one by itself (`future.result()` does)."""
    return not isinstance(error, (Exception, GeneratorExit, trio.Cancelled, *_asyncio_cancelled()))


def _asyncio_cancelled() -> tuple[type[BaseException], ...]:
    """asyncio's `CancelledError`, in programs that have asyncio loaded."""
    found: object = getattr(sys.modules.get("asyncio.exceptions"), "CancelledError", None)
    return (found,) if isinstance(found, type) and issubclass(found, BaseException) else ()


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
