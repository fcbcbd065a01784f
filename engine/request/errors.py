"""Convert the transport's errors, and defects, to the `ProviderError` that the caller receives."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, cast

import trio

from ...providers.errors import ManystreamError
from ...providers.model.provider_error import ErrorCategory, ProviderError
from ...transport.errors import Phase, TransportError

if TYPE_CHECKING:
    pass

INTERNAL_CHARACTERS = 200
"""The number of characters of an exception's text that an internal error's message keeps."""


def transport_error(error: TransportError, *, streaming: bool) -> ProviderError:
    """Return the error of a broken connection or exchange.

    streaming: the body of a stream had begun, so the stream is truncated.
    """
    message = str(error)
    if streaming and error.phase is Phase.BODY and not error.protocol:
        message = f"truncated stream: {message}"
    result = ProviderError(
        message,
        category=ErrorCategory.NETWORK,
        provider_code=error.phase.value,
        retryable=not (error.permanent or error.protocol),
    )
    result.__cause__ = _system_error(error)
    return result


def _system_error(error: TransportError) -> BaseException | None:
    """Return the operating system's error, or a group of them, that caused a transport error.

    It becomes the cause of the `ProviderError` in trace of the transport error, whose text the message repeats.
    """
    cause = error.__cause__
    if isinstance(cause, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", cause)
        return group.exceptions[0] if len(group.exceptions) == 1 else group
    return cause


CANCELLED = ErrorCategory.CANCELLED
"""The member, for each cancelled call."""


def cancelled(why: str = "the call was cancelled") -> ProviderError:
    return ProviderError(why, category=CANCELLED, retryable=False)


def callback_failed(error: BaseException) -> ProviderError:
    """Return the error of a call whose `on_event` raised. Its cause is the exception."""
    result = ProviderError(
        f"on_event raised {type(error).__name__}: {error}", category=ErrorCategory.CALLBACK, retryable=False
    )
    result.__cause__ = error
    return result


def internal(error: Exception) -> ProviderError:
    """Return the error of a call that a defect in this library ended.

    The message names the exception and its line; the log has the traceback.
    """
    what = f"{type(error).__name__}: {error}"[:INTERNAL_CHARACTERS] if str(error) else type(error).__name__
    # `traceback` reads the source, for which a stack that is nearly full has no room.
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "" if trace is None else f" ({os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno})"
    result = ProviderError(
        f"internal error: {what}{where}; this is a defect in manystream, please report it",
        category=ErrorCategory.UNKNOWN,
        retryable=False,
    )
    result.__cause__ = error
    return result


def ends_engine(error: BaseException) -> bool:
    """Return True if the exception of a callback must end the engine, such as `KeyboardInterrupt` or `SystemExit`.

    That is each `BaseException` that is not an `Exception`, except a cancellation. A plain function is not cancelled,
    so a cancellation comes from its own code, such as `future.result()`.
    """
    return not isinstance(error, (Exception, GeneratorExit, trio.Cancelled, *_asyncio_cancelled()))


def _asyncio_cancelled() -> tuple[type[BaseException], ...]:
    """Return asyncio's `CancelledError` if the program has loaded asyncio."""
    found: object = getattr(sys.modules.get("asyncio.exceptions"), "CancelledError", None)
    return (found,) if isinstance(found, type) and issubclass(found, BaseException) else ()


def refuse_await(instead: str) -> Callable[[object], NoReturn]:
    """Return a method `__await__` that raises `TypeError`. Type checkers need none: they refuse `await` by themselves.

    instead: what to write, for the error.
    """

    def __await__(self: object) -> NoReturn:
        raise TypeError(instead)

    return __await__


class EngineClosedError(ManystreamError, RuntimeError):
    """The engine was used after its block was left, in another process, or on another thread."""


class EventLoopError(ManystreamError, RuntimeError):
    """No event loop of trio or asyncio runs here, or it cannot wait for file descriptors."""


class TooManyCallsError(ManystreamError, RuntimeError):
    """`Limits.max_calls` calls are running. Start this call when one of them has ended."""
