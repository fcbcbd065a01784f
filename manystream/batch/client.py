"""Sends the requests of a batch interface, which are no calls, over an engine's connections."""

from __future__ import annotations

import time
from collections.abc import Callable

import trio

from ..engine.frontends.engine import Engine
from ..engine.request.prepared import Prepared
from ..engine.request.redaction import redacted
from ..providers.catalog.dialect import WireRequest
from ..providers.catalog.provider import Provider
from ..providers.json.json_values import JSONObject, MalformedJSONError, loads_object
from ..providers.model.provider_error import ErrorCategory, ProviderError
from ..transport.errors import Phase, TransportError
from ..transport.exchange import RawHeaders
from ..transport.http1 import Connection

SILENCE = 300.0
"""Seconds without a byte of the response after which a request has failed. A large file needs long to be sent."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between two attempts. The pause doubles with each attempt."""

ERROR_BYTES = 64 * 1024
"""The most bytes of an error's body that are kept."""

OnData = Callable[[bytes], None]


class BatchClient:
    """Sends requests to one provider. An error names the provider and shows no key."""

    def __init__(self, engine: Engine, provider: Provider) -> None:
        self._starter = engine._calls.starter  # pyright: ignore[reportPrivateUsage]
        self._provider = provider

    async def send(self, wire: WireRequest, on_data: OnData | None = None) -> bytes:
        """Send a request once and return the body of its response.

        on_data: gets the body's pieces as they come; then nothing is returned.

        Raises `ProviderError` for an error response, and for no or half a response.
        """
        prepared = await self._with_key(self._starter.prepare_wire(self._provider, wire))
        if self._provider.sign is not None:
            prepared = prepared.signed()
        try:
            exchange = await self._exchange(prepared, on_data)
        except TransportError as error:
            failure = ProviderError(str(error), category=ErrorCategory.NETWORK, retryable=not error.permanent)
            raise self._named(failure, prepared) from None
        body = b"".join(exchange.pieces)
        if 200 <= exchange.status < 300:
            return body
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in exchange.headers}
        raise self._named(prepared.dialect.decode_error(exchange.status, headers, body, time.time()), prepared)

    async def send_patiently(self, wire: WireRequest, on_data: Callable[[], OnData] | None = None) -> bytes:
        """Send a request that may be repeated, again and again until the server answers.

        on_data: returns what gets the body's pieces, for each attempt.

        Raises `ProviderError` for an error that does not pass.
        """
        pause = FIRST_PAUSE
        while True:
            try:
                return await self.send(wire, None if on_data is None else on_data())
            except ProviderError as error:
                if not error.retryable:
                    raise
                await trio.sleep(max(pause, min(error.retry_after_ms / 1000, LONGEST_PAUSE)))
                pause = min(2 * pause, LONGEST_PAUSE)

    async def ask(self, wire: WireRequest) -> JSONObject:
        """Send a request that may be repeated, until the server answers with an object. Raises `ProviderError`."""
        return self.object(await self.send_patiently(wire))

    def object(self, body: bytes) -> JSONObject:
        """Parse the object that a response must have. Raises `ProviderError`."""
        try:
            return loads_object(body)
        except MalformedJSONError as error:
            message = f"the answer of {self._provider.name!r} is no JSON object: {error}"
            raise ProviderError(message, category=ErrorCategory.UNKNOWN, http_status=200, body=body) from None

    def _named(self, error: ProviderError, prepared: Prepared) -> ProviderError:
        error.provider, error.host = self._provider.name, prepared.origin.host
        return redacted(error, prepared.secrets)

    async def _with_key(self, prepared: Prepared) -> Prepared:
        """Return the request with the key of the provider's key function, if it has one."""
        if prepared.fresh_key is None:
            return prepared
        source = prepared.fresh_key.source
        key = source.ask()
        while key is None:
            await trio.sleep(0.05)
            key = source.ask()
        return prepared.with_key(key)

    async def _exchange(self, prepared: Prepared, on_data: OnData | None) -> _Exchange:
        for fresh in (False, True):
            exchange = _Exchange(prepared, on_data)
            pool = self._starter.runtime.pool
            try:
                pool.acquire(prepared.origin, exchange, fresh=fresh)
                await exchange.wait()
            finally:
                pool.abandon(exchange)
                exchange.close()
            if exchange.failure is None:
                return exchange
            if not exchange.failure.unread or fresh:
                raise exchange.failure
        raise AssertionError("the second attempt has an outcome")


class _Exchange:
    """One request, from waiting for a connection to the end of its response. The pool and the connection report to it.

    status, headers: of the response's head; 0 and none before it.
    pieces: the body; empty if `on_data` gets it.
    failure: why there is no whole response; None if there is one.
    """

    def __init__(self, prepared: Prepared, on_data: OnData | None) -> None:
        self.status: int = 0
        self.headers: RawHeaders = ()
        self.pieces: list[bytes] = []
        self.failure: TransportError | None = None
        self._prepared = prepared
        self._on_data = on_data
        self._size = 0
        self._connection: Connection | None = None
        self._ended = False
        self._changed = trio.Event()

    async def wait(self) -> None:
        """Wait for the end. A long silence is one."""
        while not self._ended:
            self._changed = trio.Event()
            with trio.move_on_after(SILENCE) as scope:
                await self._changed.wait()
            if scope.cancelled_caught:
                self._end(TransportError(f"no byte for {SILENCE:g} s", phase=Phase.BODY))

    def close(self) -> None:
        """Close the connection if the response is not complete."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _end(self, failure: TransportError | None) -> None:
        if not self._ended:
            self._ended, self.failure = True, failure
            self._changed.set()

    # --- called by the pool and by the connection ---

    def on_phase(self, phase: Phase) -> None:
        self._changed.set()

    def on_connection(self, connection: Connection, reused: bool) -> None:
        self._connection = connection
        connection.send(self._prepared.head, self._prepared.body, self)

    def on_connect_failure(self, error: TransportError) -> None:
        self._end(error)

    def on_head(self, status: int, headers: RawHeaders) -> None:
        self.status, self.headers = status, headers
        self._changed.set()

    def on_body(self, data: bytes) -> None:
        if self._on_data is not None and 200 <= self.status < 300:
            self._on_data(data)
        elif self.status < 300 or self._size < ERROR_BYTES:
            self.pieces.append(data)
            self._size += len(data)
        self._changed.set()

    def on_end(self) -> None:
        self._connection = None
        self._end(None)

    def on_failure(self, error: TransportError) -> None:
        self._connection = None
        self._end(error)

    def on_defect(self, error: Exception) -> None:
        self._connection = None
        self._end(TransportError(f"internal error: {error!r}", phase=Phase.BODY))
