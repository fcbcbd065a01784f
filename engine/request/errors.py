"""Convert the transport's errors, and defects, to the `ProviderError` that the caller receives."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NoReturn, cast

import trio

from ...providers.errors import ErrorCategory, ManystreamError, ProviderError
from ...transport.errors import Phase, TransportError

if TYPE_CHECKING:
    from .redaction import Redaction

INTERNAL_CHARACTERS = 200
"""The number of characters of an exception's text that an internal error's message keeps."""
LONGEST_MESSAGE = 4096
"""The number of characters of a message that are kept. A server may send megabytes."""


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

    It becomes the cause of the `ProviderError` in place of the transport error, whose text the message repeats.
    """
    cause = error.__cause__
    if isinstance(cause, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", cause)
        return group.exceptions[0] if len(group.exceptions) == 1 else group
    return cause


CANCELLED = ErrorCategory.CANCELLED
"""The member, for each cancelled call. CPython 3.11 needs a thousand instructions to find one in `ErrorCategory`."""


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

    The message names the exception and its place; the log has the traceback.
    """
    what = f"{type(error).__name__}: {error}"[:INTERNAL_CHARACTERS] if str(error) else type(error).__name__
    # `traceback` reads the source, for which a stack that is nearly full has no room.
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = "" if place is None else f" ({os.path.basename(place.tb_frame.f_code.co_filename)}:{place.tb_lineno})"
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


def redacted(error: ProviderError, secrets: Redaction) -> ProviderError:
    """Remove the secrets from an error, and return it.

    A server may quote a secret. It is removed from all texts of the error, from its body, and from the causes that a
    traceback shows. The traceback's frames are removed, too: they hold whole bodies and request heads, and a program
    may keep the error for long.
    """
    for each in _chain(error):
        each.__traceback__ = each.__context__ = None
    hide_words(error, secrets)
    error.message = _bounded(error.message, secrets)
    error.body = secrets.hide_parts(error.body.decode("latin-1")).encode("latin-1")
    error.provider_code = error.provider_code and _bounded(error.provider_code, secrets)
    error.request_id = error.request_id and _bounded(error.request_id, secrets)
    return error


_OS_TEXTS = ("strerror", "filename", "filename2")
"""The texts of an `OSError` that it prints in place of its arguments."""


def hide_words(error: BaseException, secrets: Redaction) -> None:
    """Remove the secrets from the texts and notes of an exception and of its causes."""
    chain = list(_chain(error))
    for each in chain:
        each.args = tuple(_redacted_word(word, secrets) for word in each.args)
        notes: object = getattr(each, "__notes__", None)
        if isinstance(notes, list):
            texts = cast("list[object]", notes)
            texts[:] = [_redacted_word(note, secrets) for note in texts]
        if isinstance(each, OSError):
            for name in _OS_TEXTS:
                text: object = getattr(each, name)
                hidden = _redacted_word(text, secrets)
                if hidden != text:  # a file name that is set to None would be printed
                    setattr(each, name, hidden)
    for each in chain:
        cause = each.__cause__
        if isinstance(cause, BaseExceptionGroup):
            each.__cause__ = _renamed(cast("BaseExceptionGroup[BaseException]", cause), secrets)


def _renamed(group: BaseExceptionGroup[BaseException], secrets: Redaction) -> BaseExceptionGroup[BaseException]:
    """Return a group without secrets in its message and in those of the groups in it. A message cannot be changed."""
    members = [
        _renamed(cast("BaseExceptionGroup[BaseException]", each), secrets)
        if isinstance(each, BaseExceptionGroup)
        else each
        for each in group.exceptions
    ]
    message = _bounded(group.message, secrets)
    if message == group.message and all(old is new for old, new in zip(group.exceptions, members, strict=True)):
        return group
    renamed = BaseExceptionGroup(message, members)
    renamed.__cause__, renamed.__suppress_context__ = group.__cause__, group.__suppress_context__
    for note in getattr(group, "__notes__", ()):
        renamed.add_note(note)
    return renamed


def redacted_headers(headers: dict[str, str], secrets: Redaction) -> dict[str, str]:
    """Return a response's headers without the secrets, because printing a completion shows its headers."""
    return {name: secrets.hide(value) for name, value in headers.items()}


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, its causes, and the members of exception groups among them."""
    waiting: list[BaseException] = [error]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if each.__cause__ is not None:
            waiting.append(each.__cause__)
        if isinstance(each, BaseExceptionGroup):
            waiting += cast("BaseExceptionGroup[BaseException]", each).exceptions
        yield each


def _redacted_word(word: object, secrets: Redaction) -> object:
    if isinstance(word, str):
        return _bounded(word, secrets)
    return secrets.hide_bytes(word) if isinstance(word, bytes) else word


def _bounded(text: str, secrets: Redaction) -> str:
    """Redact a text, truncate it, and remove parts of secrets that the truncation left."""
    return secrets.hide_parts(secrets.hide(text)[:LONGEST_MESSAGE])


def refuse_await(instead: str) -> Callable[[object], NoReturn]:
    """Return a method `__await__` that raises `TypeError`. Type checkers need none: they refuse `await` by themselves.

    instead: what to write, for the error.
    """

    def __await__(self: object) -> NoReturn:
        raise TypeError(instead)

    return __await__


class EngineClosedError(ManystreamError, RuntimeError):
    """The engine was used after its block was left, in another process, or on another thread."""


class TooManyCallsError(ManystreamError, RuntimeError):
    """`Limits.max_calls` calls are running. Start this call when one of them has ended."""
