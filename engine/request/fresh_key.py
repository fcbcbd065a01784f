"""Keys from a provider's key function: called for each attempt, or by one task for all calls that wait for its token.

A plain function that returns a text is called when an attempt begins. What a coroutine function returns is kept, and
so is an `AccessToken`, until it expires or the server refuses it.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Hashable
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, TypeAlias, cast

import trio

from ...providers.catalog.provider import AccessToken, Provider
from ...providers.errors import InvalidRequestError
from ...providers.model.provider_error import ErrorCategory, ProviderError
from ...providers.model.rules import is_coroutine_function
from ...transport.exchange import WireHead
from .credentials import why_no_key
from .errors import ends_engine
from .noting import NoteLogger
from .redaction import Redaction, hide_words

if TYPE_CHECKING:
    from ...transport.backend import Backend
    from .prepared import WallClock

logger: NoteLogger = NoteLogger("manystream.engine")

Key: TypeAlias = str | AccessToken

WriteHead: TypeAlias = Callable[[Key], tuple[WireHead, Redaction]]
"""Encodes a request's head with the key that it is given. Raises `InvalidRequestError`."""

OnKey: TypeAlias = Callable[[Key | ProviderError], None]
"""Receives the key that an attempt has waited for, or the error that says why there is none."""

RENEWED_EARLY = 0.1
"""The part of a token's lifetime before its end in which it is renewed, while calls still use it."""

RENEWED_AT_MOST = 300.0
"""Seconds before its end from which any token is renewed."""

RENEWAL_PAUSE = 10.0
"""Seconds after a failed renewal for which it is not tried again, while the token is still valid."""

LONGEST_WAIT = 120.0
"""Seconds after which a coroutine function that has not returned is cancelled: it may wait for ever."""

NOTHING = object()

SERVED_AT_ONCE = 64
"""The number of waiting attempts that get the key in one step of the task. Then other tasks run."""


UNREADABLE = "returned a value whose reading raised"


class KeySource:
    """The key function of one provider, and the key that it returned last, if that is kept."""

    def __init__(self, provider: Provider, wall_clock: WallClock, backend: Backend | None) -> None:
        """Create it without a key.

        wall_clock: Unix seconds, in which tokens expire.
        backend: starts the task that waits for a coroutine function.
        """
        assert callable(provider.api_key)
        self.provider: Provider = provider
        self._function: Callable[[], object] = provider.api_key
        self._is_async = is_coroutine_function(provider.api_key)
        self._wall_clock = wall_clock
        self._backend = backend
        self._kept: Key | None = None
        self._renew_at = self._expires_at = -math.inf
        self._running = False  # the task
        self._waiting: dict[Hashable, tuple[OnKey, Callable[[Exception], None]]] = {}

    def ask(self) -> Key | None:
        """Return the key; None while the task has yet to get one, for which an attempt can `wait`.

        Raises `ProviderError` (category AUTH) if a plain function raises or returns no key. The message names the
        provider and shows nothing of the returned value. Exceptions that end the engine, such as `KeyboardInterrupt`,
        are not caught.
        """
        kept, now = self._kept, self._wall_clock()
        if kept is not None and now < self._renew_at:
            return kept
        try:
            if not self._running:
                found = None if self._is_async else self._call()
                if not self._is_async and not inspect.isawaitable(found):
                    return self._keep(found)
                self._start(found)
        except ProviderError as error:
            valid = self._kept_despite(error)
            if isinstance(valid, ProviderError):
                raise
            return valid
        except Exception as error:
            raise self._no_key(f"{UNREADABLE} {type(error).__name__}") from None  # its text may quote the key
        return kept if now < self._expires_at else None

    def wait(self, waiter: Hashable, on_key: OnKey, on_defect: Callable[[Exception], None]) -> None:
        """Let an attempt wait until the task has the key, or has none.

        on_defect: called if `on_key` raises. Never raises.
        """
        self._waiting[waiter] = on_key, on_defect

    def is_asked_by(self, waiter: Hashable) -> bool:
        """Return whether an attempt waits."""
        return waiter in self._waiting

    def forget(self, waiter: Hashable) -> None:
        """An attempt waits no longer. The task goes on for the others. May be called again."""
        self._waiting.pop(waiter, None)

    def refused(self, text: str) -> bool:
        """The server has refused a key. Return whether the function can give another one: if keys are kept."""
        kept = self._kept
        if kept is not None and text_of(kept) == text:
            self._kept = None
        return self._is_async or kept is not None

    # --- the function ---

    def _call(self) -> object:
        try:
            return self._function()
        except BaseException as error:
            if ends_engine(error):
                raise
            raise self._no_key(f"raised {type(error).__name__}") from error

    def _keep(self, found: object) -> Key:
        """Return the key that the function returned, and keep it if it is a token, or the task got it."""
        text = found.text if isinstance(found, AccessToken) else found
        text = str.__str__(text) if isinstance(text, str) else text  # the methods of a type of its own may raise
        why = why_no_key(text)
        if why:
            raise self._no_key(f"returned {why}")
        key: Key = cast("str", text)
        if isinstance(found, AccessToken):
            key = AccessToken(cast("str", text), found.expires_at)
        if self._is_async or isinstance(key, AccessToken):
            now = self._wall_clock()
            expires_at = key.expires_at if isinstance(key, AccessToken) else None
            self._kept, self._expires_at = key, math.inf if expires_at is None else expires_at
            self._renew_at = self._expires_at - max(0.0, min(RENEWED_AT_MOST, (self._expires_at - now) * RENEWED_EARLY))
        return key

    def _no_key(self, why: str) -> ProviderError:
        what = f"the api_key function of {self.provider.name!r} {why}"
        return ProviderError(what, category=ErrorCategory.AUTH, retryable=False)

    def _kept_despite(self, error: ProviderError) -> Key | ProviderError:
        """Return the kept token, if it is still valid although its renewal has failed; else the error."""
        kept, now = self._kept, self._wall_clock()
        if kept is None or now >= self._expires_at:
            return error
        self._renew_at = min(self._expires_at, now + RENEWAL_PAUSE)
        logger.warning("%s; the token that it returned before is used until it expires", error.message)
        return kept

    # --- the task ---

    def _start(self, found: object) -> None:
        """Let a task get the key. found: what a plain function returned, to await; None: the task calls it."""
        assert self._backend is not None, "an engine has a backend"
        self._running = self._is_async = True
        self._backend.start(self._run, found)

    async def _run(self, found: object) -> None:
        outcome: Key | ProviderError
        try:
            outcome = await self._get(found)
        except ProviderError as error:
            outcome = self._kept_despite(error)
        except Exception as error:
            outcome = self._kept_despite(self._no_key(f"{UNREADABLE} {type(error).__name__}"))
        finally:
            self._running = False
        await self._serve(outcome)

    async def _get(self, found: object) -> Key:
        """Await the function's key. Raises `ProviderError` (category AUTH)."""
        if found is None:
            found = self._call()
        if inspect.isawaitable(found):
            backend, awaited = self._backend, found
            assert backend is not None, "an engine has a backend"
            found = NOTHING
            try:
                async with backend.scope(backend.clock() + LONGEST_WAIT):
                    found = await awaited
            except (trio.Cancelled, GeneratorExit):
                raise  # the engine is closed, which has ended its calls
            except BaseException as error:
                if ends_engine(error):
                    raise
                raise self._no_key(f"raised {type(error).__name__}") from error
            if found is NOTHING:
                raise self._no_key(f"returned nothing within {LONGEST_WAIT:g} s")
        return self._keep(found)

    async def _serve(self, outcome: Key | ProviderError) -> None:
        """Give the attempts that wait the key, or each of them an error of its own."""
        assert self._backend is not None, "an engine has a backend"
        served, self._waiting = self._waiting, {}
        for number, (on_key, on_defect) in enumerate(served.values(), 1):
            try:
                on_key(_again(outcome) if isinstance(outcome, ProviderError) else outcome)
            except Exception as error:
                on_defect(error)
            if number % SERVED_AT_ONCE == 0:
                await self._backend.checkpoint()


def _again(error: ProviderError) -> ProviderError:
    """Return an equal error for another call: a call writes into its error where it was sent."""
    same = ProviderError(error.message, category=error.category, retryable=False)
    same.__cause__ = error.__cause__
    return same


def text_of(key: Key) -> str:
    """Return the key itself, without the time at which it expires."""
    return key.text if isinstance(key, AccessToken) else key


@dataclass(slots=True, eq=False, repr=False)
class FreshKey:
    """Writes the key of a `KeySource` into the head that requests share. The head is cached for the latest key."""

    source: KeySource  # returns the key
    _write_head: WriteHead
    _: KW_ONLY
    # whether another key is asked for after the server has refused a kept one: once for each call
    asks_again: bool = True
    _latest: tuple[Key, tuple[WireHead, Redaction]] | None = field(default=None, init=False)

    def head_with(self, key: Key) -> tuple[WireHead, Redaction]:
        """Return the head with a key. Raises `ProviderError` (category AUTH)."""
        latest = self._latest
        if latest is None or latest[0] != key:
            try:
                latest = self._latest = key, self._write_head(key)
            except InvalidRequestError:
                # The headers without the key were checked before the call began, so the key does not fit into them.
                text = (
                    f"the key that the api_key function of {self.source.provider.name!r} returned fits into no header"
                )
                raise ProviderError(text, category=ErrorCategory.AUTH, retryable=False) from None
        return latest[1]

    def hide_latest(self, error: ProviderError) -> None:
        """Remove the latest key from the words of an error and of its causes: the program's exception may name it."""
        if self._latest is not None:
            hide_words(error, self._latest[1][1])

    def for_last_time(self) -> FreshKey:
        """Return one that asks for no other key: the call has done so."""
        return FreshKey(self.source, self._write_head, asks_again=False)
